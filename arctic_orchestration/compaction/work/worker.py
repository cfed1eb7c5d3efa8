"""A worker: claims tasks, merges their files, reports, until it is told to end.

Several tasks are worked on at once, each in a thread; one more thread renews the leases of all of
them, at a third of their life. What the database does not renew in time is lost: the worker
reports nothing more of it, as another worker may have the task.

It ends in one of two ways. *Draining*, it claims nothing more and finishes what it has; *giving
back*, it drops what it has and says so, and the tasks can be claimed by others at once.

A worker with which something is wrong must not take the tasks from those that could do them:
when its attempts come to nothing, one after the other, it waits longer and longer before it claims
again; when what it merges with is gone, it ends with an error. A merge that takes longer than its
queue allows cannot be ended from outside: its task is lost, and another thread works in its place.
"""

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import catalog_binding
from arctic_orchestration.compaction.work import attempts, workers
from arctic_orchestration.compaction.work.attempt import AttemptState, Claim
from arctic_orchestration.compaction.work.attempt_runner import (
    AttemptResult,
    Blame,
    ClaimedTask,
    Merge,
    MergedFiles,
    What,
    attempt,
)
from arctic_orchestration.compaction.work.attempts import LEASE
from arctic_orchestration.errors import DatabaseUnavailable, WorkerBroken
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.leases import RENEWALS
from arctic_orchestration.state.database import Database

__all__ = ["Merge", "MergedFiles", "What", "WorkDone", "Worker", "WorkerEvent"]

_log = logging.getLogger("arctic.compaction.worker")

#: how long a worker that found nothing waits until it looks again
POLL = timedelta(seconds=2)
#: how long it waits at most after attempts that came to nothing
_LONGEST_PAUSE_SECONDS = 60.0
#: So many merges that take longer than they may, and the worker is no use any more.
_MOST_HANGING = 8


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
        cancel: ends merges that are under way, when tasks are given back; called until they have.
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
        self._held: dict[str, ClaimedTask] = {}
        self._until_idle: timedelta | None = None
        self._threads: list[threading.Thread] = []
        #: the threads of attempts, by their ids, and those whose merge takes longer than it may
        self._merging: dict[str, threading.Thread] = {}
        self._hanging: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._draining = threading.Event()
        self._giving_back = threading.Event()
        self._done = WorkDone()
        #: attempts that came to nothing since the last one that did not
        self._in_vain = 0
        self._broken: str | None = None

    def drain(self) -> None:
        """Lets it claim nothing more, and end when what it has is finished. Returns at once."""
        self._draining.set()

    def give_back(self) -> None:
        """Lets it end without finishing what it has. Returns at once."""
        self._draining.set()
        self._giving_back.set()
        if self._cancel is not None:
            self._cancel()

    def _cancel_again(self) -> None:
        """Ends merges that had not begun when the worker was told to give back."""
        if self._cancel is None or not self._giving_back.is_set():
            return
        try:
            self._cancel()
        except Exception as error:
            # It was told once; what it merges with may be gone by now.
            _log.debug("merges are not canceled again: %s", error)

    def run(self, until_idle: timedelta | None = None) -> WorkDone:
        """Works until it is told to end.

        Args:
            until_idle: it ends by itself when it found nothing to do for that long.

        Errors:
            DatabaseUnavailable: the state database did not answer when it began; later, it waits
                for it.
            WorkerBroken: what it merges with is gone; its tasks were given back.
            ConfigurationError: the state database is of another catalog.
        """
        catalog_binding.require_same(self._database, self._catalog)
        self._seen()
        renewing = threading.Event()
        renewer = threading.Thread(target=self._renew_all, args=(renewing,), name="renew")
        renewer.start()
        self._until_idle = until_idle
        for _ in range(self._parallelism):
            self._start_thread()
        try:
            # In short pieces, so that a signal is heard meanwhile.
            while thread := self._at_work():
                thread.join(0.2)
                self._cancel_again()
        finally:
            self._draining.set()
            while thread := self._at_work():
                thread.join(0.2)
            renewing.set()
            renewer.join()
            self._forgotten()
        if self._broken is not None:
            raise WorkerBroken(f"worker {self.name} cannot go on: {self._broken}")
        return self._done

    def _start_thread(self) -> None:
        # A daemon: one whose merge hangs must not keep the process from ending.
        name = f"merge-{len(self._threads)}"
        thread = threading.Thread(
            target=self._work, args=(self._until_idle,), name=name, daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _at_work(self) -> threading.Thread | None:
        """A thread that has not ended, and whose merge does not hang."""
        with self._lock:
            threads = [one for one in self._threads if one not in self._hanging]
        return next((one for one in threads if one.is_alive()), None)

    def _replace(self, held: ClaimedTask) -> None:
        """Lets another thread work in place of one whose merge takes longer than it may."""
        id = held.claim.attempt_id
        with self._database.read() as tx:
            tried = attempts.attempts_of(tx, held.claim.task.id)
        if not any(one.id == id and one.state is AttemptState.LOST for one in tried):
            # It has just reported.
            return
        with self._lock:
            thread = self._merging.get(id)
            if thread is None or held.replaced:
                return
            held.replaced = True
            self._hanging.add(thread)
            too_many = len(self._hanging) > _MOST_HANGING
        _log.warning("task %s is lost: its merge takes longer than it may", held.claim.task.id)
        if too_many:
            self._broken = f"{len(self._hanging)} merges took longer than they may"
            self._draining.set()
        elif not self._draining.is_set():
            self._start_thread()

    def _work(self, until_idle: timedelta | None) -> None:
        idle_since = time.monotonic()
        while not self._draining.is_set():
            try:
                claimed = self._claim()
                if claimed is not None:
                    self._attempt(claimed)
                    if claimed.replaced:
                        return
                    idle_since = time.monotonic()
                    continue
            except Exception:
                # Whatever it is, it must not end the thread: nobody would know.
                _log.exception("the worker goes on")
            idle = time.monotonic() - idle_since
            if until_idle is not None and idle >= until_idle.total_seconds():
                return
            self._draining.wait(self._poll)

    def _claim(self) -> ClaimedTask | None:
        asked = time.monotonic()
        try:
            with self._database.begin() as tx:
                claim = attempts.claim(
                    tx, self._queues, self.name, table=self._table, life=self._life
                )
        except DatabaseUnavailable as error:
            _log.warning("nothing is claimed: %s", error)
            return None
        if claim is None:
            return None
        return ClaimedTask(claim=claim, trusted_until=asked + self._life.total_seconds())

    def _attempt(self, held: ClaimedTask) -> None:
        claim = held.claim
        with self._lock:
            self._held[claim.attempt_id] = held
            self._merging[claim.attempt_id] = threading.current_thread()
        try:
            self._say(What.CLAIMED, claim, f"{claim.task.table}: {claim.task.gain}")
            outcome = attempt(
                held, self._database, self._catalog, self._merge, self._giving_back.is_set
            )
        finally:
            with self._lock:
                del self._held[claim.attempt_id], self._merging[claim.attempt_id]
                self._hanging.discard(threading.current_thread())
        self._say(outcome.what, claim, outcome.text)
        self._heed(outcome)

    def _heed(self, outcome: AttemptResult) -> None:
        """Waits after an attempt that came to nothing, twice as long each time in a row."""
        if outcome.blame is Blame.WORKER:
            self._broken = outcome.text
            self._draining.set()
            return
        if outcome.blame is None:
            self._in_vain = 0
            return
        self._in_vain += 1
        # One failure is the task's; from the second on it may be the worker's.
        doublings = min(self._in_vain - 2, 10)
        if doublings >= 0:
            self._draining.wait(min(self._poll * 2**doublings, _LONGEST_PAUSE_SECONDS))

    def _renew_all(self, ended: threading.Event) -> None:
        every = self._life.total_seconds() / RENEWALS
        while not ended.wait(every):
            with self._lock:
                held = list(self._held.values())
            try:
                self._renew(held)
                self._seen()
                with self._database.begin() as tx:
                    attempts.expire(tx)
            except DatabaseUnavailable as error:
                _log.warning("leases are not renewed: %s", error)
            except Exception:
                _log.exception("leases are not renewed")
            now = time.monotonic()
            for one in held:
                if now > one.trusted_until:
                    one.lost.set()

    def _renew(self, held: Iterable[ClaimedTask]) -> None:
        for one in held:
            asked = time.monotonic()
            with self._database.begin() as tx:
                renewed = attempts.renew(tx, one.claim.attempt_id, one.claim.token, life=self._life)
            if renewed:
                one.trusted_until = asked + self._life.total_seconds()
            else:
                one.lost.set()
                if time.monotonic() < one.trusted_until and not one.replaced:
                    # Not silent, but taken away: it took longer than its queue allows.
                    self._replace(one)

    def _seen(self) -> None:
        with self._database.begin() as tx:
            workers.record_heartbeat(
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

    def _say(self, what: What, claim: Claim, text: str) -> None:
        with self._lock:
            self._done.counts[what] += 1
        if self._tell is None:
            return
        try:
            self._tell(WorkerEvent(what=what, claim=claim, text=text))
        except (Exception, SystemExit):
            # Who listens may be gone, such as the reader of a pipe; the work is not.
            _log.exception("an event could not be told: %s", text)
