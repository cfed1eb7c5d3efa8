"""The sensor ``arctic_tasks``: processes the tasks of a code location and requests their runs.

A tick never raises when a database is unavailable: it starts nothing new and loses nothing, and the
next tick continues. All state is in the state database; Dagster's cursor only shows people what the
last tick did.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import dagster as dg

from arctic_orchestration import code_servers
from arctic_orchestration.dagster_internals import (
    AUTO_CREATED_STUB,
    AutomationTarget,
    NamedTargetsSensor,
    create_execution_plan,
    set_targets,
)
from arctic_orchestration.errors import ArcticError, InvalidInput
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.run_lookup import RunView
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.dagster.fresh_parents import declared_tasks, newest_partition
from arctic_orchestration.freshness.dagster.submission_history import Histories
from arctic_orchestration.freshness.lifecycle import Lifecycle, TaskRequest, TickResult
from arctic_orchestration.notifications.notifier import Notifier, notifier_of
from arctic_orchestration.run_tags import check_storable
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

SENSOR = "arctic_tasks"
#: Dagster's own job for runs of assets; it exists if there are assets.
ASSET_JOB = "__ASSET_JOB"

_log = logging.getLogger("arctic.freshness.sensor")


class InstanceAssets:
    """What a Dagster instance knows of assets that are not tasks."""

    def __init__(self, log: DagsterLog, repository: dg.RepositoryDefinition) -> None:
        self._log = log
        graph = repository.asset_graph
        # The graph also contains mere dependencies, whether or not such an asset exists.
        self._here = frozenset(
            key.to_user_string()
            for key in graph.get_all_asset_keys()
            if not graph.get(key).metadata.get(AUTO_CREATED_STUB)
        )

    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:
        """Reads Dagster's event log, with moments by the clocks of the writing processes."""
        return self._log.materialized_at(assets)

    def known(self, assets: Sequence[str]) -> frozenset[str]:
        """Returns the assets of this location, and assets of others that were materialized."""
        return self._here & frozenset(assets)


@dataclass
class _Place:
    """The cache from tick to tick, for one state database and instance."""

    lifecycle: Lifecycle
    histories: Histories
    notifier: Notifier | None


class TaskSensor(NamedTargetsSensor):
    """A sensor that may request runs of the location's assets and of the given jobs.

    Args:
        interval_seconds: the minimum interval between two ticks.
        jobs: the names of jobs that are tasks.
        assets: whether assets are tasks.
    """

    def __init__(
        self,
        *,
        interval_seconds: int = 10,
        jobs: Sequence[str] = (),
        assets: bool = True,
    ) -> None:
        self._places: dict[tuple[str, ...], _Place] = {}
        super().__init__(
            name=SENSOR,
            evaluation_fn=self._evaluate,
            minimum_interval_seconds=interval_seconds,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Brings submitted tasks to life: waits for their parents, acquires them "
            "once for all clusters, asks for their runs.",
        )
        # By name only: Dagster binds the location's resources to jobs of its own definitions.
        names = [*dict.fromkeys(jobs), *([ASSET_JOB] if assets else [])]
        set_targets(self, [AutomationTarget(job) for job in names])

    def _evaluate(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            place = self._place(context)
            result = place.lifecycle.tick()
        except Exception as error:
            text = f"nothing new was begun: {str(error) or type(error).__name__}"
            context.log.warning(text, exc_info=error)
            return dg.SensorResult(skip_reason=text, cursor=context.cursor)
        if place.notifier is not None:
            place.notifier.wake()
        if result.trouble is not None:
            context.log.error("the tasks of this location are not registered: %s", result.trouble)
        requests = []
        for request in result.requests:
            # One refused request would fail this tick and all ticks after it.
            try:
                requests.append(_run_request(request, context, result.now))
            except Exception as error:
                context.log.error("task %s: Dagster refuses its run: %s", request.task, error)
                self._refuse(place.lifecycle, request, error)
        result.counts["reported"] += place.histories.report(context)
        counts = {name: count for name, count in sorted(result.counts.items()) if count}
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=json.dumps(counts))
        return dg.SensorResult(skip_reason=_summary(result, counts), cursor=json.dumps(counts))

    @staticmethod
    def _refuse(lifecycle: Lifecycle, request: TaskRequest, error: Exception) -> None:
        try:
            lifecycle.refuse(request.submission, str(error))
        except ArcticError as problem:
            # The next tick hands it out again, and refuses it then.
            _log.warning("task %s could not be refused: %s", request.task, problem)

    def _place(self, context: dg.SensorEvaluationContext) -> _Place:
        settings = Settings.from_environment()
        origin = context.code_location_origin
        location = origin.location_name if origin else "local"
        repository = context.repository_def
        assert repository is not None
        storage = code_servers.storage_of(context)
        key = (settings.database_url, settings.cluster, location, storage)
        if key not in self._places:
            # The instance of a tick ends with the tick; the log has connections of its own.
            log = DagsterLog(context.instance)
            self._places[key] = _place(settings, location, repository, log)
        return self._places[key]


def _place(
    settings: Settings, location: str, repository: dg.RepositoryDefinition, log: DagsterLog
) -> _Place:
    database = Database.open(settings.database_url)
    notifier = None
    if settings.notifications is not None:
        notifier = notifier_of(
            database,
            cluster=settings.cluster,
            location=location,
            path=settings.notifications,
        )
    declared = declared_tasks(repository)
    lifecycle = Lifecycle(
        database=database,
        cluster=settings.cluster,
        location=location,
        declared=declared,
        runs=log,
        assets=InstanceAssets(log, repository),
        storage_id=log.storage_id,
        outdated=partial(_is_outdated, repository),
    )
    histories = Histories(
        database=database,
        cluster=settings.cluster,
        location=location,
        tasks={spec.name: spec for spec in declared},
    )
    return _Place(lifecycle=lifecycle, histories=histories, notifier=notifier)


def _run_request(
    request: TaskRequest, context: dg.SensorEvaluationContext, now: datetime
) -> dg.RunRequest:
    """Returns the run request for Dagster; of a partitioned asset, for the newest partition.

    Errors:
        Those of Dagster for a run that cannot be created. In the daemon they would end this tick
            and each one after it, with the requests of all other tasks.
    """
    repository = context.repository_def
    assert repository is not None
    is_asset = request.kind == "asset"
    partitions = _partitions_of(repository, request)
    partition = newest_partition(partitions, now)
    if partitions is not None and partition is None:
        expected = "windows of time, of which one has begun: a run is for the newest"
        found = type(partitions).__name__
        raise InvalidInput(f"the partitions of {request.target}", found, expected)
    job = ASSET_JOB if is_asset else request.target
    selection = [dg.AssetKey.from_user_string(request.target)] if is_asset else None
    made = dg.RunRequest(
        run_key=request.run_key,
        job_name=job,
        asset_selection=selection,
        partition_key=partition,
        tags=dict(request.tags),
    )
    if partition is not None:
        made = made.with_resolved_tags_and_config(
            target_definition=repository.get_job(job),
            dynamic_partitions_requests=[],
            dynamic_partitions_store=context.instance,
        )
    whole = repository.get_maybe_subset_job_def(
        job, asset_selection=frozenset(selection) if selection is not None else None
    )
    check_storable({**whole.run_tags, **made.tags})
    # As the daemon does when it creates the run: missing configuration is refused.
    create_execution_plan(whole, run_config=made.run_config)
    # It gets all requests of a tick as one text.
    dg.serialize_value(made)
    return made


def _partitions_of(
    repository: dg.RepositoryDefinition, task: TaskRequest | TaskSpec
) -> dg.PartitionsDefinition[Any] | None:
    if task.kind == "asset":
        key = dg.AssetKey.from_user_string(task.target)
        return repository.asset_graph.get(key).partitions_def
    return repository.get_job(task.target).partitions_def


def _is_outdated(
    repository: dg.RepositoryDefinition, spec: TaskSpec, run: RunView, at: datetime
) -> bool:
    """Returns whether a run of a task was for a partition that is not the newest any more."""
    targets = {(one.kind, one.target) for one in declared_tasks(repository)}
    if (spec.kind, spec.target) not in targets:
        # The definition of before still stands, as the present ones are refused.
        return False
    partitions = _partitions_of(repository, spec)
    newest = newest_partition(partitions, at)
    return partitions is not None and run.tags.get("dagster/partition") != newest


def _summary(result: TickResult, counts: Mapping[str, int]) -> str:
    if result.trouble is not None:
        return f"not registered: {result.trouble}"
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "nothing is due"
