"""Dagster's functions as request hooks: what a schedule or sensor decided about each run."""

from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from arctic_orchestration.dagster_internals import (
    asset_sensor_arguments,
    asset_sensor_function,
    resources_needed,
)
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.run_moments import created_at
from arctic_orchestration.schedules.dagster.request_hooks import RequestContext
from arctic_orchestration.schedules.dagster.sources import apply_changes
from arctic_orchestration.schedules.launch_requests import SCHEDULE_TAG
from arctic_orchestration.schedules.request_hooks import ADOPTED_KEY_TAG

_DAGSTERS_RUN_KEY, _SENSOR = "dagster/run_key", "dagster/sensor_name"
_PARTITION_TAG = "dagster/partition"
_EVENT_TYPES = {
    "started": dg.DagsterEventType.RUN_START,
    "success": dg.DagsterEventType.RUN_SUCCESS,
    "failure": dg.DagsterEventType.RUN_FAILURE,
    "canceled": dg.DagsterEventType.RUN_CANCELED,
}
Hook = Callable[[RequestContext], object]


def request_of(definition: object) -> Hook:
    """Returns the request hook that calls the function of a schedule or sensor of Dagster.

    For a schedule with ``run_config_fn``, ``should_execute`` or a decorated function, an
    ``asset_sensor``, or a run status sensor. A sensor's function is called with the last event of
    the job. What it returns may be one request at most: a job makes one run. A run key of a sensor
    is observed: if Dagster's sensor, or the schedule, has made a run for it, there is none. In
    shadow, runs that Dagster's sensor made for the same event do not count.

    Errors:
        InvalidDefinition: another object.
    """
    if isinstance(definition, dg.ScheduleDefinition):
        return _of_schedule(definition)
    if isinstance(definition, dg.AssetSensorDefinition):
        return _of_asset_sensor(definition)
    if isinstance(definition, dg.RunStatusSensorDefinition):
        return _of_run_status_sensor(definition)
    expected = "a schedule, an asset sensor or a run status sensor of Dagster"
    raise InvalidDefinition([InvalidInput("request_of", definition, expected)])


def _of_schedule(definition: dg.ScheduleDefinition) -> Hook:
    zone = ZoneInfo(definition.execution_timezone or "UTC")

    def hook(context: RequestContext) -> object:
        with dg.build_schedule_context(
            instance=context.instance,
            # As in Dagster, the function reads the clock of the schedule's zone.
            scheduled_execution_time=context.tick and context.tick.astimezone(zone),
            resources=resources_needed(definition, context.repository),
            repository_def=context.repository,
        ) as evaluation:
            found = definition.evaluate_tick(evaluation)
        if not found.run_requests:
            return dg.SkipReason(found.skip_message or f"{definition.name} requested no run")
        requests = [_of_all(one, definition.job_name, context) for one in found.run_requests]
        return _only(definition.name, requests)

    return hook


def _of_asset_sensor(sensor: dg.AssetSensorDefinition) -> Hook:
    function = asset_sensor_function(sensor)

    def hook(context: RequestContext) -> object:
        event, first = _last(context, EventKind.PARTITION), _first(context)
        records = context.instance.fetch_materializations(
            dg.AssetRecordsFilter(sensor.asset_key, storage_ids=[event.storage_id]), limit=1
        ).records
        if not records:
            raise LookupError(f"event {event.storage_id} is no materialization in the log any more")
        with dg.SensorEvaluationContext(
            None,
            instance=context.instance,
            # Not its first tick, which a function may skip: before the first event it had others.
            last_tick_completion_time=first.at.timestamp(),
            last_run_key=None,
            # Often the run key: as in Dagster, it is below all that this run is for, and not
            # below what another run was for.
            cursor=str(first.storage_id - 1),
            repository_name=context.repository.name,
            repository_def=context.repository,
            sensor_name=sensor.name,
            resources=resources_needed(sensor, context.repository),
        ) as evaluation:
            entry = records[0].event_log_entry
            returned = function(**asset_sensor_arguments(sensor, evaluation, entry))
            return _of_sensor(sensor.name, _decided(sensor, returned, context), context)

    return hook


def _of_run_status_sensor(sensor: dg.RunStatusSensorDefinition) -> Hook:
    def hook(context: RequestContext) -> object:
        event = _last(context, EventKind.RUN)
        assert event.run_id is not None and event.status is not None
        run = context.instance.get_run_by_id(event.run_id)
        records = context.instance.fetch_run_status_changes(
            dg.RunStatusChangeRecordsFilter(
                _EVENT_TYPES[event.status.value],  # type: ignore[arg-type]
                after_storage_id=event.storage_id - 1,
                before_storage_id=event.storage_id + 1,
            ),
            limit=1,
        ).records
        if run is None or not records:
            raise LookupError(f"run {event.run_id} is not in Dagster's storage any more")
        with dg.build_run_status_sensor_context(
            sensor_name=sensor.name,
            dagster_event=records[0].event_log_entry.get_dagster_event(),
            dagster_instance=context.instance,
            dagster_run=run,
            resources=resources_needed(sensor, context.repository),
            partition_key=event.partition,
            repository_def=context.repository,
        ) as evaluation:
            decided = _decided(sensor, sensor(evaluation), context)
            return _of_sensor(sensor.name, decided, context)

    return hook


def _first(context: RequestContext) -> Event:
    found = (event for event in context.events if event.kind is EventKind.PARTITION)
    return min(found, key=lambda event: event.storage_id)


def _last(context: RequestContext, kind: EventKind) -> Event:
    found = [event for event in context.events if event.kind is kind]
    if not found:
        raise LookupError(f"the job {context.job_id} has no event of kind {kind}")
    return max(found, key=lambda event: event.storage_id)


def _flat(returned: Any, context: RequestContext) -> Iterator[object]:
    """Yields the requests and reasons of a result of any form, and applies its other changes."""
    if returned is None:
        return
    if isinstance(returned, dg.SensorResult):
        if not context.shadowed:
            apply_changes(returned, context.instance)
        yield from returned.run_requests or ()
        if returned.skip_reason is not None:
            yield returned.skip_reason
    elif isinstance(returned, (dg.RunRequest, dg.SkipReason)):
        yield returned
    else:
        for one in returned:
            yield from _flat(one, context)


def _decided(sensor: Any, returned: Any, context: RequestContext) -> list[object]:
    return [_of_all(one, sensor.targets[0].job_name, context) for one in _flat(returned, context)]


def _of_all(one: Any, job: str, context: RequestContext) -> Any:
    """Returns a request for all assets of the job, or a reason.

    Raises a ValueError for a request of some of its assets or checks, or of another job: the
    schedule has a target.
    """
    if isinstance(one, dg.RunRequest) and one.job_name not in (None, job):
        raise ValueError(f"its RunRequest is for job {one.job_name}, and the schedule runs {job}")
    if not isinstance(one, dg.RunRequest) or not (one.asset_selection or one.asset_check_keys):
        return one
    made = context.repository.get_job(job).asset_layer.selected_asset_keys
    if one.asset_check_keys or set(one.asset_selection or ()) != set(made):
        raise ValueError("its RunRequest has an asset_selection or asset_check_keys of its own")
    return one


def _of_sensor(name: str, returned: list[object], context: RequestContext) -> object:
    requests = [one for one in returned if isinstance(one, dg.RunRequest)]
    if not requests:
        reasons = [one.skip_message for one in returned if isinstance(one, dg.SkipReason)]
        return dg.SkipReason(next(filter(None, reasons), None) or f"{name} requested no run")
    request = _only(name, requests)
    key = requests[0].run_key
    if key is None:
        return request
    before = max(event.at for event in context.events) if context.shadowed else None
    for tags in (
        {_DAGSTERS_RUN_KEY: key, _SENSOR: name},
        {ADOPTED_KEY_TAG: key, SCHEDULE_TAG: context.schedule},
    ):
        found = context.instance.get_run_records(dg.RunsFilter(tags=tags))
        # As in Dagster, those of a sensor of this name in another code location do not count.
        records = [one for one in found if _is_here(one.dagster_run, context)]
        if any(before is None or created_at(context.instance, one) < before for one in records):
            return dg.SkipReason(f"there is a run for the run key {key} of {name}")
    return request.with_replaced_attrs(tags={**request.tags, ADOPTED_KEY_TAG: key})


def _is_here(run: dg.DagsterRun, context: RequestContext) -> bool:
    origin = run.remote_job_origin
    here = origin.location_name if origin else None
    return None in (here, context.location) or here == context.location


def _only(name: str, requests: Any) -> dg.RunRequest:
    if len(requests) != 1:
        raise ValueError(f"{name} requested {len(requests)} runs, and a job makes one")
    (one,) = requests
    tags = one.tags
    if one.partition_key is not None and tags.get(_PARTITION_TAG) == one.partition_key:
        # Dagster has added what the run gets from its partition when it is requested here.
        tags = {key: value for key, value in tags.items() if not key.startswith(_PARTITION_TAG)}
    # What is left is refused, or taken.
    left: dg.RunRequest = one.with_replaced_attrs(
        run_key=None, job_name=None, asset_selection=None, asset_check_keys=None, tags=tags
    )
    return left
