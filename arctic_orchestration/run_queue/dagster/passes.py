"""The passes of Dagster's daemon over its run queue, under rules.

A pass never fails: Dagster's daemon would then start nothing at all, including untagged runs.
After an error it uses the last known state:

* the state database does not answer: the last known pauses apply, and a window that was closed
  stays closed, even if its time has come;
* it has not answered since the daemon started: pauses are unknown, so no run under a rule starts;
* any other error: the limits of the last good pass apply, intervals start nothing, and rates
  start only runs whose turn was granted before.

The daemon logs the beginning and the end of an error, and ``arctic doctor`` reports it.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import DagsterInstance, DagsterRunStatus

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.runs import RunView
from arctic_orchestration.run_queue import hold_limits, levels, pauses, waits
from arctic_orchestration.run_queue.census import (
    ActiveRun,
    Census,
    Ledger,
    QueuedRun,
    active_run,
    queued_run,
)
from arctic_orchestration.run_queue.dagster.open_queue import time_of_queueing
from arctic_orchestration.run_queue.dagster.pass_errors import Trouble
from arctic_orchestration.run_queue.dagster.queued_runs import Present, QueuedRuns, kept
from arctic_orchestration.run_queue.gates import Gates
from arctic_orchestration.run_queue.history import History, lookback_of
from arctic_orchestration.run_queue.limits import Limit, merged
from arctic_orchestration.run_queue.pauses import Paused
from arctic_orchestration.run_queue.plan import Plan, Planner, Wait
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import WAIT, Turn, shortened
from arctic_orchestration.run_queue.windows import OpenWindows
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

_log = logging.getLogger("dagster.run_coordinator.arctic")
_AS_IT_WAS = "Closed windows stay closed, pauses are as they were read last"
_UNKNOWN = "Nothing starts that is under a rule"
#: The time limit of a pass for reporting wait reasons; the next pass reports the rest.
_REPORTING_SECONDS = 0.5
#: The same for writing requested levels: nothing starts meanwhile.
_LEVELS_SECONDS = 2.0
#: an older plan is computed again before it is used
_STALE_SECONDS = 0.1
#: how often a pass without changes is recorded
_NOTED_EVERY = timedelta(seconds=30)
#: how long a program counts as held by Dagster before it is tried again
_HELD_LAST = timedelta(minutes=1)
#: how long gates are kept, including those without runs
_GATES_LAST = timedelta(minutes=5)
#: A pass must not wait for another writer of the state database as long as a command may.
_BUSY_SECONDS = 5


class DaemonPasses:
    """Computes the limits of each pass, and does its other work."""

    def __init__(
        self,
        instance: DagsterInstance,
        rules: Rules,
        *,
        stock: Sequence[Limit],
        max_concurrent_runs: int,
    ) -> None:
        self._instance = instance
        self._rules = rules
        self._stock = stock
        self._planner = Planner(max_concurrent_runs)
        self._windows = OpenWindows()
        self._look_back = lookback_of(rules)
        self._history = History(rules)
        self._present: Present | None = None
        keys = frozenset(limit["key"] for limit in stock)
        self._heeded = keys
        self._runs: QueuedRuns | None = None
        self._database: Database | None = None
        self._cluster = ""
        self._paused: Paused | None = None
        self._queued: dict[str, tuple[RunView, QueuedRun]] = {}
        self._active: dict[str, tuple[RunView, ActiveRun]] = {}
        self._level_requests: list[levels.LevelRequest] = []
        self._reported: dict[str, str] | None = None
        self._knows_reported = False
        #: reported reasons, and runs that left the queue, until they are stored
        self._news: dict[str, Wait] = {}
        self._gone: set[str] = set()
        #: runs whose last report failed: Dagster has none of it, or another one
        self._unreported: set[str] = set()
        #: runs that are reported again when one limit takes the place of another
        self._renewable: set[str] = set()
        self._gates: Gates | None = None
        self._gates_until = datetime.min.replace(tzinfo=UTC)
        #: the runs that the last plan let start, and those of the plan before
        self._starts: frozenset[str] = frozenset()
        self._starts_before: frozenset[str] = frozenset()
        #: the queue of the last pass
        self._looked_at: Sequence[QueuedRun] = ()
        self._waiting: Sequence[QueuedRun] = ()
        self._in_progress: Sequence[ActiveRun] = ()
        #: the programs that Dagster seems to hold, and when that assumption ends
        self._held: dict[str, datetime] = {}
        self._last: list[dict[str, Any]] | None = None
        self._problem: str | None = None
        self._noted: tuple[datetime, str | None] | None = None

    def limits(self, now: datetime) -> list[dict[str, Any]]:
        """Goes through the queue once; returns the limits for the daemon."""
        trouble = Trouble()
        try:
            self._read_state()
        except Exception as error:
            trouble.add(error, _UNKNOWN if self._paused is None else _AS_IT_WAS)
            self._close_database()
            self._windows.hold(hold_limits.closed_windows(self._rules, self._windows, now))
        else:
            self._windows.release()
        try:
            limits = self._limits(now, trouble)
        except Exception as error:
            trouble.add(error, "The limits of the last good pass hold")
            limits = hold_limits.hold_limits(
                self._last, self._rules, self._stock, self._windows, now
            )
        self._note(now, trouble)
        self._log_trouble(trouble)
        return limits

    def _limits(self, now: datetime, trouble: Trouble) -> list[dict[str, Any]]:
        if self._paused is None:
            self._report_trouble(now, trouble)
            return hold_limits.hold_limits(None, self._rules, self._stock, self._windows, now)
        self._write_levels(trouble)
        made = self._plan(now, self._paused)
        began = time.monotonic()
        self._report_waits(made.waits, trouble)
        if time.monotonic() > began + _STALE_SECONDS:
            # Runs ended meanwhile; Dagster's daemon counts active runs only after it has the
            # limits.
            made = self._plan(now, self._paused, repeated=True)
        try:
            self._store_reported(now)
        except Exception as error:
            # The starts do not depend on it.
            trouble.add(error, "The reported waits could not be stored")
        limits, starts = self._give_turns(made, trouble)
        self._starts_before, self._starts = self._starts, starts
        self._last = limits
        return limits

    def _write_levels(self, trouble: Trouble) -> None:
        """Writes the requested levels into the tags of runs."""
        requests, self._level_requests = self._level_requests, []
        give_up_at = time.monotonic() + _LEVELS_SECONDS
        for number, request in enumerate(requests):
            if number and time.monotonic() > give_up_at:
                # The next pass reads the rest again.
                break
            try:
                self._write_level(request)
            except Exception as error:
                trouble.add(error, f"The level of run {request.run_id} could not be written")

    def _write_level(self, request: levels.LevelRequest) -> None:
        record = self._instance.get_run_record_by_id(request.run_id)
        if record is not None and record.dagster_run.status == DagsterRunStatus.QUEUED:
            at = time_of_queueing(self._instance, record)
            tags = levels.tags_of(request.level, record.dagster_run.tags, at, self._rules)
            self._instance.add_run_tags(request.run_id, tags)
        if self._database is not None:
            with self._database.begin() as tx:
                levels.written(tx, self._cluster, request)

    def _plan(self, now: datetime, paused: Paused, *, repeated: bool = False) -> Plan:
        census = self._census(now)
        if not repeated:
            self._find_held(census.queued, now)
        # After the clock was set back, the moment is too far ahead.
        if self._gates is None or not now < self._gates_until <= now + _GATES_LAST:
            # Rebuilt from time to time: some gates were made for runs that ended long ago.
            self._gates = Gates(
                rules=self._rules,
                census=census,
                paused=paused,
                windows=self._windows,
                now=now,
                stock=self._stock,
            )
            self._gates_until = now + _GATES_LAST
            for run_id in self._unreported:
                (self._reported or {}).pop(run_id, None)
            self._unreported, self._renewable = set(), set(self._reported or ())
        else:
            self._gates.update(census, paused, now)
        held = self._held
        passed_over = [run.run_id for run in census.queued if run.program in held] if held else ()
        return self._planner.plan(self._gates, passed_over)

    def _find_held(self, queued: Sequence[QueuedRun], now: datetime) -> None:
        """Finds the programs that Dagster holds, by its pools or for their code location.

        Dagster holds a program if two plans let a run of it start, and Dagster did not start it
        (once may be chance: another run took the slot). It counts as held until one of its runs
        leaves the queue, or for some time: a thousand runs that wait for one pool must neither be
        tried one after the other, nor be ignored when the pool has room.
        """
        gone: set[str] = set()
        if queued is not self._looked_at:
            before, self._looked_at = self._looked_at, queued
            gone = {run.program for run in before if run.run_id not in self._queued}
        for run_id in self._starts & self._starts_before & self._queued.keys():
            self._held.setdefault(self._queued[run_id][1].program, now + _HELD_LAST)
        self._held = {
            program: until
            for program, until in self._held.items()
            if program not in gone and now < until <= now + _HELD_LAST
        }

    def _census(self, now: datetime) -> Census:
        if self._runs is None:
            self._runs = QueuedRuns(self._instance)
        present = self._runs.present()
        if present is not self._present:
            self._queued = kept(self._queued, present.queued, self._seen_in_queue)
            self._active = kept(self._active, present.active, self._seen_active)
            self._present = present
            self._waiting = [run for _, run in self._queued.values()]
            self._in_progress = [run for _, run in self._active.values()]
        ledger = Ledger()
        if self._look_back is not None:
            # Read after the active runs: a run that ends in between is seen twice instead of never.
            self._history.add(self._runs.ended_since(now - self._look_back, now))
            ledger = self._history.ledger(self._in_progress, now)
        return Census(queued=self._waiting, active=self._in_progress, ledger=ledger)

    def _seen_in_queue(self, run: RunView) -> QueuedRun:
        return queued_run(run, self._heeded)

    def _seen_active(self, run: RunView) -> ActiveRun:
        before = self._active.get(run.run_id)
        if before is not None and before[0].tags == run.tags:
            # It changed state; its rules are the same.
            return replace(before[1], started_at=run.started_at)
        return active_run(run, self._rules)

    def _give_turns(
        self, made: Plan, trouble: Trouble
    ) -> tuple[list[dict[str, Any]], frozenset[str]]:
        """Writes the tags of rates; returns the limits and the runs that can start."""
        taken_back = {
            id: tags for id, tags in made.turns.items() if Turn.GRANTED not in tags.values()
        }
        given = {id: tags for id, tags in made.turns.items() if id not in taken_back}
        refused: dict[str, dict[str, Any]] = {}
        starts = set(made.starts)
        # Revokes turns first: there must never be too many.
        for run_id, tags in (*taken_back.items(), *given.items()):
            try:
                if not refused.keys().isdisjoint(tags):
                    starts.discard(run_id)
                    continue
                self._instance.add_run_tags(run_id, tags)
            except Exception as error:
                trouble.add(error, f"The turn of run {run_id} could not be written")
                refused.update((key, {"key": key, "limit": 0}) for key in tags)
                starts.discard(run_id)
        limits = [*made.limits]
        return merged([*limits, *refused.values()]) if refused else limits, frozenset(starts)

    def _report_waits(self, current: Mapping[str, Wait], trouble: Trouble) -> None:
        """Writes an event and a tag for each queued run whose reason has changed."""
        if self._reported is None:
            return
        give_up_at = time.monotonic() + _REPORTING_SECONDS
        known = self._reported
        # As runs start and end, all that wait behind them alternate between limits and slots.
        changed = [
            id
            for id, wait in current.items()
            if known.get(id) != wait.gate
            and (id in self._renewable or not waits.alternate(known.get(id), wait.gate))
        ]
        for number, run_id in enumerate(changed):
            if number and time.monotonic() > give_up_at:
                break
            wait = current[run_id]
            # Also recorded after a failure: it must not be retried in every pass.
            self._reported[run_id] = wait.gate
            self._news[run_id] = wait
            self._renewable.discard(run_id)
            try:
                self._instance.report_engine_event(
                    f"Waits in the queue: {wait.reason}",
                    job_name=self._queued[run_id][1].job,
                    run_id=run_id,
                )
                self._instance.add_run_tags(run_id, {WAIT: shortened(wait.reason)})
            except Exception as error:
                self._unreported.add(run_id)
                trouble.add(error, f"The wait of run {run_id} could not be reported")
        for run_id in [run_id for run_id in self._reported if run_id not in self._queued]:
            del self._reported[run_id]
            self._news.pop(run_id, None)
            self._gone.add(run_id)

    def _report_trouble(self, now: datetime, trouble: Trouble) -> None:
        """Reports to the runs under rules that pauses are unknown."""
        census = self._census(now)
        limits = hold_limits.hold_limits(None, self._rules, (), self._windows, now)
        held = {limit["key"] for limit in limits}
        wait = Wait(gate="trouble", reason=f"the state database, which does not answer: {_UNKNOWN}")
        self._reported = self._reported or {}
        under_rules = [run for run in census.queued if not held.isdisjoint(run.tags)]
        self._report_waits({run.run_id: wait for run in under_rules}, trouble)

    def _store_reported(self, now: datetime) -> None:
        """Stores reported reasons, including those that an earlier pass could not store."""
        if self._database is None or not (self._news or self._gone):
            return
        with self._database.begin() as tx:
            waits.forget(tx, self._cluster, self._gone)
            programs = {
                id: run.program for id, (_, run) in self._queued.items() if id in self._news
            }
            waits.note(tx, self._cluster, self._news, now, programs)
        self._news, self._gone = {}, set()

    def _read_state(self) -> None:
        if self._database is not None and not self._database.is_in_place():
            # A removed file stays readable while it is open.
            self._close_database()
        if self._database is None:
            settings = Settings.from_environment()
            self._cluster = settings.cluster
            if self._paused is not None and Database.is_missing(settings.database_url):
                # A new database would have no pauses.
                raise DatabaseUnavailable("The file of the state database is gone")
            self._database = Database.open(settings.database_url, busy_seconds=_BUSY_SECONDS)
        with self._database.read() as tx:
            self._paused = pauses.in_force(self._rules, pauses.manual_pauses(tx, self._cluster))
            self._level_requests = levels.pending_levels(tx, self._cluster)
            if not self._knows_reported:
                self._reported = {
                    **waits.reported_waits(tx, self._cluster),
                    **(self._reported or {}),
                }
                self._knows_reported = True

    def _log_trouble(self, trouble: Trouble) -> None:
        """Logs the beginning, change and end of an error, not each pass."""
        if trouble.text == self._problem:
            return
        if trouble.text is not None:
            _log.error("Trouble with the run queue: %s", trouble.text, exc_info=trouble.trace)
        else:
            _log.info("The run queue has recovered")
        self._problem = trouble.text

    def _note(self, now: datetime, trouble: Trouble) -> None:
        if self._database is None:
            return
        if self._noted is not None:
            noted_at, noted = self._noted
            if noted == trouble.text and noted_at <= now < noted_at + _NOTED_EVERY:
                return
        try:
            with self._database.begin() as tx:
                waits.note_pass(tx, self._cluster, now, trouble.text)
            self._noted = (now, trouble.text)
        except Exception as error:
            trouble.add(error, "The pass could not be recorded")

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None

    def close(self) -> None:
        """Closes all connections."""
        self._close_database()
        if self._runs is not None:
            self._runs.close()
