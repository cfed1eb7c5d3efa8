"""The progress of a command that waits until submissions have ended."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import sleep

from rich.status import Status

from arctic_orchestration.console.display import counted
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.cli.context import OpenedTasks
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.freshness.views.wait_roots import Root, roots
from arctic_orchestration.state.dialect import database_time

_LOOK_EVERY_SECONDS = 0.5


def until_ended(opened: OpenedTasks, made: Sequence[Submission]) -> list[Submission]:
    """Polls submissions until they have ended, and returns them; holds no transaction meanwhile.

    A terminal shows how many have ended and why the next one has not. A silent sensor of a location
    is reported once, on standard error, because nothing else reports it.
    """
    ids = [one.id for one in made]
    console = Console(stderr=True, highlight=False)
    reported: set[tuple[str, str]] = set()
    with _status(console) as status:
        while True:
            with opened.database.read() as tx:
                found = submissions.by_ids(tx, ids)
                places, now = definitions.locations(tx), database_time(tx)
                waiting = [found[id] for id in ids if not found[id].state.ended]
                root = next(iter(roots(tx, waiting[:1]).values()), None)
            if not waiting:
                return [found[id] for id in ids]
            wanted = {(one.cluster, one.location) for one in waiting} - reported
            for place in places:
                silence = place.silence(now)
                if silence is not None and (place.cluster, place.location) in wanted:
                    reported.add((place.cluster, place.location))
                    console.print(f"[yellow]{escape(silence)}[/]")
            if status is not None:
                status.update(_progress(len(ids), waiting, root))
            sleep(_LOOK_EVERY_SECONDS)


@contextmanager
def _status(console: Console) -> Iterator[Status | None]:
    if not console.is_terminal:
        yield None
        return
    with console.status("waiting") as status:
        yield status


def _progress(of: int, waiting: Sequence[Submission], root: Root | None) -> str:
    first = waiting[0]
    reason = root.text if root is not None else first.reason
    why = f": {reason}" if reason else ""
    ended = f"{of - len(waiting)} of {counted(of, 'task')} ended"
    return f"{ended}; {escape(f'{first.task} is {first.state.value}{why}')}"
