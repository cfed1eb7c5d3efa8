"""Observes an engine's ticks: metrics, the history of numbers, notifications.

No observer can fail a tick: its errors are logged.
"""

import logging
import time
from collections.abc import Mapping
from datetime import datetime, timedelta

import dagster as dg

from arctic_orchestration.event_log.run_moments import moments_of_run
from arctic_orchestration.notifications.notifier import Notifier, notifier_of
from arctic_orchestration.schedules.dagster.daemon_check import DaemonWatch
from arctic_orchestration.schedules.dagster.schedule_assets import ScheduleObservations
from arctic_orchestration.schedules.dagster.scheduler_metrics import observation, reported_at
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.metrics import process_metrics
from arctic_orchestration.schedules.tick_result import TickResult
from arctic_orchestration.schedules.views.deferred import deferred
from arctic_orchestration.schedules.views.held import HeldJobs, held_jobs
from arctic_orchestration.schedules.views.stages import moments_of_job, stages
from arctic_orchestration.settings import Settings

_log = logging.getLogger(__name__)
_ENDED = (JobState.SUCCEEDED, JobState.FAILED)
#: runs of a tick whose stages are measured, with a few queries each
_MEASURED = 20
#: arrivals that a warning names
_NAMED = 3


class Watch:
    """Observes one engine.

    Args:
        engine: whose ticks are observed.
        settings: the port of the metrics and the file of notification channels.
        numbers_every: the least time between two observations of the numbers; None: never.
        shown: the assets of schedules, by the names of these.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        numbers_every: timedelta | None,
        *,
        shown: Mapping[str, dg.AssetKey],
    ) -> None:
        self._engine = engine
        self._schedules = ScheduleObservations(engine, shown)
        self._numbers_every = numbers_every
        self._numbers_at: datetime | None = None
        self._port = settings.metrics_port
        self._metrics = process_metrics()
        self._reported: str | None = None
        self._daemons = DaemonWatch()
        self._held = HeldJobs()
        self._notifier: Notifier | None = None
        if settings.notifications is not None:
            self._notifier = notifier_of(
                engine.database,
                cluster=engine.cluster,
                location=engine.location,
                path=settings.notifications,
            )

    def tick(self, now: datetime) -> TickResult:
        """Runs and measures the engine's tick; notices are sent afterwards, in the background.

        Errors:
            ArcticError: those of the engine's tick.
        """
        cluster, location = self._engine.cluster, self._engine.location
        begin = time.perf_counter()
        try:
            result = self._engine.tick(now)
        except BaseException:
            seconds = time.perf_counter() - begin
            self._metrics.failed(cluster=cluster, location=location, seconds=seconds)
            raise
        seconds = time.perf_counter() - begin
        self._metrics.observe(result, cluster=cluster, location=location, now=now, seconds=seconds)
        if self._port is not None:
            # At each tick: the previous code server may not have ended yet.
            self._metrics.serve(self._port)
            self._metrics.count(self._engine.database, cluster=cluster, location=location, now=now)
        if self._notifier is not None:
            self._notifier.wake()
        return result

    def stages(self, result: TickResult, instance: dg.DagsterInstance) -> None:
        """Measures the stages of runs whose end the tick saw; never raises."""
        if self._port is None:
            return
        engine = self._engine
        ended = [move.job for move in result.moves if move.job.run_id and move.job.state in _ENDED]
        try:
            for job in ended[:_MEASURED]:
                moments = moments_of_run(instance, str(job.run_id))
                with engine.database.read() as tx:
                    moments |= moments_of_job(tx, job.id)
                self._metrics.run_ended(
                    stages(moments), cluster=engine.cluster, location=engine.location
                )
        except Exception:
            _log.warning("the stages of a run are not measured", exc_info=True)

    def remarks(self) -> list[str]:
        """Returns the problems of the notifications, reported once."""
        problem = self._notifier.problem if self._notifier is not None else None
        before, self._reported = self._reported, problem
        return [problem] if problem is not None and problem != before else []

    def held_jobs(self, result: TickResult, context: dg.SensorEvaluationContext) -> HeldJobs:
        """Returns the held jobs; read only if there may be some."""
        if self._held.count or any(result.counts.values()):
            engine = self._engine
            try:
                with engine.database.read() as tx:
                    self._held = held_jobs(tx, engine.cluster, engine.location)
            except Exception as error:
                context.log.warning("the held jobs could not be read: %s", error)
        return self._held

    def unmatched(self, result: TickResult, now: datetime) -> str | None:
        """Returns a warning with the unmatched arrivals of a tick at ``now``, or None.

        Names the first ones.
        """
        if not result.counts["deferred"]:
            return None
        engine = self._engine
        try:
            with engine.database.read() as tx:
                place = location_by_name(tx, engine.cluster, engine.location)
                found, total = deferred(tx, place, since=now, limit=_NAMED)
        except Exception as error:
            return f"the arrivals that map to no target partition could not be read: {error}"
        if not found:
            return None
        names = "; ".join(map(str, found))
        more = f"; and {total - len(found)} more" if total > len(found) else ""
        noun = "arrival maps" if total == 1 else "arrivals map"
        return f"{total} {noun} to no target partition: {names}{more}; see: arctic events unmatched"

    def daemons(self, now: datetime, context: dg.SensorEvaluationContext) -> tuple[str, ...]:
        """Returns the ids of Dagster's daemons, if more than one runs on the instance."""
        try:
            before = self._daemons.together(now)
            self._daemons.look(now, lambda: context.instance)
            noticed = self._daemons.together(now)
        except Exception as error:
            context.log.warning("the heartbeats of Dagster's daemon could not be read: %s", error)
            return ()
        if noticed and not before:
            ids = ", ".join(noticed)
            context.log.error("two daemons run on this instance of Dagster: %s. End one", ids)
        return noticed

    def observations(
        self, result: TickResult, now: datetime, context: dg.SensorEvaluationContext
    ) -> list[dg.AssetObservation]:
        """Returns what a tick at ``now`` shows in Dagster: schedules that changed, the numbers."""
        try:
            schedules = self._schedules.take(result, now)
        except Exception as error:
            context.log.warning("the states of schedules could not be read: %s", error)
            schedules = []
        return [*schedules, *self._numbers(now, context)]

    def _numbers(
        self, now: datetime, context: dg.SensorEvaluationContext
    ) -> list[dg.AssetObservation]:
        """Returns the numbers, unless they were reported recently."""
        if self._reported_lately(now, self._numbers_at):
            return []
        self._numbers_at = now
        try:
            # Another code location, or the previous code server, may have reported them.
            self._numbers_at = reported_at(context.instance)
            if self._reported_lately(now, self._numbers_at):
                return []
            self._numbers_at = now
            return [observation(self._engine.database, self._engine.cluster, now)]
        except Exception as error:
            context.log.warning("the scheduler's numbers could not be read: %s", error)
            return []

    def _reported_lately(self, now: datetime, at: datetime | None) -> bool:
        if self._numbers_every is None:
            return True
        # After a clock was set back, do not wait for the old moment.
        return at is not None and timedelta(0) <= now - at < self._numbers_every
