"""What each schedule and sensor of a repository becomes, with the report of an import."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from arctic_orchestration.dagster_internals import (
    NamedTargetsSensor,
    constant_request,
    execution_times,
    partitioned_schedule_tags,
    runs_watched,
    skips_excluded_windows,
)
from arctic_orchestration.partitioning import windows
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.dagster.adoption.conditions import draft_condition
from arctic_orchestration.schedules.dagster.adoption.python_form import python_of
from arctic_orchestration.schedules.dagster.adoption.targets import (
    of_partitions,
    one_job,
    target_of,
    target_of_sensor,
)
from arctic_orchestration.schedules.dagster.partitioned_targets import without_partitions
from arctic_orchestration.schedules.dagster.sources import is_plain
from arctic_orchestration.schedules.imports.draft import Draft, Names, NotPossible, Options, Outcome
from arctic_orchestration.schedules.imports.importer import Import
from arctic_orchestration.schedules.schedule import Schedule

#: how many ticks of Dagster's iterator are compared with ours, from now on and at clock changes
_COMPARED = 60
_BEFORE_CHANGE = timedelta(hours=4)
_INSTANT = timedelta(microseconds=1)
_STATUSES = {
    dg.DagsterRunStatus.SUCCESS: "success",
    dg.DagsterRunStatus.FAILURE: "failure",
    dg.DagsterRunStatus.CANCELED: "canceled",
    dg.DagsterRunStatus.STARTED: "started",
}
_OUTSIDE = (
    "its function looks for something outside of Dagster, so no place is known at which it ends in "
    "Dagster and begins here: a tick that Dagster evaluates at its stop may request the same"
)
_OWN_PARTITION = (
    "its job has partitions: a schedule gets them from its trigger, so a run that the function "
    "requests for a partition fails; see cron: partition"
)
_HOOK = "its function decides about each run: it becomes the request hook, which YAML cannot have"


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """An object of Dagster, and the schedule that it becomes."""

    name: str
    #: schedule, asset_sensor, run_status_sensor, run_failure_sensor, multi_asset_sensor, sensor,
    #: automation_condition
    kind: str
    draft: Draft
    definition: Any = None
    #: the expression of the request hook, if it needs one
    hook: str | None = None

    @property
    def outcome(self) -> Outcome:
        return self.draft.outcome

    @property
    def schedule(self) -> Schedule | None:
        """The schedule, without its request hook; None: there is none."""
        form = self.draft.form
        return None if form is None else Schedule.parse(form, field=self.name)

    @property
    def python(self) -> str | None:
        form = self.draft.form
        return None if form is None else python_of(form, self.hook)

    @property
    def needs_python(self) -> bool:
        return self.hook is not None or self.kind == "sensor"

    @property
    def yaml(self) -> str | None:
        """The schedule as a file; None: there is none, or it would lack its function."""
        if self.draft.form is None or self.needs_python:
            return None
        return Import(drafts=[self.draft]).to_yaml()

    def to_json(self) -> dict[str, Any]:
        report = self.draft.to_json()
        return {
            **{key: report[key] for key in ("name", "outcome", "reasons", "notes")},
            "source": self.name,
            "kind": self.kind,
            "needs_python": self.needs_python,
            "schedule": self.draft.form,
            "python": self.python,
            "yaml": self.yaml,
        }


def drafts_of(repository: dg.RepositoryDefinition, now: datetime) -> list[Drafted]:
    """Returns what the schedules, sensors and conditions of a repository become, by name."""
    names, options = Names(), Options(now=now)
    found: list[Drafted] = []
    for schedule in repository.schedule_defs:
        draft = Draft(source=schedule.name, names=names, options=options)
        found.append(_drafted(schedule.name, "schedule", draft, schedule, repository))
    for sensor in repository.sensor_defs:
        # Ours decide for what is adopted, and for tasks, tables and consumers.
        if not isinstance(sensor, NamedTargetsSensor):
            draft = Draft(source=sensor.name, names=names, options=options)
            found.append(_drafted(sensor.name, _kind(sensor), draft, sensor, repository))
    for key in sorted(repository.asset_graph.get_all_asset_keys()):
        condition = repository.asset_graph.get(key).automation_condition
        if condition is not None:
            name = f"asset:{key.to_user_string()}"
            draft = Draft(source=name, names=names, options=options)
            found.append(_drafted(name, "automation_condition", draft, key, repository))
    return sorted(found, key=lambda one: one.name)


def _kind(sensor: dg.SensorDefinition) -> str:
    if isinstance(sensor, dg.RunStatusSensorDefinition):
        failed = runs_watched(sensor).status is dg.DagsterRunStatus.FAILURE
        return "run_failure_sensor" if failed else "run_status_sensor"
    if isinstance(sensor, dg.AssetSensorDefinition):
        return "asset_sensor"
    if isinstance(sensor, dg.MultiAssetSensorDefinition):
        return "multi_asset_sensor"
    if isinstance(sensor, dg.AutomationConditionSensorDefinition):
        return "automation_condition_sensor"
    return "sensor"


def _drafted(
    name: str, kind: str, draft: Draft, definition: Any, repository: dg.RepositoryDefinition
) -> Drafted:
    hook = None
    try:
        match kind:
            case "schedule":
                hook = _schedule(draft, definition, repository)
            case "asset_sensor":
                hook = _asset_sensor(draft, definition, repository)
            case "run_status_sensor" | "run_failure_sensor":
                hook = _run_status_sensor(draft, definition, repository)
            case "multi_asset_sensor":
                raise NotPossible(
                    "its function reads the events and moves the cursor itself: write the trigger "
                    "for what it looks for, such as on.partitions(...) & on.partitions(...)"
                )
            case "automation_condition":
                draft_condition(draft, definition, repository)
            case "automation_condition_sensor":
                raise NotPossible(
                    "Dagster evaluates the conditions of all its assets together: see asset:NAME"
                )
            case _:
                _plain_sensor(draft, definition, repository)
    except NotPossible as reason:
        draft.refuse(str(reason))
    return Drafted(name=name, kind=kind, draft=draft, definition=definition, hook=hook)


def _schedule(
    draft: Draft, definition: dg.ScheduleDefinition, repository: dg.RepositoryDefinition
) -> str | None:
    crons, zone = _crons(definition), definition.execution_timezone or "UTC"
    of_time = _windows(definition.job_name, repository)
    of_partition: dict[str, Any] = {}
    form: dict[str, Any] = {"description": definition.description or ""}
    constant, partitioned = constant_request(definition), partitioned_schedule_tags(definition)
    hook = None
    if constant is not None:
        form["run_config"], form["tags"] = constant
    elif partitioned is not None and of_time is not None:
        # Dagster runs the last partition that exists, which need not be the last that ended.
        of_partition, form["partitions"] = {"partition": "last_ended"}, "each"
        if of_time.end_offset:
            of_partition["offset"] = of_time.end_offset
        if skips_excluded_windows(definition):
            hook = f"request_of({definition.name})"
            draft.note(_HOOK)
        else:
            form["tags"] = partitioned
    elif partitioned is not None:
        raise NotPossible(
            f"it requests runs of several partitions of {definition.job_name} at a tick, and a "
            "schedule with a cron trigger that of a time window"
        )
    else:
        hook = f"request_of({definition.name})"
        draft.note(_HOOK)
        if repository.get_job(definition.job_name).partitions_def is not None:
            draft.differs(_OWN_PARTITION)
    triggers = [{"cron": {"expression": c, "timezone": zone, **of_partition}} for c in crons]
    draft.finish(
        name=draft.names.schedule(definition.name, draft),
        target=target_of(definition.job_name, repository, draft),
        trigger=triggers[0] if len(triggers) == 1 else {"any_of": triggers},
        **form,
    )
    _compare_ticks(draft, definition, of_time if of_partition else None)
    return hook


def _crons(definition: dg.ScheduleDefinition) -> Sequence[str]:
    crons = definition.cron_schedule
    return [crons] if isinstance(crons, str) else list(crons)


def _windows(
    job: str, repository: dg.RepositoryDefinition
) -> dg.TimeWindowPartitionsDefinition | None:
    found = repository.get_job(job).partitions_def
    return found if isinstance(found, dg.TimeWindowPartitionsDefinition) else None


def _compare_ticks(
    draft: Draft,
    definition: dg.ScheduleDefinition,
    of_time: dg.TimeWindowPartitionsDefinition | None,
) -> None:
    """Names the first tick that differs here from Dagster, also at clock changes.

    With partitions, also the first tick for another partition, also at their end.
    """
    if draft.form is None:
        return
    leaves = Schedule.parse(draft.form).trigger.leaves
    now, zone = draft.options.now, ZoneInfo(definition.execution_timezone or "UTC")
    begins = [now, *(change - _BEFORE_CHANGE for change in _clock_changes(now, zone))]
    if of_time is not None and of_time.end is not None:
        last = windows.ends(of_time, now, of_time.end, _COMPARED // 2)
        begins += [end for end, _ in last[:1]]
    for begin in begins:
        # Dagster's iterator begins with a tick at that moment.
        at = begin - _INSTANT
        for tick in islice(execution_times(definition, begin.timestamp()), _COMPARED):
            nexts = [leaf.next_tick(at, definition.name) for leaf in leaves]
            our = min(moment for moment in nexts if moment is not None)
            # In UTC: a moment that the clocks show twice equals no moment of another zone.
            if our != tick.astimezone(UTC):
                draft.differs(
                    f"cron_schedule: after {format_moment(at)} Dagster ticks at "
                    f"{format_moment(tick.astimezone(UTC))}, this trigger at {format_moment(our)}"
                )
                return
            at = our
            if of_time is None:
                continue
            with dg.partition_loading_context(effective_dt=tick):
                theirs = of_time.get_last_partition_key()
            ours = windows.last_ended(of_time, at, of_time.end_offset)
            if ours != theirs:
                draft.differs(
                    f"partition: at {format_moment(at)} Dagster runs {theirs or 'none'}, this "
                    f"trigger {ours or 'none'}"
                )
                return


def _clock_changes(now: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yields the hours of the next year in which the clocks of a zone change."""
    hour = timedelta(hours=1)
    at = now.replace(minute=0, second=0, microsecond=0)
    for _ in range(366):
        if at.astimezone(zone).utcoffset() != (at + 24 * hour).astimezone(zone).utcoffset():
            hours = (at + number * hour for number in range(24))
            yield next(
                one
                for one in hours
                if one.astimezone(zone).utcoffset() != (one + hour).astimezone(zone).utcoffset()
            )
        at += 24 * hour


def _asset_sensor(
    draft: Draft, sensor: dg.AssetSensorDefinition, repository: dg.RepositoryDefinition
) -> str:
    _check_interval(sensor)
    asset = sensor.asset_key.to_user_string()
    graph = repository.asset_graph
    if not graph.has(sensor.asset_key):
        raise NotPossible(f"asset_key: {asset} is no asset of this code location")
    same = [key for key in graph.get_all_asset_keys() if key.to_user_string() == asset]
    if len(same) > 1:
        raise NotPossible(f"asset_key: {asset} is the name of {len(same)} assets for a trigger")
    if graph.get(sensor.asset_key).is_observable:
        draft.differs(f"an observation of {asset} is an arrival here, and nothing for the sensor")
    checks = map(graph.get, graph.get_check_keys_for_assets({sensor.asset_key}))
    if any(check.blocking for check in checks):
        draft.differs(
            f"an arrival of {asset} whose blocking check has failed counts when the check passes"
        )
    draft.note(_HOOK)
    trigger = {"partitions": {"asset": asset}}
    _finish(draft, sensor, repository, trigger, **of_partitions(one_job(sensor), repository))
    return f"request_of({sensor.name})"


def _plain_sensor(
    draft: Draft, sensor: dg.SensorDefinition, repository: dg.RepositoryDefinition
) -> None:
    if not is_plain(sensor):
        raise NotPossible(f"it is a {type(sensor).__name__}, which no part of a schedule is like")
    if not sensor.targets and sensor.asset_selection is None:
        raise NotPossible("it requests no runs: keep it")
    draft.differs(_OUTSIDE)
    if len(sensor.targets) > 1:
        jobs = ", ".join(target.job_name for target in sensor.targets)
        raise NotPossible(
            f"jobs: {jobs}: a schedule has one target. Declare the sensor as a source, and a "
            f"schedule for each job: on.requests({sensor.name}, job=...)"
        )
    draft.note(
        f"it stays in the code, as a source: Arctic(sources=[{sensor.name}], schedules=[...]). By "
        "hand: deploy the schedule suspended, stop the sensor in Dagster, and enable the schedule "
        "when its last tick has ended. It begins at the cursor of Dagster's sensor, and takes no "
        "run key of which Dagster has made a run"
    )
    _finish(draft, sensor, repository, {"requests": {"sensor": sensor.name}})


def _run_status_sensor(
    draft: Draft, sensor: dg.RunStatusSensorDefinition, repository: dg.RepositoryDefinition
) -> str:
    _check_interval(sensor)
    watched = runs_watched(sensor)
    if watched.status not in _STATUSES:
        expected = ", ".join(sorted(_STATUSES.values()))
        raise NotPossible(f"run_status: {watched.status.value}: a trigger takes {expected}")
    if not sensor.targets:
        raise NotPossible("it requests no runs: keep it, or use a channel of notifications")
    triggers = list(_watched(watched.jobs, watched.everywhere, _STATUSES[watched.status]))
    draft.note(_HOOK)
    trigger = triggers[0] if len(triggers) == 1 else {"any_of": triggers}
    more = {"coalesce": False, **of_partitions(one_job(sensor), repository)}
    _finish(draft, sensor, repository, trigger, **more)
    return f"request_of({sensor.name})"


def _finish(
    draft: Draft,
    sensor: dg.SensorDefinition,
    repository: dg.RepositoryDefinition,
    trigger: Mapping[str, Any],
    **more: Any,
) -> None:
    draft.finish(
        name=draft.names.schedule(sensor.name, draft),
        description=sensor.description or "",
        target=target_of_sensor(sensor, repository, draft),
        trigger=trigger,
        **more,
    )
    schedule = None if draft.form is None else Schedule.parse(draft.form)
    if schedule is not None and (names := without_partitions(schedule, repository, some=True)):
        draft.differs(
            f"partitions: its function may request one for what has none, as {', '.join(names)}; "
            "a schedule gets them from its trigger, and makes no run for it"
        )


def _watched(jobs: Sequence[Any], everywhere: bool, status: str) -> Iterator[dict[str, Any]]:
    if everywhere or not jobs:
        raise NotPossible("it watches all jobs, and a trigger names each job: see monitored_jobs")
    for job in jobs:
        # A selector of a repository names no job.
        named = getattr(job, "job_name", None) or getattr(job, "name", None)
        if named is None:
            raise NotPossible("it watches all jobs of a code location, and a trigger names each")
        place = getattr(job, "location_name", None)
        fields = {} if place is None else {"location": place}
        yield {"run": {"job": named, "status": status, **fields}}


def _check_interval(sensor: dg.SensorDefinition) -> None:
    if sensor.minimum_interval_seconds == 0:
        raise NotPossible(
            "minimum_interval_seconds: 0: Dagster may evaluate it after its stop; give it 1 or more"
        )
