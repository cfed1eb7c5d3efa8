"""The batch file: tasks in one JSON file.

::

    {
      "name": "delays",
      "timezone": "America/New_York",
      "concurrency": 2,
      "tasks": [
        {
          "name": "worst_routes",
          "sql": "select origin, dest, avg(mean_dep_delay) as delay from routes group by all",
          "reads": {"routes": "nyc.delays_by_route"},
          "table": "nyc.worst_routes",
          "dependencies": ["flights"],
          "dependenciesWithMeta": {"delays_by_route": {"freshnessCriteriaInHours": 24}},
          "freshnessCriteriaInHours": 12
        }
      ]
    }

Loading a file reports every error at once, each with its path, and the errors between its tasks:
duplicate names and cycles. Making definitions checks whether parents of other batches exist and
whether callables can be imported.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.freshness.criteria import LONGEST_NAME, Hours, Parent, TaskName, TaskSpec
from arctic_orchestration.freshness.graph import TaskGraph, cycle_problem
from arctic_orchestration.quantities import Duration, PositiveDuration
from arctic_orchestration.specification import Specification
from arctic_orchestration.yaml_file import load
from arctic_orchestration.zones import ZoneName

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What Dagster takes as names of jobs and groups.
_DAGSTER_NAME = re.compile(r"[A-Za-z0-9_]+")
_KEY = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")
_CALLABLE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: Iceberg's namespaces nest, and Dagster's keys have no dots.
_TABLE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")

_DURATION_LOOK = {
    "type": "string",
    "pattern": r"^([0-9]+(\.[0-9]+)?(ms|d|h|m|s))+$",
    "examples": ["90s", "2m", "1h30m"],
}


def _fitting(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(expected)
        return value

    return AfterValidator(check)


def _some_text(value: str) -> str:
    if not value.strip():
        raise ValueError("text that is not empty")
    return value


def _day(value: object) -> object:
    # pydantic reads numbers as seconds since 1970.
    if isinstance(value, date) or (isinstance(value, str) and _DAY.fullmatch(value)):
        return value
    raise ValueError("a day such as 2026-01-01")


def _skip_reason(value: object) -> object:
    if isinstance(value, bool):
        return value
    # "false" as a reason would skip the task.
    if isinstance(value, str) and value.strip().lower() not in ("", "true", "false", "yes", "no"):
        return value
    raise ValueError("true, false, or the reason as text")


_BatchName = Annotated[str, _fitting(_DAGSTER_NAME, "letters, digits and _")]
_ColumnName = Annotated[str, _fitting(_NAME, "letters, digits and _, not beginning with a digit")]
_TaskName = Annotated[
    TaskName, _fitting(_KEY, "names of letters, digits, _, - and ., with slashes between them")
]
_Callable = Annotated[
    str, _fitting(_CALLABLE, "module:function, as in my_lake.reports:worst_routes")
]
_Table = Annotated[
    str, _fitting(_TABLE, "the name of a table with its namespace, as in nyc.flights")
]
_Text = Annotated[str, AfterValidator(_some_text)]
_Span = Annotated[PositiveDuration, WithJsonSchema(_DURATION_LOOK)]
_Pause = Annotated[Duration, WithJsonSchema(_DURATION_LOOK)]
_Skip = Annotated[bool | str, PlainValidator(_skip_reason, json_schema_input_type=bool | str)]
_Day = Annotated[date, BeforeValidator(_day)]
_Retries = Annotated[int, Field(ge=0, le=100, strict=True)]


class _Written(Specification):
    """Accepts Python's field names in JSON's form: ``freshnessCriteriaInHours``."""

    model_config = ConfigDict(alias_generator=to_camel)


class DependencyMeta(_Written):
    """The freshness that a task requires of one parent."""

    freshness_criteria_in_hours: Hours = Field(
        description="The parent's last success is at most so many hours old."
    )


class BatchTask(_Written):
    """One task of a batch: its work and the freshness that it requires of its parents."""

    name: _TaskName = Field(
        description="Its name among all tasks of all clusters: an asset's key with slashes, or "
        "a job's name."
    )
    description: str = Field(default="", description="Shown in Dagster's UI; may be Markdown.")
    kind: Literal["asset", "job"] = Field(
        default="asset",
        description="An asset has a partition a day and may write a table; a job does neither.",
    )
    sql: Annotated[
        _Text | None,
        Field(description="One Spark SQL query. It may use :partition, the day of the partition."),
    ] = None
    python: Annotated[
        _Callable | None,
        Field(
            description="module:function instead of SQL. It is "
            "called with the TaskRun, and may return a DataFrame for the table."
        ),
    ] = None
    reads: Mapping[str, _Table] = Field(
        default_factory=dict,
        description="Iceberg tables by the names under which the query sees them.",
    )
    table: Annotated[
        _Table | None,
        Field(
            description="The Iceberg table that gets the rows, "
            "those of the partition instead of what it had of that. It is made if it is not there."
        ),
    ] = None
    partition_column: _ColumnName = Field(
        default="as_of", description="The column of the table that holds the partition's day."
    )
    dependencies: tuple[TaskName, ...] = Field(
        default=(), description="Parents that must have been made since the start of today."
    )
    dependencies_with_meta: Mapping[str, DependencyMeta] = Field(
        default_factory=dict, description="Parents, each with how old it may be for this task."
    )
    freshness_criteria_in_hours: Hours | None = Field(
        default=None,
        description="The task is fresh while its last success is at most so many hours old; "
        "without it, while that is of today.",
    )
    retries: _Retries | None = Field(
        default=None, description="So many times it is run again when a run fails."
    )
    retry_delay: _Pause | None = Field(
        default=None, description="The pause between a failed run and the next one."
    )
    skip: _Skip = Field(default=False, description="True, or the reason: the task does not run.")
    tags: Mapping[str, str] = Field(default_factory=dict, description="Tags of its runs.")

    @field_validator("dependencies")
    @classmethod
    def _different(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted(name for name, times in Counter(value).items() if times > 1)
        if twice:
            raise ValueError(f"each parent once, and {twice[0]} stands there twice")
        return value

    @field_validator("reads")
    @classmethod
    def _names_of_views(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"names for views of letters, digits and _, and {name!r} is none")
        return value

    @field_validator("dependencies_with_meta")
    @classmethod
    def _not_in_both(
        cls, value: Mapping[str, DependencyMeta], info: ValidationInfo
    ) -> Mapping[str, DependencyMeta]:
        for name in value:
            if not 0 < len(name) <= LONGEST_NAME:
                raise ValueError(f"names of parents, of 1 to {LONGEST_NAME} characters")
        both = sorted(value.keys() & set(info.data.get("dependencies", ())))
        if both:
            raise ValueError(f"each parent once, and {both[0]} stands in dependencies too")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.sql is None) == (self.python is None):
            raise ValueError("either sql or python")
        if self.kind == "job" and (self.sql is not None or self.table is not None):
            raise ValueError("python, and neither sql nor table: a job has no rows to write")
        if self.kind == "job" and not _DAGSTER_NAME.fullmatch(self.name):
            raise ValueError("a name of letters, digits and _: the task is a job")
        if self.sql is not None and self.kind == "asset" and self.table is None:
            raise ValueError("a table for the rows of the query")
        return self


class Batch(_Written):
    """Tasks that are declared together; a location makes assets and jobs of them."""

    schema_file: str | None = Field(
        default=None, alias="$schema", description="The JSON Schema, for editors; it is not read."
    )
    name: _BatchName = Field(description="The batch's own name: a job of this name runs all.")
    description: str = Field(default="", description="Shown in Dagster's UI.")
    timezone: ZoneName | None = Field(
        default=None,
        description="The zone in which today and partitions start; without it ARCTIC_TIMEZONE, "
        "without that UTC.",
    )
    partitions_start: _Day = Field(
        default=date(2026, 1, 1), description="The first day of which the assets have a partition."
    )
    concurrency: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="So many tasks of the batch run at the same time, at most."
    )
    retries: _Retries = Field(
        default=0, description="So many times a task is run again when a run fails."
    )
    retry_delay: _Pause = Field(
        default=timedelta(0), description="The pause between a failed run and the next one."
    )
    recheck: _Span = Field(
        default=timedelta(minutes=2),
        description="How often stale parents that others make are rechecked.",
    )
    patience: _Span = Field(
        default=timedelta(minutes=30),
        description="After so long stale parents that others make let a task fail.",
    )
    tags: Mapping[str, str] = Field(default_factory=dict, description="Tags of all its runs.")
    tasks: tuple[BatchTask, ...] = Field(
        description="What is to be kept fresh.", json_schema_extra={"minItems": 1}
    )

    @field_validator("tasks")
    @classmethod
    def _at_least_one(cls, value: tuple[BatchTask, ...]) -> tuple[BatchTask, ...]:
        if not value:
            raise ValueError("at least one task")
        return value

    def specs(self, *, timezone: str = "UTC") -> tuple[TaskSpec, ...]:
        """Returns the specs of the tasks, in the order of the file.

        Args:
            timezone: the time zone of a batch that declares none.
        """
        return tuple(self._spec(task, self.timezone or timezone) for task in self.tasks)

    def _spec(self, task: BatchTask, timezone: str) -> TaskSpec:
        parents = [Parent(name=name) for name in task.dependencies]
        for name, meta in task.dependencies_with_meta.items():
            parents.append(Parent(name=name, hours=meta.freshness_criteria_in_hours))
        skip = task.skip if isinstance(task.skip, str) else None
        return TaskSpec(
            name=task.name,
            kind=task.kind,
            target=task.name,
            batch=self.name,
            freshness_hours=task.freshness_criteria_in_hours,
            parents=tuple(parents),
            timezone=timezone,
            concurrency=self.concurrency,
            retries=self.retries if task.retries is None else task.retries,
            retry_delay=self.retry_delay if task.retry_delay is None else task.retry_delay,
            skip="by its definition" if task.skip is True else skip,
            recheck=self.recheck,
            patience=self.patience,
            tags={**self.tags, **task.tags},
        )


def load_batch(path: str | Path) -> Batch:
    """Loads a batch from a JSON file.

    Errors:
        InvalidInput: the file cannot be read or is not JSON; names the line.
        InvalidDefinition: names the path of every invalid value, as
    """
    file = Path(path)
    if file.suffix.lower() != ".json":
        raise InvalidInput("batch", str(file), "a file whose name ends in .json")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        expected = f"a file that can be read ({file.absolute()}: {error.strerror})"
        raise InvalidInput("batch", str(file), expected) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("batch", str(file), "a file in UTF-8") from error
    return parse_batch(load(text, name=file.name))


def parse_batch(form: object) -> Batch:
    """Parses a batch from decoded JSON.

    Errors:
        InvalidDefinition: names the path of every invalid value.
    """
    problems: list[InvalidInput] = []
    read: Batch | None = None
    try:
        read = Batch.parse(form)
    except InvalidDefinition as error:
        problems += error.problems
    tasks = form.get("tasks") if isinstance(form, Mapping) else None
    if isinstance(tasks, Sequence) and not isinstance(tasks, str):
        problems += _used_twice(tasks, "name", "has it")
        # Each run replaces the rows of its day, also those of the other task.
        problems += _used_twice(tasks, "table", "writes it")
    if read is not None and not problems:
        problems += _cycles(read)
    if problems:
        raise InvalidDefinition(problems)
    assert read is not None
    return read


def _used_twice(tasks: Iterable[Any], field: str, use: str) -> list[InvalidInput]:
    places: dict[str, int] = {}
    problems = []
    for place, task in enumerate(tasks):
        value = task.get(field) if isinstance(task, Mapping) else None
        if isinstance(value, str) and places.setdefault(value, place) != place:
            expected = f"another {field}: tasks[{places[value]}] {use}"
            problems.append(InvalidInput(f"tasks[{place}].{field}", value, expected))
    return problems


def _cycles(batch: Batch) -> list[InvalidInput]:
    cycle = TaskGraph(batch.specs()).cycle()
    if cycle is None:
        return []
    place = next(i for i, task in enumerate(batch.tasks) if task.name == cycle[0])
    with_meta = cycle[1] in batch.tasks[place].dependencies_with_meta
    field = "dependenciesWithMeta" if with_meta else "dependencies"
    return [cycle_problem(f"tasks[{place}].{field}", cycle)]


def batch_schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of a batch file, for editors.

    The schema refuses wrong names, nesting and types. Loading the file checks what one value does
    not show, such as whether a time zone exists or the tasks form a cycle.
    """
    made = Batch.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": "A batch of tasks of arctic_orchestration",
    }
