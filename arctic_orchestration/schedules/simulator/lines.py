"""The lines of a timeline: events around the scheduler, and actions of people.

Each line is a JSON object with ``at``, a moment, and either ``event`` or ``do``:

===================  =======================================================================
``event``            fields (an asterisk: required)
===================  =======================================================================
``partition``        ``asset``*, ``partition``, ``bytes``, ``rows``, ``metadata``,
                     ``data_version``, ``run_id``, ``backfill`` (the id of the backfill that
                     made it), ``checks`` (asset checks that its run is going to evaluate)
``run``              ``job``, ``assets`` or both*, ``status``*, ``run_id``, ``location``,
                     ``partition``, ``tags``
``check``            ``asset``*, ``check``*, ``partition``, ``passed`` (true), ``severity``
                     (``error``; ``warn``), ``blocking`` (false): of the latest arrival
``freshness``        ``asset``*, ``state``*: the state to which the freshness policy changes
===================  =======================================================================

===================  =======================================================================
``do``               fields
===================  =======================================================================
``suspend``          ``schedule``*; ``resume`` and ``delete`` likewise
``update``           ``schedule``, ``schedule_spec``*
``deploy``           ``file``* (beside the timeline), ``update_schedules`` (true), ``gone``
                     (targets that the code no longer has: jobs, or assets)
``crash``            the dispatcher dies; ``restart`` starts a new one
``start_run``        ``job``, ``assets`` or both*, ``run_id``: a run that no schedule requested
``end_run``          ``schedule`` (its latest run) or ``run_id``*, ``status`` (success),
                     ``started`` (true; false: it failed before it ever started)
``load``             ``value``*, ``probe`` (runs): the measured load from now on
``advance``          lets time pass up to this line
===================  =======================================================================
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.quantities import YEARS, in_calendar
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.specification import Specification


def parse_moment(value: object) -> datetime:
    """Parses a moment in ISO 8601 with a zone, such as ``2026-01-01T00:00:00Z``; returns it in UTC.

    Errors:
        ValueError: anything else, text without a zone, and moments from which no timeout can be
            counted: outside of the years that events have.
    """
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        moment = moment.astimezone(UTC) if moment is not None and moment.tzinfo else None
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise ValueError("a moment of ISO 8601 with its zone, such as 2026-01-01T00:00:00Z")
    if not in_calendar(moment):
        raise ValueError(f"a moment in {YEARS}")
    return moment


def format_moment(value: datetime) -> str:
    """Returns the text that :func:`parse_moment` reads as ``value``."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


Moment = Annotated[datetime, BeforeValidator(parse_moment)]
Name = Annotated[str, Field(min_length=1)]
Amount = Annotated[int, Field(ge=0, strict=True)]
Ended = Literal[RunStatus.SUCCESS, RunStatus.FAILURE, RunStatus.CANCELED]


class Line(Specification):
    """One line; ``place`` is its position, such as ``timeline.jsonl:12``."""

    place: str = Field(default="", exclude=True, repr=False)
    at: Moment

    def refused(self, field: str, value: object, expected: str) -> InvalidInput:
        """Returns the error for an invalid value of one of its fields."""
        return InvalidInput(f"{self.place}.{field}", value, expected)


class PartitionArrives(Line):
    """A partition of an asset arrives."""

    event: Literal["partition"]
    asset: Name
    partition: Name | None = None
    bytes: Amount | None = None
    rows: Amount | None = None
    metadata: Mapping[str, Any] = Field(default_factory=dict)
    data_version: Name | None = None
    run_id: Name | None = None
    backfill: Name | None = None
    checks: tuple[Name, ...] = ()


class CheckEvaluated(Line):
    """A check of an asset is evaluated, for the latest arrival of the partition."""

    event: Literal["check"]
    asset: Name
    check: Name
    partition: Name | None = None
    passed: bool = Field(default=True, strict=True)
    severity: Literal["error", "warn"] = "error"
    blocking: bool = Field(default=False, strict=True)


class FreshnessChanges(Line):
    """The freshness policy of an asset changes its state."""

    event: Literal["freshness"]
    asset: Name
    state: Literal["pass", "warn", "fail", "unknown"]


class RunRequested(Line):
    """A sensor that is a source requests a run."""

    event: Literal["request"]
    sensor: Name
    job: Name | None = None
    run_key: Name | None = None
    partition: Name | None = None
    tags: Mapping[str, str] = Field(default_factory=dict)


class _OfTarget(Line):
    job: Name | None = None
    assets: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _some_target(self) -> Self:
        if self.job is None and not self.assets:
            raise ValueError("either job or assets, or both")
        return self


class RunReaches(_OfTarget):
    """A run reaches a status, whatever requested it."""

    event: Literal["run"]
    status: RunStatus
    run_id: Name | None = None
    location: Name | None = None
    partition: Name | None = None
    tags: Mapping[str, str] = Field(default_factory=dict)


class StartRun(_OfTarget):
    """A run starts that no schedule requested; it is active until a line ends it."""

    do: Literal["start_run"]
    run_id: Name | None = None


class EndRun(Line):
    """A run ends: the latest one of a schedule, or the one with an id."""

    do: Literal["end_run"]
    schedule: Name | None = None
    run_id: Name | None = None
    status: Ended = RunStatus.SUCCESS
    started: bool = Field(default=True, strict=True)

    @model_validator(mode="after")
    def _one_run(self) -> Self:
        if (self.schedule is None) == (self.run_id is None):
            raise ValueError("either schedule or run_id")
        return self


class OnSchedule(Line):
    """A person suspends, resumes or deletes a schedule."""

    do: Literal["suspend", "resume", "delete"]
    schedule: Name


class Update(Line):
    """A person gives a schedule another specification."""

    do: Literal["update"]
    schedule: Name
    schedule_spec: Schedule


class Deploy(Line):
    """New code is deployed; a file contains the schedules it declares."""

    do: Literal["deploy"]
    file: Name
    update_schedules: bool = Field(default=True, strict=True)
    gone: tuple[Name, ...] = ()
    schedules: tuple[Schedule, ...] = Field(default=(), exclude=True, repr=False)


class Process(Line):
    """The dispatcher dies, or a new one starts; or time passes."""

    do: Literal["crash", "restart", "advance"]


class SetLoad(Line):
    """From now on a probe measures another load."""

    do: Literal["load"]
    probe: Literal["runs", "cpu", "memory", "spark"] = "runs"
    value: float = Field(ge=0, allow_inf_nan=False)


_EVENTS: dict[str, type[Line]] = {
    "partition": PartitionArrives,
    "run": RunReaches,
    "check": CheckEvaluated,
    "freshness": FreshnessChanges,
    "request": RunRequested,
}
_DEEDS: dict[str, type[Line]] = {
    "suspend": OnSchedule,
    "resume": OnSchedule,
    "delete": OnSchedule,
    "update": Update,
    "deploy": Deploy,
    "crash": Process,
    "restart": Process,
    "advance": Process,
    "start_run": StartRun,
    "end_run": EndRun,
    "load": SetLoad,
}
#: Fields of the models that no line has.
_OURS = ("place", "schedules")


def parse_line(form: object, place: str) -> Line:
    """Parses a line from a loaded JSON object.

    Errors:
        InvalidDefinition: names every field, its value and what was expected.
    """
    if not isinstance(form, Mapping):
        raise InvalidDefinition([InvalidInput(place, form, "an object with at, and event or do")])
    kind = _kind_of(form, place)
    ours = [
        InvalidInput(f"{place}.{key}", form[key], "no such field") for key in _OURS if key in form
    ]
    if ours:
        raise InvalidDefinition(ours)
    fields = dict(form)
    problems: Sequence[InvalidInput] = ()
    if kind is Update:
        problems = _read_specification(fields, place)
    try:
        line = kind.parse({**fields, "place": place}, field=place)
    except InvalidDefinition as error:
        raise InvalidDefinition([*_without_missing(error, problems), *problems]) from None
    if problems:
        raise InvalidDefinition(problems)
    return line


def _kind_of(form: Mapping[str, Any], place: str) -> type[Line]:
    if ("event" in form) == ("do" in form):
        raise InvalidDefinition([InvalidInput(place, dict(form), "either event or do")])
    key, kinds = ("event", _EVENTS) if "event" in form else ("do", _DEEDS)
    kind = kinds.get(form[key]) if isinstance(form[key], str) else None
    if kind is None:
        expected = f"one of {', '.join(kinds)}"
        raise InvalidDefinition([InvalidInput(f"{place}.{key}", form[key], expected)])
    return kind


def _read_specification(fields: dict[str, Any], place: str) -> Sequence[InvalidInput]:
    """Replaces the form of a schedule by the schedule; the names in both places must agree."""
    if "schedule_spec" not in fields:
        return ()
    form, field = fields.pop("schedule_spec"), f"{place}.schedule_spec"
    if isinstance(form, Mapping):
        fields.setdefault("schedule", form.get("name"))
        form = {"name": fields["schedule"], **form}
    try:
        spec = fields["schedule_spec"] = Schedule.parse(form, field=field)
    except InvalidDefinition as error:
        return error.problems
    if spec.name != fields["schedule"]:
        return [InvalidInput(f"{field}.name", spec.name, f"{fields['schedule']}, or no name")]
    return ()


def _without_missing(
    error: InvalidDefinition, others: Sequence[InvalidInput]
) -> list[InvalidInput]:
    """Returns the problems, without "missing" for a specification that has problems of its own."""
    return [
        problem
        for problem in error.problems
        if not (others and problem.field.endswith(".schedule_spec"))
    ]
