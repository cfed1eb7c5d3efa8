"""A worker: claims tasks, merges their files, and reports, until it is stopped.

It gets tasks from a *source*: the state database, or a server over HTTP. It merges several at once,
each in a thread; one more thread renews all leases, at a third of their life and at least every 20
seconds. A lease that is not renewed in time is lost: the worker sends no further report for it, as
another worker may have claimed the task.

It ends in one of two ways. *Draining*, it claims nothing more and finishes its tasks; *giving
back*, it releases its tasks, and other workers can claim them at once.

A person may order it to be *quiet*, which lets it claim nothing until it is to run again, or to
stop, which makes it give back its tasks and end.

A faulty worker must not take tasks from healthy ones: after consecutive failed attempts, it waits
longer and longer before the next claim; when its engine for merging is gone, it ends with an error.
A merge that exceeds its queue's time limit cannot be ended from outside: its task is lost, and
another thread replaces it.
"""

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.compaction.work.attempt_runner import (
    AttemptResult,
    Blame,
    Merge,
    What,
    attempt,
)
from arctic_orchestration.compaction.work.claim import LEASE
from arctic_orchestration.compaction.work.task_source import (
    ClaimedTask,
    MergedFiles,
    TaskSource,
    Work,
)
from arctic_orchestration.compaction.work.workers import Order, WorkerInfo
from arctic_orchestration.errors import DatabaseUnavailable, WorkerBroken
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.leases import RENEWALS

__all__ = ["Merge", "MergedFiles", "What", "WorkDone", "Worker", "WorkerEvent"]

_log = logging.getLogger("arctic.compaction.worker")

#: how long an idle worker waits until it polls again
POLL = timedelta(seconds=2)
#: the maximum wait after failed attempts
_LONGEST_PAUSE_SECONDS = 60.0
#: After this many merges over their time limit, the worker is considered useless.
_MOST_HANGING = 8


@dataclass(frozen=True, kw_only=True)
class WorkerEvent:
    """An action of a worker, for people."""

    what: What
    claim: Work
    text: str


@dataclass(kw_only=True)
class WorkDone:
    """How many tasks a worker merged, and the results of the others."""

    counts: dict[What, int] = field(default_factory=lambda: dict.fromkeys(What, 0))

    def of(self, what: What) -> int:
        """Returns how often an event happened."""
        return self.counts[what]


class Worker:
    """Works on the tasks of some queues; see the module's text.

    Args:
        source: gives tasks, and takes reports.
        merge: merges files.
        queues: names of compaction queues; empty: all.
        parallelism: how many tasks are merged at once.
        name: its name, for people; none: host and process.
        poll: the wait between two polls of an empty queue.
        cancel: cancels merges in progress, when tasks are released; called until they end.
        on_event: receives all events, from several threads.
    """

    def __init__(
        self,
        source: TaskSource,
        merge: Merge,
        *,
        queues: Sequence[str] = (),
        parallelism: int = 1,
        name: str | None = None,
        poll: timedelta = POLL,
        cancel: Callable[[], None] | None = None,
        on_event: Callable[[WorkerEvent], None] | None = None,
    ) -> None:
        self._source = source
        self._merge = merge
        self._queues = tuple(queues)
        self._parallelism = parallelism
        self.id = new_id(utc_now())
        self.name = name or f"{platform.node()}:{os.getpid()}"
        self._poll = poll.total_seconds()
        self._cancel = cancel
        self._on_event = on_event
        self._held: dict[str, ClaimedTask] = {}
        self._until_idle: timedelta | None = None
        self._threads: list[threading.Thread] = []
        #: the threads of attempts, by their ids, and those over their time limit
        self._merging: dict[str, threading.Thread] = {}
        self._hanging: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._draining = threading.Event()
        self._giving_back = threading.Event()
        self._done = WorkDone()
        #: the number of consecutive failed attempts
        self._failures_in_a_row = 0
        self._broken: str | None = None

    def drain(self) -> None:
        """Makes it claim nothing more, and end when its tasks are finished. Returns at once."""
        self._draining.set()
        self._source.interrupt()

    def give_back(self) -> None:
        """Makes it end without finishing its tasks. Returns at once."""
        self._giving_back.set()
        self.drain()
        if self._cancel is not None:
            self._cancel()

    def _cancel_again(self) -> None:
        """Cancels merges that began after the release was requested."""
        if self._cancel is None or not self._giving_back.is_set():
            return
        try:
            self._cancel()
        except Exception as error:
            # It was called once; the engine for merging may be gone by now.
            _log.debug("merges are not canceled again: %s", error)

    def run(self, until_idle: timedelta | None = None) -> WorkDone:
        """Works until it is stopped.

        Args:
            until_idle: it ends by itself after this time without work.

        Errors:
            DatabaseUnavailable: the state database did not answer at the start; later, it waits for
                it.
            WorkerBroken: its engine for merging is gone; its tasks were released.
            ConfigurationError: the state database is bound to another catalog.
        """
        self._source.start(
            WorkerInfo(
                id=self.id,
                name=self.name,
                queues=self._queues,
                parallelism=self._parallelism,
                host=platform.node(),
                pid=os.getpid(),
            )
        )
        renewing = threading.Event()
        renewer = threading.Thread(target=self._renew_all, args=(renewing,), name="renew")
        renewer.start()
        self._until_idle = until_idle
        for _ in range(self._parallelism):
            self._start_thread()
        try:
            # In short intervals, so that a signal is handled meanwhile.
            while thread := self._at_work():
                thread.join(0.2)
                self._cancel_again()
        finally:
            self._draining.set()
            while thread := self._at_work():
                thread.join(0.2)
            renewing.set()
            renewer.join()
            self._end()
        if self._broken is not None:
            raise WorkerBroken(f"worker {self.name} cannot go on: {self._broken}")
        return self._done

    def _start_thread(self) -> None:
        # A daemon: one with a hanging merge must not keep the process from ending.
        name = f"merge-{len(self._threads)}"
        thread = threading.Thread(
            target=self._work, args=(self._until_idle,), name=name, daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _at_work(self) -> threading.Thread | None:
        """Returns a thread that has not ended, and whose merge does not hang."""
        with self._lock:
            threads = (one for one in self._threads if one not in self._hanging)
            return next((one for one in threads if one.is_alive()), None)

    def _replace(self, held: ClaimedTask) -> None:
        """Starts a thread in place of one whose merge exceeds its time limit."""
        id = held.claim.attempt_id
        if self._source.state(held.claim) is not AttemptState.LOST:
            # It has just reported.
            return
        # At once: a worker none of whose threads is at work ends, and the merge may end now.
        with self._lock:
            thread = self._merging.get(id)
            if thread is None or held.replaced:
                return
            held.replaced = True
            if len(self._hanging) >= _MOST_HANGING:
                self._broken = f"{_MOST_HANGING + 1} merges took longer than they may"
                self._draining.set()
            elif not self._draining.is_set():
                self._start_thread()
            self._hanging.add(thread)
        _log.warning("task %s is lost: its merge takes longer than it may", held.claim.task.id)

    def _work(self, until_idle: timedelta | None) -> None:
        idle_since = time.monotonic()
        while not self._draining.is_set():
            pause = self._poll
            try:
                left = None
                if until_idle is not None:
                    spent = timedelta(seconds=time.monotonic() - idle_since)
                    left = max(until_idle - spent, timedelta())
                claimed = self._source.claim(left)
                if claimed is not None:
                    self._attempt(claimed)
                    if claimed.replaced:
                        return
                    idle_since = time.monotonic()
                    continue
                self._obey(self._source.order())
            except DatabaseUnavailable as error:
                if not self._draining.is_set():
                    _log.warning("nothing is claimed: %s", error)
                pause = POLL.total_seconds()
            except Exception:
                # No error may end the thread: that would go unnoticed.
                _log.exception("the worker goes on")
                pause = POLL.total_seconds()
            idle = time.monotonic() - idle_since
            if until_idle is not None and idle >= until_idle.total_seconds():
                return
            self._draining.wait(pause)

    def _obey(self, order: Order) -> None:
        if order is Order.STOP and not self._giving_back.is_set():
            _log.warning("the worker stops: it was ordered to")
            self.give_back()

    def _attempt(self, held: ClaimedTask) -> None:
        claim = held.claim
        with self._lock:
            self._held[claim.attempt_id] = held
            self._merging[claim.attempt_id] = threading.current_thread()
        try:
            self._report(What.CLAIMED, claim, f"{claim.task.table}: {claim.task.gain}")
            outcome = attempt(held, self._source, self._merge, self._giving_back.is_set)
        finally:
            with self._lock:
                del self._held[claim.attempt_id], self._merging[claim.attempt_id]
                self._hanging.discard(threading.current_thread())
        self._report(outcome.what, claim, outcome.text)
        self._heed(outcome)

    def _heed(self, outcome: AttemptResult) -> None:
        """Waits after a failed attempt, twice as long after each consecutive one."""
        if outcome.blame is Blame.WORKER:
            self._broken = outcome.text
            self._draining.set()
            return
        if outcome.blame is None:
            self._failures_in_a_row = 0
            return
        self._failures_in_a_row += 1
        # One failure is the task's; from the second on it may be the worker's.
        doublings = min(self._failures_in_a_row - 2, 10)
        if doublings >= 0:
            self._draining.wait(min(self._poll * 2**doublings, _LONGEST_PAUSE_SECONDS))

    def _renew_all(self, ended: threading.Event) -> None:
        # However long a lease is, the worker is seen, and learns its orders.
        every = min(self._source.life, LEASE).total_seconds() / RENEWALS
        while not ended.wait(every):
            with self._lock:
                held = list(self._held.values())
            try:
                self._renew(held)
            except DatabaseUnavailable as error:
                _log.warning("leases are not renewed: %s", error)
            except Exception:
                _log.exception("leases are not renewed")
            now = time.monotonic()
            for one in held:
                if now > one.trusted_until:
                    one.lost.set()

    def _renew(self, held: Sequence[ClaimedTask]) -> None:
        requested_at = time.monotonic()
        beat = self._source.beat(held)
        for one in held:
            if one.claim.attempt_id in beat.renewed:
                one.trusted_until = requested_at + self._source.life.total_seconds()
                continue
            one.lost.set()
            if time.monotonic() < one.trusted_until and not one.replaced:
                # Not silent, but expired: it exceeded its queue's time limit.
                self._replace(one)
        self._obey(beat.order)

    def _end(self) -> None:
        try:
            self._source.end()
        except DatabaseUnavailable as error:
            _log.warning("the worker's row stays until it is too old: %s", error)

    def _report(self, what: What, claim: Work, text: str) -> None:
        with self._lock:
            self._done.counts[what] += 1
        if self._on_event is None:
            return
        try:
            self._on_event(WorkerEvent(what=what, claim=claim, text=text))
        except (Exception, SystemExit):
            # The listener may be gone, such as the reader of a pipe; the work is not.
            _log.exception("an event could not be reported: %s", text)
