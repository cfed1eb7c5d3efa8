"""The root of a wait: the end of a chain of submissions that wait for each other.

The reason of a submission is written when it begins to wait. What its parent waits for changes
meanwhile, so the chain is followed on demand.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state import dialect
from arctic_orchestration.state.freshness_tables import task_waits

#: the maximum number of named tasks on the way to the root
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Root:
    """The end of a chain of waits.

    Attributes:
        submission: the last one, which owns its task, or waits for no submission.
        through: the first few tasks on the way to it, nearest first.
        between: how many there are on the way.
        besides: the first few parents on the way that are waited for and that no submission of the
            same group or location runs.
    """

    submission: Submission
    through: tuple[str, ...] = ()
    between: int = 0
    besides: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line for people: ``waits for flights, which run 1 of cluster east makes``."""
        last = self.submission
        text = f"waits for {last.task}, "
        if last.state.owns:
            where = f"cluster {last.cluster}, location {last.location}"
            run = f"which run {last.run_id}" if last.run_id else "which a requested run"
            text += f"{run} of {where} makes"
        else:
            text += f"which is {last.state.value}: {last.reason}"
        if self.through:
            more = self.between - len(self.through)
            names = ", ".join(self.through) + (f" and {more} more" if more else "")
            text += f" (through {names})"
        if self.besides:
            text += f", and for {', '.join(self.besides)}, which no submission runs"
        return text


def roots(tx: sa.Connection, waiting: Iterable[Submission]) -> dict[str, Root]:
    """Returns the roots of submissions, by their ids; omits submissions that wait for none.

    If several parents are waited for, the first one by name is followed.

    Cost: two statements, and two for each further step of a chain.
    """
    known = {one.id: one for one in waiting}
    wanted = list(known)
    parents, without = _parents(tx, known)
    ends: dict[str, Root] = {}
    for id in wanted:
        path, seen = [id], {id}
        while path[-1] in parents and path[-1] not in ends:
            parent = parents[path[-1]]
            if parent in seen:
                break
            path.append(parent)
            seen.add(parent)
        # Backwards: each has the root of its parent, or that parent is the root.
        for parent, child in zip(reversed(path), reversed(path[:-1]), strict=False):
            ends[child] = _before(known[parent], ends.get(parent), without.get(child, ()))
    return {id: ends[id] for id in wanted if id in ends}


def _before(parent: Submission, beyond: Root | None, without: Sequence[str]) -> Root:
    """Returns the root of a child of a parent that has the root ``beyond``, or is it."""
    if beyond is None:
        return Root(submission=parent, besides=tuple(without[:_SHOWN]))
    return Root(
        submission=beyond.submission,
        through=(parent.task, *beyond.through)[:_SHOWN],
        between=beyond.between + 1,
        besides=tuple(dict.fromkeys((*without, *beyond.besides)))[:_SHOWN],
    )


def _parents(
    tx: sa.Connection, known: dict[str, Submission]
) -> tuple[Mapping[str, str], Mapping[str, Sequence[str]]]:
    """Returns by submission the one that it waits for, and the parents without a submission.

    Adds the submissions that are waited for to the known ones.
    """
    parents: dict[str, str] = {}
    without: dict[str, list[str]] = {}
    new: Sequence[str] = list(known)
    while new:
        rows = _waits(tx, [id for id in new if known[id].state is SubmissionState.WAITING])
        wanted = {parent for _, _, parent in rows if parent is not None}
        others = submissions.by_ids(tx, wanted - set(known))
        known.update(others)
        for child, name, parent in rows:
            if parent is None:
                without.setdefault(child, []).append(name)
            elif parent in known and not known[parent].state.ended:
                parents.setdefault(child, parent)
        new = list(others)
    return parents, without


def _waits(tx: sa.Connection, ids: Sequence[str]) -> list[tuple[str, str, str | None]]:
    """Returns submissions with the parents that they wait for, by name, and their submissions."""
    if not ids:
        return []
    col = task_waits.c
    query = (
        sa.select(col.submission, col.name, col.parent_submission)
        .where(dialect.among(tx, col.submission, ids), col.kind == "task")
        .order_by(col.submission, col.name)
    )
    return [(row.submission, row.name, row.parent_submission) for row in tx.execute(query)]
