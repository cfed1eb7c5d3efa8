"""A worker: claims tasks, merges their files, reports, until it is told to end.

Several tasks are worked on at once, each in a thread; one more thread renews the leases of all of
them, at a third of their life. What the database does not renew in time is lost: the worker
reports nothing more of it and removes what it has written, as another worker may have the task.

It ends in one of two ways. *Draining*, it claims nothing more and finishes what it has; *giving
back*, it drops what it has and says so, and the tasks can be claimed by others at once.
"""

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import attempts, workers
from arctic_orchestration.compaction.attempt import Claim, Output
from arctic_orchestration.compaction.attempts import LEASE
from arctic_orchestration.compaction.outputs import directory_of, remove_outputs
from arctic_orchestration.compaction.policy import Policy
from arctic_orchestration.compaction.task import TaskState
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import (
    ArcticError,
    DatabaseUnavailable,
    NotFound,
    Refused,
    UnsupportedTable,
)
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.quantities import format_bytes

_log = logging.getLogger("arctic.compaction.worker")

#: how long a worker that found nothing waits until it looks again
POLL = timedelta(seconds=2)


class MergedFiles(Protocol):
    """What a merge says of its outputs."""

    @property
    def outputs(self) -> Sequence[Output]: ...
    @property
    def rows_in(self) -> int: ...
    @property
    def rows_deleted(self) -> int: ...
    @property
    def rows_out(self) -> int: ...
    @property
    def way(self) -> str: ...
    @property
    def because(self) -> str: ...
    @property
    def sort_order_id(self) -> int | None: ...


class Merge(Protocol):
    """Merges the files of a group into a directory: :func:`arctic_orchestration.lake.merging.merge`
    with its Spark session."""

    def __call__(
        self, table: Table, group: FileGroup, directory: str, *, target_bytes: int
    ) -> MergedFiles: ...


class What(StrEnum):
    """What happened to a task in a worker."""

    CLAIMED = "claimed"
    MERGED = "merged"
    FAILED = "failed"
    LOST = "lost"
    RELEASED = "released"


@dataclass(frozen=True, kw_only=True)
class WorkerEvent:
    """Something that a worker did, for people."""

    what: What
    claim: Claim
    text: str


@dataclass(kw_only=True)
class WorkDone:
    """How many tasks a worker merged, and what became of the others."""

    counts: dict[What, int] = field(default_factory=lambda: dict.fromkeys(What, 0))

    def of(self, what: What) -> int:
        """How often it happened."""
        return self.counts[what]


@dataclass(kw_only=True)
class _Held:
    """A task that this worker has."""

    claim: Claim
    #: until then, by this machine's steady clock, the lease holds for certain
    trusted_until: float
    lost: threading.Event = field(default_factory=threading.Event)


class Worker:
    """Works on the tasks of some queues; see the module's text.

    Args:
        database: the state database.
        catalog: of the tables.
        merge: how files are merged.
        queues: names of compaction queues; empty: all.
        parallelism: how many tasks are worked on at once.
        name: how people tell it from others; none: host and process.
        table: works on the tasks of this table only.
        life: how long a lease holds without renewal.
        poll: how long it waits when there is nothing to do.
        cancel: ends merges that are under way, when tasks are given back.
        on_event: told of everything that happens, from several threads.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        merge: Merge,
        *,
        queues: Sequence[str] = (),
        parallelism: int = 1,
        name: str | None = None,
        table: str | None = None,
        life: timedelta = LEASE,
        poll: timedelta = POLL,
        cancel: Callable[[], None] | None = None,
        on_event: Callable[[WorkerEvent], None] | None = None,
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._merge = merge
        self._queues = tuple(queues)
        self._parallelism = parallelism
        self.id = new_id(utc_now())
        self.name = name or f"{platform.node()}:{os.getpid()}"
        self._table = table
        self._life = life
        self._poll = poll.total_seconds()
        self._cancel = cancel
        self._tell = on_event
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._draining = threading.Event()
        self._giving_back = threading.Event()
        self._done = WorkDone()

    def drain(self) -> None:
        """Lets it claim nothing more, and end when what it has is finished. Returns at once."""
        self._draining.set()

    def give_back(self) -> None:
        """Lets it end without finishing what it has. Returns at once."""
        self._draining.set()
        self._giving_back.set()
        if self._cancel is not None:
            self._cancel()

    def run(self, until_idle: timedelta | None = None) -> WorkDone:
        """Works until it is told to end.

        Args:
            until_idle: it ends by itself when it found nothing to do for that long.

        Errors:
            DatabaseUnavailable: the state database did not answer when it began; later, it waits
                for it.
        """
        self._seen()
        renewing = threading.Event()
        renewer = threading.Thread(target=self._renew_all, args=(renewing,), name="renew")
        renewer.start()
        threads = [
            threading.Thread(target=self._work, args=(until_idle,), name=f"merge-{number}")
            for number in range(self._parallelism)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                # In short pieces, so that a signal is heard meanwhile.
                while thread.is_alive():
                    thread.join(0.2)
        finally:
            self._draining.set()
            for thread in threads:
                thread.join()
            renewing.set()
            renewer.join()
            self._forgotten()
        return self._done

    def _work(self, until_idle: timedelta | None) -> None:
        idle_since = time.monotonic()
        while not self._draining.is_set():
            claim = self._claim()
            if claim is not None:
                self._attempt(claim)
                idle_since = time.monotonic()
                continue
            idle = time.monotonic() - idle_since
            if until_idle is not None and idle >= until_idle.total_seconds():
                return
            self._draining.wait(self._poll)

    def _claim(self) -> Claim | None:
        asked = time.monotonic()
        try:
            with self._database.begin() as tx:
                claim = attempts.claim(
                    tx, self._queues, self.name, table=self._table, life=self._life
                )
        except DatabaseUnavailable as error:
            _log.warning("nothing is claimed: %s", error)
            return None
        if claim is not None:
            held = _Held(claim=claim, trusted_until=asked + self._life.total_seconds())
            with self._lock:
                self._held[claim.attempt_id] = held
        return claim

    def _attempt(self, claim: Claim) -> None:
        held = self._held[claim.attempt_id]
        self._say(What.CLAIMED, claim, f"{claim.task.table}: {claim.task.gain}")
        table: Table | None = None
        directory = ""
        try:
            table = load_table(self._catalog, claim.task.table)
            directory = directory_of(table, claim.directory)
            policy = Policy.of(table.properties, claim.task.table)
            done = self._merge(table, claim.group, directory, target_bytes=policy.target_size)
            self._report(claim, held, done)
        except Refused as refused:
            self._say(What.LOST, claim, str(refused))
            self._remove(table, directory)
        except Exception as error:
            self._fail(claim, held, error, table, directory)
        finally:
            with self._lock:
                del self._held[claim.attempt_id]

    def _report(self, claim: Claim, held: _Held, done: MergedFiles) -> None:
        if held.lost.is_set():
            raise Refused("its lease was not renewed in time")

        def report(tx: Any) -> None:
            attempts.merged(
                tx,
                claim.attempt_id,
                claim.token,
                outputs=done.outputs,
                rows_in=done.rows_in,
                rows_deleted=done.rows_deleted,
                rows_out=done.rows_out,
                way=done.way,
                because=done.because,
                sort_order_id=done.sort_order_id,
            )

        self._insist(held, report)
        size = sum(output.size for output in done.outputs)
        self._say(
            What.MERGED,
            claim,
            f"{claim.task.table}: {len(claim.group.files)} files → {len(done.outputs)}, "
            f"{format_bytes(claim.group.bytes)} → {format_bytes(size)} ({done.way})",
        )

    def _fail(
        self, claim: Claim, held: _Held, error: Exception, table: Table | None, directory: str
    ) -> None:
        # First what was written: a full disk must not stay full while the others try.
        self._remove(table, directory)
        text = str(error) if isinstance(error, ArcticError) else f"{type(error).__name__}: {error}"
        text = _first_lines(text)
        try:
            if held.lost.is_set():
                self._say(What.LOST, claim, "its lease was not renewed in time")
            elif self._giving_back.is_set():
                self._insist(held, lambda tx: attempts.release(tx, claim.attempt_id, claim.token))
                self._say(What.RELEASED, claim, f"{claim.task.table}: given back")
            else:
                if not isinstance(error, ArcticError):
                    _log.warning("task %s failed", claim.task.id, exc_info=error)
                final = isinstance(error, UnsupportedTable | NotFound)
                state: list[TaskState] = []
                self._insist(
                    held,
                    lambda tx: state.append(
                        attempts.failed(tx, claim.attempt_id, claim.token, text, final=final)
                    ),
                )
                self._say(What.FAILED, claim, f"{claim.task.table}: {state[-1]}: {text}")
        except Refused as refused:
            self._say(What.LOST, claim, str(refused))

    def _insist(self, held: _Held, report: Callable[[Any], None]) -> None:
        """Reports, for as long as the lease may hold and the database does not answer.

        Errors:
            Refused: the attempt has lost the task, or it could not be said in time.
        """
        while True:
            try:
                with self._database.begin() as tx:
                    report(tx)
                return
            except DatabaseUnavailable as error:
                if held.lost.is_set() or time.monotonic() > held.trusted_until:
                    raise Refused(f"it could not be said in time: {error}") from error
                _log.warning("said again in a moment: %s", error)
                held.lost.wait(min(1.0, self._poll))

    def _renew_all(self, ended: threading.Event) -> None:
        every = self._life.total_seconds() / 3
        while not ended.wait(every):
            with self._lock:
                held = list(self._held.values())
            try:
                self._renew(held)
                self._seen()
            except DatabaseUnavailable as error:
                _log.warning("leases are not renewed: %s", error)
            now = time.monotonic()
            for one in held:
                if now > one.trusted_until:
                    one.lost.set()

    def _renew(self, held: Iterable[_Held]) -> None:
        for one in held:
            asked = time.monotonic()
            with self._database.begin() as tx:
                renewed = attempts.renew(tx, one.claim.attempt_id, one.claim.token, life=self._life)
            if renewed:
                one.trusted_until = asked + self._life.total_seconds()
            else:
                one.lost.set()

    def _seen(self) -> None:
        with self._database.begin() as tx:
            workers.worker_seen(
                tx,
                self.id,
                name=self.name,
                queues=self._queues,
                parallelism=self._parallelism,
                host=platform.node(),
                pid=os.getpid(),
            )

    def _forgotten(self) -> None:
        try:
            with self._database.begin() as tx:
                workers.forget_worker(tx, self.id)
        except DatabaseUnavailable as error:
            _log.warning("the worker's row stays until it is too old: %s", error)

    def _remove(self, table: Table | None, directory: str) -> None:
        if table is None or not directory:
            return
        try:
            remove_outputs(table, directory)
        except Exception as error:
            # The cleaner comes by later.
            _log.warning("%s could not be removed: %s", directory, error)

    def _say(self, what: What, claim: Claim, text: str) -> None:
        with self._lock:
            self._done.counts[what] += 1
        if self._tell is not None:
            self._tell(WorkerEvent(what=what, claim=claim, text=text))


@contextmanager
def working_in_background(worker: Worker) -> Iterator[Worker]:
    """Lets a worker run beside the block, and drains it at its end."""
    thread = threading.Thread(target=worker.run, name="worker")
    thread.start()
    try:
        yield worker
    finally:
        worker.drain()
        thread.join()


#: Spark's errors have the whole stack of the JVM; the first lines say what is wrong.
_LINES, _LETTERS = 4, 1_000


def _first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:_LINES])[:_LETTERS] or "no reason was given"
