"""Counters and histograms of the engine, for Prometheus.

A pure consumer: it gets the result of each tick, and its errors never stop a tick. Labels are
cluster, location, state, kind of constraint and cause, never a schedule: each of the thousands of
schedules would be a series of its own.

======================================  =====================================================
``arctic_events_read_total``            events read from Dagster's event log
``arctic_events_unreadable_total``      events that could not be stored and were set aside
``arctic_events_matched_total``         times that a schedule took an event
``arctic_event_lag_seconds``            from an event's own moment to the tick that took it
``arctic_job_moves_total``              moves of jobs, by the ``state`` they came to
``arctic_jobs_admitted_total``          jobs that their constraints admitted
``arctic_jobs_held_total``              times that a ``constraint`` began to hold a job
``arctic_job_wait_seconds``             from the trigger to the admission, by the ``constraint``
                                        that held last; ``none``: it was admitted at once;
                                        ``unknown``: it was held before this process began, or
                                        a person launched it
``arctic_jobs_discarded_total``         by ``cause``: timed_out, canceled, withdrawn or shadowed
``arctic_runs_requested_total``         run requests given to Dagster, repeated ones too
``arctic_tick_seconds``                 duration of ticks
``arctic_ticks_failed_total``           ticks that ended with an error
``arctic_run_stage_seconds``            duration of each ``stage`` of an ended run, from its event
                                        on; a sample of the runs of each tick
``arctic_jobs``                         jobs that have not ended, by ``state``
``arctic_oldest_wait_seconds``          how long constraints have held the oldest held job
``arctic_deferred_arrivals``            arrivals that no job has yet, by what each ``waits_for``:
                                        ``match``, a partition of the target that it maps to;
                                        ``checks``; ``code``, the next tick
======================================  =====================================================
"""

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import cache

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    start_http_server,
)

from arctic_orchestration.schedules.constraints import Decision
from arctic_orchestration.schedules.jobs import Job, JobMove, JobState
from arctic_orchestration.schedules.launch_requests import SHADOWED
from arctic_orchestration.schedules.tick_result import TickResult
from arctic_orchestration.schedules.views.deferred import deferred_counts
from arctic_orchestration.schedules.views.numbers import living_jobs
from arctic_orchestration.schedules.views.stages import Stage
from arctic_orchestration.state.database import Database

_log = logging.getLogger(__name__)
_PLACE = ("cluster", "location")
_TICKS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAITS = (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400, 7 * 86_400)
_LAGS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600, 86_400)
#: the maximum age of the numbers from the database
_COUNT_EVERY = timedelta(seconds=15)
#: held jobs whose constraints are kept in memory; the oldest are dropped
_REMEMBERED = 100_000


class Metrics:
    """The metrics of the engines of one process.

    Args:
        registry: registers the metrics; a registry takes one ``Metrics``.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._lock = threading.Lock()
        #: the kinds of constraints that hold a job, by its id
        self._held: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._counted_at: dict[tuple[str, str], datetime] = {}
        self._registry = registry
        #: the requested ports, and whether they are served
        self._serves: dict[int, bool] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"arctic_{name}", text, (*_PLACE, *labels), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            names = (*_PLACE, *labels)
            return Histogram(f"arctic_{name}", text, names, buckets=buckets, registry=registry)

        self._read = counter("events_read", "Events read from the event log")
        self._aside = counter("events_unreadable", "Events that could not be stored")
        self._matched = counter("events_matched", "Times that a schedule took an event")
        self._lag = histogram("event_lag_seconds", "From an event to its tick", _LAGS)
        self._moves = counter("job_moves", "Moves of jobs, by the state they came to", "state")
        self._admitted = counter("jobs_admitted", "Jobs that their constraints let through")
        self._holds = counter("jobs_held", "Times a constraint began to hold a job", "constraint")
        self._waits = histogram(
            "job_wait_seconds", "From trigger to admission, by the last to hold", _WAITS,
            "constraint",
        )  # fmt: skip
        self._discarded = counter("jobs_discarded", "Jobs that were given up", "cause")
        self._requested = counter("runs_requested", "Run requests given to Dagster")
        self._ticks = histogram("tick_seconds", "How long ticks took", _TICKS)
        self._stages = histogram("run_stage_seconds", "How long stages took", _TICKS, "stage")
        self._failed = counter("ticks_failed", "Ticks that ended with an error")
        self._jobs = Gauge(
            "arctic_jobs", "Jobs that have not ended", (*_PLACE, "state"), registry=registry
        )
        self._oldest = Gauge(
            "arctic_oldest_wait_seconds", "The longest wait for constraints", _PLACE,
            registry=registry,
        )  # fmt: skip

        self._deferred = Gauge(
            "arctic_deferred_arrivals", "Arrivals that no job has yet", (*_PLACE, "waits_for"),
            registry=registry,
        )  # fmt: skip

    def observe(
        self,
        result: TickResult,
        *,
        cluster: str,
        location: str,
        now: datetime,
        seconds: float,
    ) -> None:
        """Records the result of a tick; never raises.

        Args:
            result: the result of the tick.
            cluster: of the engine.
            location: of the engine.
            now: the tick's own moment.
            seconds: the duration of the tick.
        """
        try:
            self._observe(result, (cluster, location), now, seconds)
        except Exception:
            _log.warning("the metrics of a tick are lost", exc_info=True)

    def _observe(
        self, result: TickResult, place: tuple[str, str], now: datetime, seconds: float
    ) -> None:
        counts = result.counts
        self._ticks.labels(*place).observe(seconds)
        self._read.labels(*place).inc(counts["events"])
        self._aside.labels(*place).inc(counts["unreadable"])
        self._matched.labels(*place).inc(counts["matched"])
        self._admitted.labels(*place).inc(counts["admitted"])
        self._requested.labels(*place).inc(len(result.requests))
        lag = self._lag.labels(*place)
        for each in result.lags:
            # Clocks of different hosts differ: an event of the future counts as one of now.
            lag.observe(max(each.total_seconds(), 0))
        for move in result.moves:
            self._note(move, place, now)

    def _note(self, move: JobMove, place: tuple[str, str], now: datetime) -> None:
        job = move.job
        if job.state is not move.before:
            self._moves.labels(*place, job.state.value).inc()
        if job.state is JobState.WAITING_CONSTRAINTS:
            if job.state is move.before:
                self._hold(job, place)
            return
        with self._lock:
            held = self._held.pop(job.id, None)
        if move.before is not JobState.WAITING_CONSTRAINTS and job.state is not JobState.DISCARDED:
            return
        if job.state is JobState.LAUNCHING and job.satisfied_at is not None:
            waited = max((now - job.satisfied_at).total_seconds(), 0)
            kind = held[0] if held else ("unknown" if waited else "none")
            self._waits.labels(*place, kind).observe(waited)
        elif job.state is JobState.DISCARDED:
            self._discarded.labels(*place, _cause(job, now)).inc()

    def _hold(self, job: Job, place: tuple[str, str]) -> None:
        kinds = _deciding(job, Decision.HOLD) or ("suspended",)
        with self._lock:
            before = self._held.pop(job.id, ())
            self._held[job.id] = kinds
            while len(self._held) > _REMEMBERED:
                self._held.popitem(last=False)
        for kind in kinds:
            if kind not in before:
                self._holds.labels(*place, kind).inc()

    def run_ended(self, reached: Iterable[Stage], *, cluster: str, location: str) -> None:
        """Records the stages of a run that has ended; the first one has no length."""
        for stage in list(reached)[1:]:
            self._stages.labels(cluster, location, stage.name).observe(stage.seconds)

    def failed(self, *, cluster: str, location: str, seconds: float) -> None:
        """Records that a tick ended with an error."""
        self._ticks.labels(cluster, location).observe(seconds)
        self._failed.labels(cluster, location).inc()

    def count(self, database: Database, *, cluster: str, location: str, now: datetime) -> None:
        """Counts the location's jobs in the database, unless that was done recently.

        Never raises.
        """
        place = (cluster, location)
        counted_at = self._counted_at.get(place)
        if counted_at is not None and timedelta(0) <= now - counted_at < _COUNT_EVERY:
            return
        self._counted_at[place] = now
        try:
            with database.read() as tx:
                found = living_jobs(tx, cluster, now, location=location).get(location)
                deferred = deferred_counts(tx, cluster, location)
            for waits_for, number in deferred.items():
                self._deferred.labels(*place, waits_for).set(number)
            if found is not None:
                states, oldest = found
                for state, number in states.items():
                    self._jobs.labels(*place, state.value).set(number)
                self._oldest.labels(*place).set(oldest.total_seconds())
        except Exception:
            _log.warning("the jobs could not be counted for the metrics", exc_info=True)

    def forget_others(self, names: Collection[str], *, cluster: str) -> None:
        """Drops the numbers of locations that were renamed or deleted, if there are any."""
        if all(place[0] != cluster or place[1] in names for place in tuple(self._counted_at)):
            return
        self._counted_at.clear()
        for gauge in (self._jobs, self._oldest, self._deferred):
            # The others are counted again.
            gauge.clear()

    def serve(self, port: int) -> None:
        """Serves ``GET /metrics`` on loopback; does nothing if it does already.

        A port in use is a warning, once: the first of several code servers on a host has it. A
        later call takes the port once that server is gone.
        """
        with self._lock:
            if self._serves.get(port):
                return
            first = port not in self._serves
            try:
                start_http_server(port, addr="127.0.0.1", registry=self._registry)
                self._serves[port] = True
            except OSError as error:
                self._serves[port] = False
                if first:
                    _log.warning("no metrics on 127.0.0.1:%s: %s", port, error.strerror or error)


@cache
def process_metrics() -> Metrics:
    """Returns the metrics of this process, in prometheus_client's own registry."""
    return Metrics()


def _deciding(job: Job, decision: Decision) -> tuple[str, ...]:
    """Returns the kinds of the constraints with this last verdict, in the schedule's order."""
    verdicts = json.loads(job.verdicts) if job.verdicts else []
    return tuple(v["constraint"] for v in verdicts if v["decision"] == decision.value)


def _cause(job: Job, now: datetime) -> str:
    if job.reason == SHADOWED:
        return "shadowed"
    if _deciding(job, Decision.CANCEL):
        return "canceled"
    if job.deadline_at is not None and job.deadline_at <= now:
        return "timed_out"
    return "withdrawn"
