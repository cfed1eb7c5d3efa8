"""The sensor ``arctic_compaction``: plans, commits, cleans up, and requests worker runs.

A tick never raises when a catalog or a database is unavailable: its skip reason contains the error,
and the next tick retries. All state is in the state database; the cursor is a position in Dagster's
event log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from arctic_orchestration import code_servers
from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.dagster.arrivals import mark_arrivals, tables_of
from arctic_orchestration.compaction.dagster.rounds import RoundResult, Rounds, counts_text
from arctic_orchestration.compaction.dagster.table_metrics import ReportClock, observations
from arctic_orchestration.compaction.dagster.worker_demand import QUEUE_TAG, Wanted, wanted_runs
from arctic_orchestration.compaction.dagster.worker_job import OP
from arctic_orchestration.compaction.planning.scope import Mode, Scope
from arctic_orchestration.dagster_internals import NamedTargetsSensor
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from arctic_orchestration.compaction.dagster.definitions import Compaction
    from arctic_orchestration.compaction.service import CompactionService

COMPACTION = "arctic_compaction"
LEVEL_TAG = "arctic/level"
#: how long a tick waits for its round
_WAIT_SECONDS = 5.0
#: how long a worker of a queue with a floor waits for tasks
_KEPT = timedelta(hours=1)


@dataclass
class _Tick:
    """The report of a tick, gathered from its steps."""

    context: dg.SensorEvaluationContext
    now: datetime
    cursor: str | None
    requests: list[dg.RunRequest] = field(default_factory=list)
    observed: list[dg.AssetObservation] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def trouble(self, what: str, error: Exception) -> None:
        """Reports an error: briefly for people, and in full for the log."""
        text = f"{what}: {str(error) or type(error).__name__}"
        self.texts.append(text)
        self.context.log.warning(text, exc_info=error)


class _Place:
    """The cache from tick to tick, for one state database and catalog."""

    def __init__(
        self, settings: Settings, log: DagsterLog, wanted: "Compaction", scope: Scope
    ) -> None:
        self.database = Database.open(settings.database_url)
        self.log = log
        self.rounds = Rounds(self._round)
        self.clock = ReportClock(wanted.numbers_every) if wanted.numbers_every is not None else None
        #: tables of the catalog that the planner does not know
        self.has_new_tables = False
        self._settings = settings
        self._retention = wanted.retention
        self._scope = scope
        self._catalog: Catalog | None = None
        self._compaction: CompactionService | None = None

    def _round(self, now: datetime, reports: Sequence[str]) -> RoundResult:
        """Performs compaction's tick, and then reads the metrics of some tables."""
        # Runs of this code location never need these modules, which take a second to import.
        from arctic_orchestration.compaction.service import CompactionService
        from arctic_orchestration.lake.tables import open_catalog

        if self._catalog is None:
            # In the round's thread, since an unavailable catalog may answer slowly.
            self._catalog = open_catalog(self._settings)
        if self._compaction is None:
            self._compaction = CompactionService(
                self.database, self._catalog, retention=self._retention, scope=self._scope
            )
        elif self.has_new_tables:
            self._compaction.discover()
        self.has_new_tables = False
        counts, error = None, None
        try:
            counts = self._compaction.tick(now)
        except Exception as problem:
            error = problem
        found, troubles = observations(self.database, self._catalog, reports)
        return RoundResult(counts=counts, observations=found, troubles=troubles, error=error)


class CompactionSensor(NamedTargetsSensor):
    """A sensor that performs all of compaction except the merging, and requests runs that merge."""

    def __init__(self, wanted: "Compaction", scope: Scope, job: dg.JobDefinition) -> None:
        self._wanted = wanted
        self._scope = scope
        self._worker_job = job.name
        self._places: dict[tuple[str, ...], _Place] = {}
        self._tables: Mapping[str, str] | None = None
        super().__init__(
            name=COMPACTION,
            job=job,
            evaluation_fn=self._evaluate,
            minimum_interval_seconds=wanted.interval_seconds,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Plans merges of small files of the lake's tables, commits what workers "
            "have merged, and requests workers.",
        )

    def _evaluate(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = _Tick(context, utc_now(), context.cursor)
        try:
            place = self._place(context)
        except Exception as error:
            tick.trouble("nothing could be done", error)
        else:
            self._mark(tick, place)
            self._go_round(tick, place)
            if self._scope.mode is Mode.RUN:
                self._request_workers(tick, place)
        if tick.requests:
            if tick.texts:
                context.log.info("; ".join(tick.texts))
            return dg.SensorResult(
                run_requests=tick.requests, cursor=tick.cursor, asset_events=tick.observed
            )
        return dg.SensorResult(
            skip_reason="; ".join(tick.texts) or "nothing to do",
            cursor=tick.cursor,
            asset_events=tick.observed,
        )

    def _mark(self, tick: _Tick, place: _Place) -> None:
        try:
            marked = mark_arrivals(
                place.log, place.database, self._filled(tick.context), tick.cursor, tick.now
            )
        except Exception as error:
            # The planner's own checks find what is missed here.
            tick.trouble("arrivals were not read", error)
            return
        tick.cursor = marked.cursor
        if marked.tables:
            tick.texts.append(f"due: {', '.join(sorted(marked.tables))}")
        if marked.unknown:
            tick.texts.append(f"new: {', '.join(sorted(marked.unknown))}")
            place.has_new_tables = True

    def _go_round(self, tick: _Tick, place: _Place) -> None:
        try:
            rounds = place.rounds
            self._take(tick, place, 0.0)
            if not rounds.underway:
                reports = {}
                if place.clock is not None:
                    reports = dict(
                        place.clock.due(
                            place.database, tick.context.instance, tick.now, self._scope.covers
                        )
                    )
                    for name, state in reports.items():
                        place.clock.note_reading(name, state, tick.now)
                rounds.begin(tick.now, list(reports))
                self._take(tick, place, _WAIT_SECONDS)
        except Exception as error:
            tick.trouble("no round was made", error)
            return
        if rounds.underway and rounds.began_at is not None:
            tick.texts.append(f"a round goes on since {format_moment(rounds.began_at)}")

    def _take(self, tick: _Tick, place: _Place, seconds: float) -> None:
        outcome = place.rounds.take(seconds)
        if outcome is None:
            return
        for name, observation in outcome.observations.items():
            tick.observed.append(observation)
            if place.clock is not None:
                place.clock.note_report(name, observation, tick.now)
        for trouble in outcome.troubles:
            tick.context.log.warning(trouble)
        if outcome.error is not None:
            tick.trouble("the round ended early", outcome.error)
        if outcome.counts is not None:
            tick.texts += [f"{name} {value}" for name, value in counts_text(outcome.counts).items()]
            if outcome.counts.unmatched:
                tick.texts.append(f"no table matches {', '.join(outcome.counts.unmatched)}")

    def _request_workers(self, tick: _Tick, place: _Place) -> None:
        try:
            found = wanted_runs(
                place.database,
                tick.context.instance,
                self._worker_job,
                self._wanted.parallelism,
                tick.now,
            )
        except Exception as error:
            tick.trouble("no workers were requested", error)
            return
        for wanted in found:
            if wanted.reason:
                tick.texts.append(wanted.reason)
            tick.requests += [self._request(wanted, tick.now) for _ in range(wanted.runs)]

    def _request(self, wanted: Wanted, now: datetime) -> dg.RunRequest:
        queue = wanted.queue
        config: dict[str, object] = {
            "queue": queue.name,
            "parallelism": self._wanted.parallelism,
            "until_idle": self._wanted.until_idle.total_seconds(),
        }
        if queue.min_workers:
            # One that is kept is replaced from time to time: the next one has the present code.
            kept = max(self._wanted.until_idle, _KEPT).total_seconds()
            config |= {"until_idle": kept, "starts_spark": True}
        if queue.application is not None:
            config["application"] = dict(queue.application)
        # Without a level of its own, a run has the level of its queue in dagster.yaml.
        level = {LEVEL_TAG: str(queue.level)} if queue.level else {}
        return dg.RunRequest(
            # Runs that Dagster has created are counted, so the key only has to be new.
            run_key=f"{queue.name}-{new_id(now)}",
            run_config={"ops": {OP: {"config": config}}},
            tags={
                QUEUE_TAG: queue.name,
                **level,
                # A failed run is not retried: the next tick determines whether one is needed.
                "dagster/max_retries": "0",
            },
        )

    def _filled(self, context: dg.SensorEvaluationContext) -> Mapping[str, str]:
        if self._tables is None:
            repository = context.repository_def
            found = tables_of(repository.asset_graph) if repository is not None else {}
            # For tables that are only observed, no planner would process the mark.
            runs = self._scope.mode is Mode.RUN
            self._tables = {
                asset: table for asset, table in found.items() if runs and self._scope.covers(table)
            }
        return self._tables

    def _place(self, context: dg.SensorEvaluationContext) -> _Place:
        settings = self._wanted.settings or Settings.from_environment()
        storage = code_servers.storage_of(context)
        key = (settings.database_url, settings.catalog, str(settings.lake), storage)
        if key not in self._places:
            # The instance of a tick ends with the tick; the log has connections of its own.
            log = DagsterLog(context.instance)
            self._places[key] = _Place(settings, log, self._wanted, self._scope)
        return self._places[key]
