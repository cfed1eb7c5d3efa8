"""Evaluates plain sensors of Dagster as sources, each in a thread of its own."""

import hashlib
import json
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import dagster as dg

from arctic_orchestration.clock import utc_now
from arctic_orchestration.dagster_internals import (
    RUN_KEY_TAG,
    InstanceRef,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
    TickStatus,
    evaluate_sensor,
    resources_needed,
)
from arctic_orchestration.event_log.escaping import escaped, is_storable
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.schedule import refused_tag
from arctic_orchestration.schedules.sources import Evaluation, SourceState
from arctic_orchestration.specification import SHORT, is_short, json_form

#: of a run that a sensor of Dagster requested
SENSOR_NAME_TAG = "dagster/sensor_name"
#: Dagster takes up no tick that its daemon left open so many seconds ago while it is stopped
_LOST = 600.0
#: run keys looked up at once
_KEYS_AT_ONCE = 500
#: how long a tick waits for the sensors that it begins; slower ones are taken in a later tick
TICK_SECONDS = 1.0
#: the length at which a key is cut for people
_SHOWN = 100
#: parts of a run request that no job of ours can carry
_UNSUPPORTED = ("asset_check_keys", "stale_assets_only", "asset_graph_subset")


def is_plain(sensor: object) -> bool:
    """Returns whether it is a sensor of user code alone: no asset, run status or other kind."""
    return type(sensor) is dg.SensorDefinition


@dataclass
class _Call:
    """A running evaluation."""

    state: SourceState
    #: whether this tick has begun it
    began: bool
    done: threading.Event = field(default_factory=threading.Event)
    result: Evaluation | None = None


class CodeSources:
    """The sources that a code location declares."""

    def __init__(
        self, sensors: Sequence[dg.SensorDefinition], repository: dg.RepositoryDefinition
    ) -> None:
        self._sensors = {sensor.name: sensor for sensor in sensors}
        self._repository = repository
        self._reference: InstanceRef | None = None
        self._location: str | None = None
        self._calls: dict[str, _Call] = {}

    def renew(self, reference: InstanceRef, location: str | None) -> None:
        """Takes the instance of the present tick, and the name of the code location if known."""
        self._reference, self._location = reference, location

    @property
    def _given(self) -> InstanceRef:
        assert self._reference is not None
        return self._reference

    @property
    def intervals(self) -> Mapping[str, timedelta]:
        return {
            name: timedelta(seconds=sensor.minimum_interval_seconds or 0)
            for name, sensor in self._sensors.items()
        }

    def evaluate(self, due: Sequence[SourceState]) -> Sequence[Evaluation]:
        """Begins the evaluations, and returns those that have ended after some seconds.

        Only the tick that begins an evaluation waits for it.
        """
        until = time.monotonic()
        for state in due:
            if state.name not in self._calls:
                until = time.monotonic() + TICK_SECONDS
                call = self._calls[state.name] = _Call(state, began=True)
                threading.Thread(
                    target=self._call, args=(call,), daemon=True, name=f"source {state.name}"
                ).start()
        ended = []
        for state in due:
            call = self._calls[state.name]
            seconds = until - time.monotonic() if call.began else 0.0
            call.began = False
            if call.done.wait(max(0.0, seconds)):
                del self._calls[state.name]
                assert call.result is not None
                ended.append(call.result)
        return ended

    def _call(self, call: _Call) -> None:
        try:
            call.result = self._result(call.state)
        except BaseException as error:
            # Also SystemExit, which would end the thread without a result.
            call.result = Evaluation(
                state=call.state, problem=escaped(f"its sensor failed: {error!r}")
            )
        finally:
            call.done.set()

    def _result(self, state: SourceState) -> Evaluation:
        sensor, at = self._sensors[state.name], state.evaluated_at
        if state.name in self.adopted:
            with dg.DagsterInstance.from_ref(self._given) as instance:
                state = self._begun(sensor, state, instance)
        with dg.SensorEvaluationContext(
            self._given,
            last_tick_completion_time=at.timestamp() if at else None,
            last_run_key=state.last_run_key,
            cursor=state.cursor,
            repository_name=self._repository.name,
            repository_def=self._repository,
            sensor_name=sensor.name,
            resources=resources_needed(sensor, self._repository),
        ) as context:
            found = evaluate_sensor(sensor, context)
            cursor, skipped = context.cursor, None
            requests: list[dg.RunRequest] = []
            for item in found:
                if isinstance(item, dg.SensorResult):
                    apply_changes(item, context.instance)
                    requests += item.run_requests or []
                    skipped = item.skip_reason.skip_message if item.skip_reason else skipped
                    cursor = item.cursor or cursor
                elif isinstance(item, dg.RunRequest):
                    requests.append(item)
                elif isinstance(item, dg.SkipReason):
                    skipped = item.skip_message or "it gave no reason"
                elif item is not None:
                    raise TypeError(f"it returned {type(item).__name__}, expected run requests")
        if cursor is not None and not is_storable(cursor):
            raise ValueError(f"its cursor is {cursor!r}, expected text that a database can hold")
        if requests:
            skipped = None
        return Evaluation(
            state=state,
            requests=[_event(sensor, request) for request in requests],
            cursor=cursor,
            skipped=None if skipped is None else escaped(skipped),
        )

    @property
    def adopted(self) -> Collection[str]:
        return [name for name in self._sensors if self._repository.has_sensor_def(name)]

    def launched(self, name: str, run_keys: Sequence[str]) -> Collection[str]:
        """Returns the run keys of the runs that Dagster has made for its own sensor."""
        found: set[str] = set()
        with dg.DagsterInstance.from_ref(self._given) as instance:
            for first in range(0, len(run_keys), _KEYS_AT_ONCE):
                tags = {
                    SENSOR_NAME_TAG: name,
                    RUN_KEY_TAG: run_keys[first : first + _KEYS_AT_ONCE],
                }
                for run in instance.get_runs(dg.RunsFilter(tags=tags)):
                    origin = run.remote_job_origin
                    here = origin.location_name if origin else None
                    if None in (here, self._location) or here == self._location:
                        found.add(run.tags[RUN_KEY_TAG])
        return found

    def _begun(
        self, sensor: dg.SensorDefinition, state: SourceState, instance: dg.DagsterInstance
    ) -> SourceState:
        """Returns the state to evaluate: the first one is where Dagster's own sensor was stopped.

        Raises a RuntimeError while Dagster evaluates it: each request would be two runs.
        """
        if not self._repository.has_sensor_def(sensor.name):
            return state
        status = self._repository.get_sensor_def(sensor.name).default_status
        runs, data = status is dg.DefaultSensorStatus.RUNNING, None
        for one in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
            here = one.repository_selector.location_name
            if one.instigator_name != sensor.name or self._location not in (None, here):
                continue
            data = one.instigator_data
            if one.status is not InstigatorStatus.DECLARED_IN_CODE:
                runs = one.is_running
            ticks = instance.get_ticks(one.instigator_origin_id, one.selector_id, limit=1)
            is_open = ticks and ticks[0].status is TickStatus.STARTED
            if is_open and not state.tick and ticks[0].timestamp > utc_now().timestamp() - _LOST:
                raise RuntimeError("Dagster has not ended the last tick of the sensor")
        if runs:
            raise RuntimeError("Dagster runs the sensor itself: stop it there first")
        if state.tick or not isinstance(data, SensorInstigatorData):
            return state
        return replace(state, cursor=data.cursor, last_run_key=data.last_run_key)


def apply_changes(result: dg.SensorResult, instance: dg.DagsterInstance) -> None:
    """Applies what else a result holds: its changes of partitions, which may be repeated.

    Raises a ValueError for events: a repeated call would store them twice.
    """
    if result.asset_events:
        raise ValueError(
            f"its result has {len(result.asset_events)} asset_events, which a source or a request "
            "hook cannot have: report them with context.instance.report_runless_asset_event"
        )
    for change in result.dynamic_partitions_requests or ():
        name, keys = change.partitions_def_name, list(change.partition_keys)
        if isinstance(change, dg.AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(name, keys)
        else:
            for key in keys:
                instance.delete_dynamic_partition(name, key)


def _event(sensor: dg.SensorDefinition, request: dg.RunRequest) -> Event:
    """Returns the event of a run request; one that no run can be made of says why."""
    event = Event(kind=EventKind.REQUEST, subject=sensor.name, at=utc_now())
    key = _storable_key(request.run_key)
    try:
        return _checked(event, sensor, request)
    except Exception as error:
        job = escaped(request.job_name) if request.job_name else None
        return replace(event, run_key=key, job=job, problem=escaped(str(error)))


def _storable_key(run_key: str | None) -> str | None:
    """Returns the run key under which a request is known, however odd its own one is."""
    key = escaped(run_key or "")
    if not is_short(key):
        # By its digest it is one key: a request that is repeated fails once.
        key = f"{key[:_SHOWN]}...{hashlib.sha256(key.encode()).hexdigest()}"
    return key or None


def _checked(event: Event, sensor: dg.SensorDefinition, request: dg.RunRequest) -> Event:
    for name in _UNSUPPORTED:
        if getattr(request, name):
            raise ValueError(f"it has {name}, which a source cannot have")
    for key in request.tags:
        if (expected := refused_tag(key)) is not None:
            raise ValueError(f"tag {key}: expected {expected}")
    job = request.job_name or _only_job(sensor)
    assets = [key.to_user_string() for key in request.asset_selection or ()]
    texts = [request.run_key, request.partition_key, job, *assets]
    for text in (*texts, *request.tags, *request.tags.values()):
        if text is not None and not is_storable(text):
            raise ValueError(f"it has {text!r}, expected text that a database can hold")
    for name in ("run_key", "partition_key"):
        text = getattr(request, name) or ""
        if not is_short(text):
            raise ValueError(f"{name}: got {text[:_SHOWN]!r}..., expected {SHORT}")
    try:
        config = json_form(dict(request.run_config))
    except ValueError as error:
        raise ValueError(f"run_config: expected {error}") from None
    if not is_storable(json.dumps(config, ensure_ascii=False)):
        raise ValueError("run_config: expected values that a database can hold")
    return replace(
        event,
        run_key=request.run_key or None,
        job=job,
        partition=request.partition_key,
        assets=tuple(assets),
        tags=dict(request.tags),
        run_config=config or None,
    )


def _only_job(sensor: dg.SensorDefinition) -> str | None:
    """Returns the job that a sensor's requests are for; None: assets, several jobs, or none."""
    names = [target.job_name for target in sensor.targets]
    return names[0] if len(names) == 1 and not names[0].startswith("__") else None
