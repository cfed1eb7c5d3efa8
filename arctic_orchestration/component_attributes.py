"""What the ``defs.yaml`` of each component says, below ``attributes``."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, Self

import dagster as dg
from pydantic import Field

from arctic_orchestration.consumers.dagster.partition_consumer import PartitionConsumer
from arctic_orchestration.consumers.dagster.sensor import consumer_sensor
from arctic_orchestration.consumers.specification import ConsumerSpec
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.quantities import Duration
from arctic_orchestration.schedules.json_schema import FileForm, schedules_schema
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.specification import Specification

_TEMPLATE = {"type": "string", "pattern": r"\{\{"}
_TEXTS = ("description", "examples", "default")


def admitting_templates(schema: Any) -> Any:
    """Returns a JSON Schema in which each value of a field or list may be a template.

    With ``if``, because an ``anyOf`` would hide which field is wrong.
    """
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for key in {"$defs", "properties"} & schema.keys():
        field = admitting_templates if key == "$defs" else _or_template
        made[key] = {name: field(value) for name, value in schema[key].items()}
    if "anyOf" in schema:
        made["anyOf"] = [admitting_templates(each) for each in schema["anyOf"]]
    for key in {"additionalProperties", "items"} & schema.keys():
        made[key] = _or_template(schema[key])
    return made


def _or_template(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    texts = {key: schema[key] for key in _TEXTS if key in schema}
    form = {key: value for key, value in schema.items() if key not in _TEXTS}
    return {**texts, "if": _TEMPLATE, "then": True, "else": admitting_templates(form)}


class Attributes(Specification):
    """The ``attributes`` of a ``defs.yaml``."""

    @classmethod
    def of_file(cls, form: Mapping[str, Any]) -> Self:
        """Parses the loaded attributes.

        Errors:
            InvalidDefinition: names every invalid field by its path in the file.
        """
        return cls.parse(form)

    @classmethod
    def schema_of_file(cls) -> dict[str, Any]:
        """Returns the JSON Schema of the form in a file."""
        made = cls.model_json_schema(schema_generator=FileForm)
        for name, info in cls.model_fields.items():
            # The generator of files prefers comments to pydantic's own texts.
            made["properties"][name] |= {"examples": info.examples}
        return made


class SchedulesAttributes(Attributes):
    """Schedules, as in a file for ``arctic schedules apply``."""

    schedules: tuple[Schedule, ...] = Field(
        description="Schedules: a target, a trigger, constraints and a timeout each.",
        examples=[
            [
                {
                    "name": "hourly_rollup",
                    "target": {"assets": ["hourly_rollup"]},
                    "trigger": {"partitions": {"asset": "raw/flights", "count": 3}},
                    "constraints": [{"concurrency": {"limit": 1}}],
                }
            ]
        ],
    )

    @classmethod
    def of_file(cls, form: Mapping[str, Any]) -> Self:
        """Parses the schedules one by one: their errors begin with the place in the list."""
        forms = form.get("schedules")
        if not isinstance(forms, list):
            return cls.parse(form)
        read: list[Schedule] = []
        problems: list[InvalidInput] = []
        for number, one in enumerate(forms):
            try:
                read.append(Schedule.parse(one, field=f"schedules[{number}]"))
            except InvalidDefinition as error:
                problems += error.problems
        if problems:
            raise InvalidDefinition(problems)
        return cls.parse({**form, "schedules": read})

    @classmethod
    def schema_of_file(cls) -> dict[str, Any]:
        """Returns the schema of files of schedules, with description and examples."""
        info, made = cls.model_fields["schedules"], schedules_schema()
        texts = {"description": info.description, "examples": info.examples}
        made["properties"]["schedules"] |= texts
        return made


class Consumer(ConsumerSpec):
    """A consumer, and the target that runs for each of its new partitions."""

    #: a Dagster job, or assets of this project
    target: Target
    #: the maximum number of partitions with a live run
    at_once: int = Field(default=10, ge=1, strict=True)
    #: a pattern of the partition keys that are consumed; none: all
    where: str | None = None
    #: the minimum number of seconds between two ticks of its sensor
    interval_seconds: int = Field(default=5, ge=1, strict=True)

    def sensor(self) -> dg.SensorDefinition:
        """Returns the sensor of the consumer."""
        own = {name: getattr(self, name) for name in ConsumerSpec.model_fields}
        return consumer_sensor(
            PartitionConsumer(own.pop("asset"), **own),
            target=self.target.job or dg.AssetSelection.assets(*self.target.assets),
            at_once=self.at_once,
            where=self.where,
            interval_seconds=self.interval_seconds,
        )


class ConsumersAttributes(Attributes):
    """Consumers and their targets."""

    consumers: tuple[Consumer, ...] = Field(
        description="Consumers: the target runs for each new partition of the asset, until a run "
        "of it has succeeded.",
        examples=[[{"name": "copy", "asset": "raw/orders", "target": {"job": "copy_orders"}}]],
    )


class CompactionAttributes(Attributes):
    """The tables of a lake that this project compacts."""

    tables: tuple[str, ...] = Field(
        min_length=1, description="Names or patterns of tables.", examples=[["nyc.flights"]]
    )
    mode: Literal["observe", "run"] = Field(
        default="observe",
        description="`observe` plans and shows; `run` compacts.",
        examples=["observe", "run"],
    )
    interval_seconds: int = Field(
        default=10,
        ge=1,
        strict=True,
        description="The minimum number of seconds between two ticks of the sensor.",
        examples=[10],
    )
    parallelism: int = Field(
        default=2, ge=1, strict=True, description="Tasks that a run merges at once.", examples=[2]
    )
    until_idle: Duration = Field(
        default=timedelta(minutes=1),
        description="A run ends after this time without work.",
        examples=["1m"],
    )


class FreshnessAttributes(Attributes):
    """Tasks that run when their parents are fresh enough."""

    batches: tuple[str, ...] = Field(
        default=(),
        description="Batch files, relative to this folder; their tasks become assets and jobs.",
        examples=[["delays.json"]],
    )
    elsewhere: tuple[str, ...] = Field(
        default=(),
        description="Batch files of other code locations, whose requirements count here.",
        examples=[["../other.json"]],
    )
    interval_seconds: int = Field(
        default=10,
        ge=1,
        le=20,
        strict=True,
        description="The minimum number of seconds between two ticks of the sensor.",
        examples=[10],
    )
