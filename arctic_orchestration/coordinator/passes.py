"""The passes of Dagster's daemon over its run queue, under rules.

A pass never fails: Dagster's daemon would then start nothing at all, untagged runs included.
On trouble it holds what it knows:

* the state database does not answer: pauses are as they were read last, and a window that was
  closed stays closed, though its time may have come;
* it never answered since the daemon started: nobody knows what is paused, so nothing starts that
  stands under a queue, group or window;
* anything else: the limits of the last pass that went well hold, and what depends on time (rates,
  intervals) starts nothing.

The trouble is in the daemon's log when it begins and when it ends, and ``arctic doctor`` says it.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from dagster import DagsterInstance, DagsterRunStatus

from arctic_orchestration.database.engine import Database
from arctic_orchestration.events.queued_runs import QueuedRuns
from arctic_orchestration.events.runs import RunView
from arctic_orchestration.run_queue import holding, levels, pauses, waits
from arctic_orchestration.run_queue.census import (
    ActiveRun,
    Census,
    Ledger,
    QueuedRun,
    active_run,
    ledger_of,
    look_back,
    queued_run,
)
from arctic_orchestration.run_queue.gates import Gates, Limit
from arctic_orchestration.run_queue.pauses import Paused
from arctic_orchestration.run_queue.plan import Plan, Wait, merged, plan
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import WAIT, Turn
from arctic_orchestration.run_queue.windows import OpenWindows
from arctic_orchestration.settings import Settings

_log = logging.getLogger("dagster.run_coordinator.arctic")
#: Telling runs why they wait may take so long of a pass; the others are told in the next one.
_TELLING_SECONDS = 0.5
#: how often a pass that found nothing new is noted
_NOTED_EVERY = timedelta(seconds=30)
#: A pass must not wait for another writer of the state database as long as a command may.
_BUSY_SECONDS = 5


class DaemonPasses:
    """Works out the limits of each pass, and does what else belongs to it."""

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
        self._max_concurrent_runs = max_concurrent_runs
        self._windows = OpenWindows()
        self._look_back = look_back(rules)
        keys = frozenset(limit["key"] for limit in stock)
        self._heeded = keys
        self._runs: QueuedRuns | None = None
        self._database: Database | None = None
        self._cluster = ""
        self._paused: Paused | None = None
        self._queued: dict[str, tuple[RunView, QueuedRun]] = {}
        self._active: dict[str, tuple[RunView, ActiveRun]] = {}
        self._wishes: list[levels.Wish] = []
        self._told: dict[str, str] | None = None
        #: what the last plan let start, and the one before
        self._starts: frozenset[str] = frozenset()
        self._starts_before: frozenset[str] = frozenset()
        self._passed_over: frozenset[str] = frozenset()
        self._last: list[dict[str, Any]] | None = None
        self._problem: str | None = None
        self._noted: tuple[datetime, str | None] | None = None

    def limits(self, now: datetime) -> list[dict[str, Any]]:
        """Goes through the queue once; returns the limits for the daemon."""
        problem = trace = None
        try:
            self._read_state()
        except Exception as error:
            problem = f"{error}. " + (
                "Closed windows stay closed, pauses are as they were read last"
                if self._paused is not None
                else "Nothing starts that is in a queue or group or under a window"
            )
            self._database = self._closed(self._database)
            self._windows.hold(holding.closed_windows(self._rules, self._windows, now))
        else:
            self._windows.release()
        try:
            limits = self._limits(now)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}. The limits of the last good pass hold"
            trace = error
            limits = holding.held(self._last, self._rules, self._stock, self._windows, now)
        self._say(problem, trace)
        self._note(now, problem)
        return limits

    def _limits(self, now: datetime) -> list[dict[str, Any]]:
        if self._paused is None:
            return holding.held(None, self._rules, self._stock, self._windows, now)
        self._write_levels()
        made = self._plan(now, self._paused)
        refused = self._give_turns(made)
        self._starts_before, self._starts = self._starts, frozenset(made.starts)
        self._last = merged([*made.limits, *refused])
        try:
            self._tell(made, now)
        except Exception:
            # What may start does not depend on it.
            _log.exception("runs could not be told why they wait")
        return self._last

    def _write_levels(self) -> None:
        """Gives runs the levels that people asked for."""
        wishes, self._wishes = self._wishes, []
        for wish in wishes:
            try:
                self._write_level(wish)
            except Exception:
                _log.exception("run %s: its level could not be written", wish.run_id)

    def _write_level(self, wish: levels.Wish) -> None:
        record = self._instance.get_run_record_by_id(wish.run_id)
        if record is not None and record.dagster_run.status == DagsterRunStatus.QUEUED:
            run, created_at = record.dagster_run, record.create_timestamp
            tags = levels.tags_of(wish.level, run.tags, created_at, self._rules)
            self._instance.add_run_tags(wish.run_id, tags)
        if self._database is not None:
            with self._database.begin() as tx:
                levels.written(tx, self._cluster, wish)

    def _plan(self, now: datetime, paused: Paused) -> Plan:
        census = self._census(now)
        queued = {run.run_id for run in census.queued}
        # Once may be chance: something else took the slot.
        self._passed_over = (self._passed_over | (self._starts & self._starts_before)) & queued
        gates = Gates(
            rules=self._rules,
            census=census,
            paused=paused,
            windows=self._windows,
            now=now,
            stock=self._stock,
        )
        return plan(
            gates, max_concurrent_runs=self._max_concurrent_runs, passed_over=self._passed_over
        )

    def _census(self, now: datetime) -> Census:
        if self._runs is None:
            self._runs = QueuedRuns(self._instance)
        present = self._runs.present()
        self._queued = _kept(self._queued, present.queued, self._seen_in_queue)
        self._active = _kept(self._active, present.active, self._seen_active)
        active = [run for _, run in self._active.values()]
        ledger = Ledger()
        if self._look_back is not None:
            # After what is in progress: a run that ends in between is seen twice, not never.
            ended = self._runs.ended_since(now - self._look_back, now)
            ledger = ledger_of(ended, active, self._rules, now)
        return Census(
            queued=[run for _, run in self._queued.values()], active=active, ledger=ledger
        )

    def _seen_in_queue(self, run: RunView) -> QueuedRun:
        return queued_run(run, self._heeded)

    def _seen_active(self, run: RunView) -> ActiveRun:
        return active_run(run, self._rules)

    def _give_turns(self, made: Plan) -> list[dict[str, Any]]:
        """Writes the tags of rates; returns limits that hold where that went wrong."""
        taken_back = {
            id: tags for id, tags in made.turns.items() if Turn.GRANTED not in tags.values()
        }
        given = {id: tags for id, tags in made.turns.items() if id not in taken_back}
        refused: dict[str, dict[str, Any]] = {}
        # First those that wait again: in between there must not be too many turns.
        for run_id, tags in (*taken_back.items(), *given.items()):
            if any(key in refused for key in tags):
                continue
            try:
                self._instance.add_run_tags(run_id, tags)
            except Exception:
                _log.exception("run %s: its turn could not be written", run_id)
                refused.update((key, {"key": key, "limit": 0}) for key in tags)
        return list(refused.values())

    def _tell(self, made: Plan, now: datetime) -> None:
        """Gives each run that waits one event when what holds it has changed, and a tag."""
        if self._told is None:
            return
        news: dict[str, Wait] = {}
        give_up_at = time.monotonic() + _TELLING_SECONDS
        for run_id, wait in made.waits.items():
            if self._told.get(run_id) == wait.gate:
                continue
            if news and time.monotonic() > give_up_at:
                break
            job = self._queued[run_id][1].job
            self._instance.report_engine_event(
                f"Waits in the queue: {wait.reason}", job_name=job, run_id=run_id
            )
            self._instance.add_run_tags(run_id, {WAIT: wait.reason})
            news[run_id] = wait
        gone = [run_id for run_id in self._told if run_id not in self._queued]
        if not news and not gone:
            return
        self._told.update((run_id, wait.gate) for run_id, wait in news.items())
        for run_id in gone:
            del self._told[run_id]
        if self._database is not None:
            with self._database.begin() as tx:
                waits.note(tx, self._cluster, news, now)
                waits.forget(tx, self._cluster, gone)

    def _read_state(self) -> None:
        if self._database is None:
            settings = Settings.from_environment()
            self._cluster = settings.cluster
            self._database = Database.open(settings.database_url, busy_seconds=_BUSY_SECONDS)
        with self._database.read() as tx:
            self._paused = pauses.in_force(self._rules, pauses.said(tx, self._cluster))
            self._wishes = levels.asked(tx, self._cluster)
            if self._told is None:
                self._told = waits.told_runs(tx, self._cluster)

    def _say(self, problem: str | None, trace: Exception | None) -> None:
        """Logs a trouble when it begins, changes and ends, not at each pass."""
        if problem == self._problem:
            return
        if problem is not None:
            _log.error("Trouble with the run queue: %s", problem, exc_info=trace)
        else:
            _log.info("The run queue is without trouble again")
        self._problem = problem

    def _note(self, now: datetime, problem: str | None) -> None:
        if self._database is None:
            return
        if self._noted is not None:
            noted_at, noted = self._noted
            if noted == problem and noted_at <= now < noted_at + _NOTED_EVERY:
                return
        try:
            with self._database.begin() as tx:
                waits.note_pass(tx, self._cluster, now, problem)
            self._noted = (now, problem)
        except Exception:
            _log.exception("the pass could not be noted")

    @staticmethod
    def _closed(database: Database | None) -> None:
        if database is not None:
            database.close()

    def close(self) -> None:
        """Closes all connections."""
        self._database = self._closed(self._database)
        if self._runs is not None:
            self._runs.close()


_Seen = TypeVar("_Seen")


def _kept(
    known: Mapping[str, tuple[RunView, _Seen]],
    runs: Sequence[RunView],
    look: Callable[[RunView], _Seen],
) -> dict[str, tuple[RunView, _Seen]]:
    """What was seen of runs; only at those that changed is looked again."""
    seen = {}
    for run in runs:
        before = known.get(run.run_id)
        seen[run.run_id] = before if before is not None and before[0] is run else (run, look(run))
    return seen
