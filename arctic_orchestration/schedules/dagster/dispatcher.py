"""The dispatcher: the one sensor of a code location, whose tick is the engine's tick.

The state database is the sensor's memory; Dagster's cursor only shows it to people. Dagster gets
run requests under run keys of job and attempt, so that a tick resumed after a crash makes no second
run. A request is handed out to one tick at a time, so that two daemons make no second run either.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from arctic_orchestration import code_servers
from arctic_orchestration.clock import utc_now
from arctic_orchestration.dagster_internals import (
    AutomationTarget,
    UnresolvedAssetJobDefinition,
    set_targets,
)
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.ticks import DagsterTicks
from arctic_orchestration.schedules import cycles
from arctic_orchestration.schedules.dagster.every_job import EveryJobSensor
from arctic_orchestration.schedules.dagster.inventory import inventory_of
from arctic_orchestration.schedules.dagster.load import LoadProbes
from arctic_orchestration.schedules.dagster.partitioned_targets import (
    problems_of_job,
    without_partitions,
)
from arctic_orchestration.schedules.dagster.request_hooks import CodeHooks
from arctic_orchestration.schedules.dagster.run_requests import (
    ASSET_JOB,
    RunRequests,
    new_partitions,
)
from arctic_orchestration.schedules.dagster.sources import CodeSources
from arctic_orchestration.schedules.dagster.targets import (
    RepositoryTargets,
    endless_cycles,
    impossible_runs,
    job_fields,
    resolved,
    unknown_assets,
    unknown_parents,
)
from arctic_orchestration.schedules.dagster.tick_observers import Watch
from arctic_orchestration.schedules.definition_warnings import cautions
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.facts import Surroundings
from arctic_orchestration.schedules.launch_requests import SCHEDULE_TAG
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

#: counts for which the skip reason names the jobs
_REPORTED_AS_HELD = ("checked", "held")
#: the remarks on schedules that a tick logs
_REMARKS = 20

if TYPE_CHECKING:
    from arctic_orchestration.dagster_internals import AssetGraph


def _asset_names_check(
    sensor_name: str, schedules: Sequence[Schedule]
) -> UnresolvedAssetJobDefinition:
    """Returns an anonymous job whose resolution refuses schedules that name unknown assets.

    A sensor's objects see the asset graph only when Dagster resolves asset jobs. The asset target
    of any sensor is such an anonymous job.
    """

    class AssetNamesCheck(UnresolvedAssetJobDefinition):
        def resolve(self, asset_graph: "AssetGraph", *args: Any, **kwargs: Any) -> dg.JobDefinition:
            problems = unknown_assets(schedules, asset_graph)
            if not problems:
                named = [resolved(schedule, asset_graph) for schedule in schedules]
                problems = impossible_runs(named, asset_graph)
                # Only now it is known which assets a selection contains.
                problems.extend(cycles.problems(named))
            if problems:
                raise InvalidDefinition(problems)
            return super().resolve(asset_graph, *args, **kwargs)

    return AssetNamesCheck(
        name=f"__anonymous_asset_job_{sensor_name}", selection=dg.AssetSelection.assets()
    )


class _JobByName(AutomationTarget):
    """A job of the repository, which records on its sensor that Dagster has looked it up."""

    sensor: "DispatcherSensor"

    @classmethod
    def of(cls, sensor: "DispatcherSensor", name: str) -> "_JobByName":
        target = cls(name)
        target.sensor = sensor
        return target

    @property
    def job_name(self) -> str:
        self.sensor.looked_for = super().job_name
        return self.sensor.looked_for


class DispatcherSensor(EveryJobSensor):
    """A sensor that may request runs of every job and asset of its code location."""

    #: the last job name that Dagster read from a target
    looked_for: str | None = None

    def __init__(
        self,
        *,
        name: str,
        schedules: Sequence[Schedule],
        interval_seconds: int,
        location: str | None,
        numbers_every: timedelta | None,
        update_schedules: bool = True,
        shown: Mapping[str, dg.AssetKey] | None = None,
        sources: Sequence[dg.SensorDefinition] = (),
    ) -> None:
        self._schedules = tuple(schedules)
        self._shown = shown or {}
        self._sources = tuple(sources)
        self._update_schedules = update_schedules
        self._location_name = location
        self._numbers_every = numbers_every
        self._engines: dict[tuple[str, ...], tuple[Engine, Watch]] = {}
        self._run_requests = RunRequests()
        self._one_at_a_time = threading.Lock()
        super().__init__(
            name=name,
            evaluation_fn=self._evaluate,
            minimum_interval_seconds=interval_seconds,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Turns events and time into jobs, and admitted jobs into runs.",
        )
        set_targets(self, self._all_targets())

    @property
    def job_name(self) -> str | None:
        """The name of a target that Dagster did not find in the repository.

        Errors:
            InvalidDefinition: names the schedules and fields that contain that job.
        """
        expected = "the name of a job of this code location"
        problems = [
            InvalidInput(field, job, expected)
            for field, job in job_fields(self._schedules)
            if job == self.looked_for
        ]
        if problems:
            raise InvalidDefinition(problems)
        return self.looked_for

    @property
    def hooks(self) -> frozenset[str]:
        """The names of the declared schedules with a request hook."""
        return frozenset(one.name for one in self._schedules if one.request is not None)

    def check(self, repository: dg.RepositoryDefinition) -> None:
        problems = endless_cycles(self._schedules, repository)
        for schedule in self._schedules:
            problems += problems_of_job(schedule, repository)
        if problems:
            raise InvalidDefinition(problems)

    def _all_targets(self) -> list[AutomationTarget]:
        """Returns the names in the declared schedules; Dagster refuses unknown ones."""
        if not self._schedules:
            return []
        # Only by name: Dagster binds the location's resources to the jobs it has itself. Jobs in
        # triggers are no targets; they are listed so that Dagster looks them up.
        names = {job for _, job in job_fields(self._schedules)}
        if any(schedule.target.job is None for schedule in self._schedules):
            names.add(ASSET_JOB)
        check = _asset_names_check(self.name, self._schedules)
        by_name = [_JobByName.of(self, name) for name in sorted(names)]
        return [*by_name, AutomationTarget(check)]

    def _evaluate(self, context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        # Two daemons may call one code server at the same time, and the engine keeps its tick.
        with self._one_at_a_time:
            return self._tick(context)

    def _tick(self, context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        engine, watch = self._engine(context)
        now = utc_now()
        result = watch.tick(now)
        watch.stages(result, context.instance)
        remarks = [*result.remarks, *watch.remarks()]
        for remark in remarks[:_REMARKS]:
            context.log.warning(remark)
        if len(remarks) > _REMARKS:
            context.log.warning("and %s more; see: arctic doctor", len(remarks) - _REMARKS)
        if aside := result.counts["unreadable"]:
            text = f"{aside} events could not be stored; see: arctic events unreadable"
            context.log.warning(text)
        if unmatched := watch.unmatched(result, now):
            context.log.warning(unmatched)
        for run_id in result.unwanted:
            _terminate(run_id, context)
        observed = watch.observations(result, now, context)
        targets = engine.targets
        assert isinstance(targets, RepositoryTargets)
        counts = {name: count for name, count in sorted(result.counts.items()) if count}
        held = watch.held_jobs(result, context)
        for name, note in result.notes.items():
            context.log.info("source %s: %s", name, note)
        shown = {
            "sources": dict(result.notes),
            "launching": sorted({request.tags[SCHEDULE_TAG] for request in result.requests}),
            "held_by": dict(held.first),
            "daemons": watch.daemons(now, context),
        }
        cursor = json.dumps({**counts, **{name: value for name, value in shown.items() if value}})
        requests, accepted = [], []
        for request in result.requests:
            # A request that Dagster refuses would fail the tick, and all ticks after it.
            try:
                requests.append(self._run_requests.make(request, context))
                accepted.append(request)
            except Exception as error:
                problem = f"Dagster refuses its run: {error}"
                context.log.error("job %s: %s", request.job_id, problem)
                engine.refuse(request.job_id, problem, utc_now())
        if not requests:
            done = [f"{name} {n}" for name, n in counts.items() if name not in _REPORTED_AS_HELD]
            text = "; ".join(part for part in (", ".join(done), str(held)) if part)
            return dg.SensorResult(
                skip_reason=text or "nothing new and nothing due",
                cursor=cursor,
                asset_events=observed,
            )
        return dg.SensorResult(
            run_requests=requests,
            dynamic_partitions_requests=new_partitions(accepted, targets),
            cursor=cursor,
            asset_events=observed,
        )

    def _engine(self, context: dg.SensorEvaluationContext) -> tuple[Engine, Watch]:
        settings = Settings.from_environment()
        origin = context.code_location_origin
        location = self._location_name or (origin.location_name if origin else "local")
        repository = context.repository_def
        assert repository is not None
        storage = code_servers.storage_of(context)
        known_as = origin.location_name if origin else None
        key = (settings.database_url, settings.cluster, location, storage)
        if key not in self._engines:
            targets = RepositoryTargets(repository, lambda: context.instance)
            declared = [resolved(s, repository.asset_graph) for s in self._schedules]
            sources = frozenset(one.name for one in self._sources)
            inventory = replace(inventory_of(repository), sources=sources)
            log = DagsterLog(context.instance, location=location, known_as=known_as)
            engine = Engine(
                surroundings=Surroundings(
                    materialized_at=log.materialized_at, latest_checks=log.latest_checks
                ),
                database=Database.open(settings.database_url),
                cluster=settings.cluster,
                location=location,
                owner=f"{origin.location_name}/{repository.name}" if origin else None,
                inventory=inventory,
                feed=log,
                lookup=log,
                targets=targets,
                declared=declared,
                sources=CodeSources(self._sources, repository),
                update_schedules=self._update_schedules,
            )
            # Kept before the warnings: an error in one must not open connections in each tick.
            watch = Watch(engine, settings, self._numbers_every, shown=self._shown)
            self._engines[key] = (engine, watch)
            for problem in unknown_parents(self._schedules, repository):
                context.log.warning("it is never fresh: %s", problem)
            for schedule in declared:
                if names := without_partitions(schedule, repository):
                    text = "Schedule(%s).partitions: %s, but runs of %s have no partitions"
                    context.log.warning(text, schedule.name, schedule.partitions, ", ".join(names))
            for caution in cautions(declared):
                context.log.warning(caution)
        # The instance of a tick ends with it; the feed has connections of its own.
        engine, watch = self._engines[key]
        assert isinstance(engine.targets, RepositoryTargets)
        engine.targets.renew(lambda: context.instance)
        engine.hooks = CodeHooks(self._schedules, lambda: context.instance, repository, known_as)
        assert isinstance(engine.sources, CodeSources)
        engine.sources.renew(context.instance_ref or context.instance.get_ref(), known_as)
        engine.ticks = DagsterTicks(lambda: context.instance, context.log_key)
        probes = LoadProbes(lambda: context.instance, spark_ui=settings.spark_ui)
        engine.surroundings = replace(
            engine.surroundings, measure=probes.measure, one_more=probes.one_more
        )
        return engine, watch


def _terminate(run_id: str, context: dg.SensorEvaluationContext) -> None:
    """Terminates the run of a canceled job; after a failure the run's next event retries it."""
    try:
        context.instance.run_coordinator.cancel_run(run_id)
    except Exception as error:
        context.log.warning("run %s of a canceled job could not be terminated: %s", run_id, error)
    else:
        context.log.info("run %s is terminated: its job was canceled", run_id)
