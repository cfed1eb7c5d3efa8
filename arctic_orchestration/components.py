"""Dagster components: schedules, consumers, compaction and freshness in the ``defs/`` of a project.

All instances of a project, of whatever kind and folder, are one ``Arctic(...)``: the first one
builds its definitions, the others build none. An ``Arctic(...)`` in the code of ``defs/`` beside
them is refused.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import dagster as dg
from pydantic import BaseModel, ConfigDict

from arctic_orchestration.arctic import DISPATCHER, Arctic
from arctic_orchestration.component_attributes import (
    Attributes,
    CompactionAttributes,
    ConsumersAttributes,
    FreshnessAttributes,
    SchedulesAttributes,
    admitting_templates,
)
from arctic_orchestration.dagster_internals import UnresolvedAssetJobDefinition, definitions_of_code
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.freshness.dagster.definitions import Freshness
from arctic_orchestration.freshness.dagster.fresh_parents import spec_of
from arctic_orchestration.freshness.dagster.sensor import SENSOR
from arctic_orchestration.schedules.dagster.sources import is_plain
from arctic_orchestration.schedules.triggers import Requests

__all__ = ["ArcticCompaction", "ArcticConsumers", "ArcticFreshness", "ArcticSchedules"]

#: The sensors that a code location has once; a literal, because compaction needs an extra.
_SENSORS = (DISPATCHER, SENSOR, "arctic_compaction")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class _Given(BaseModel):
    """The attributes of a ``defs.yaml`` as they are loaded, before templates are rendered."""

    model_config = ConfigDict(extra="allow")


class _Scaffolder(dg.Scaffolder):
    """Writes a ``defs.yaml`` of the examples of the required fields."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        model = globals()[request.type_name.rpartition(".")[2]].attributes
        fields = model.model_fields.items()
        example = {name: info.examples[0] for name, info in fields if info.is_required()}
        dg.scaffold_component(request, example)


@dataclass(kw_only=True)
class _ArcticComponent(dg.Component):
    """The base of all kinds.

    Args:
        spec: what the ``defs.yaml`` says.
        place: its folder below ``defs/``, for messages.
    """

    spec: Any
    place: str

    attributes: ClassVar[type[Attributes]]

    @property
    @abstractmethod
    def kind(self) -> str:
        """Its kind, for messages; abstract, so that ``dg`` does not list the base."""

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Returns a model with the schema of the attributes, which are parsed by ``load``."""
        schema = cls.attributes.schema_of_file
        form = classmethod(lambda _, *__, **___: admitting_templates(schema()))
        return type(cls.__name__, (_Given,), {"model_json_schema": form})

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Parses the attributes of a ``defs.yaml``.

        Errors:
            InvalidDefinition: names file, line, field, value and expectation of every problem.
        """
        form = _rendered(dict(attributes.model_extra or {}) if attributes else {}, context)
        try:
            spec = cls.attributes.of_file(form)
            cls.check(spec)
        except InvalidDefinition as error:
            raise InvalidDefinition(
                [
                    InvalidInput(_located(context, one.field), one.value, one.expected)
                    for one in error.problems
                ]
            ) from None
        place = context.path.relative_to(context.defs_module_path)
        return cls(spec=cls.placed(spec, context.path), place=place.as_posix())

    @classmethod
    def check(cls, spec: Any) -> None:
        """Refuses what the form of the attributes does not show."""

    @classmethod
    def placed(cls, spec: Any, folder: Path) -> Any:
        """Returns the attributes with paths relative to a folder made absolute."""
        del folder
        return spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns the definitions of all instances of the project, or none after the first.

        Errors:
            InvalidDefinition: instances contradict each other, or code has an ``Arctic(...)``.
        """
        everything = context.component_tree.get_all_components(_ArcticComponent)  # type: ignore[type-abstract]
        if everything and everything[0] is not self:
            return dg.Definitions()
        code = definitions_of_code(context.component_tree, _ArcticComponent)
        return _merged(everything or [self], list(code))


@dg.scaffold_with(_Scaffolder)
class ArcticSchedules(_ArcticComponent):
    """Schedules: event triggers, constraints and timeouts for jobs and assets of this project."""

    attributes = SchedulesAttributes
    kind = "schedules"


@dg.scaffold_with(_Scaffolder)
class ArcticConsumers(_ArcticComponent):
    """Consumers: a run for each new partition of an asset, each exactly once."""

    attributes = ConsumersAttributes
    kind = "consumers"

    @classmethod
    def check(cls, spec: ConsumersAttributes) -> None:
        """Refuses what a sensor of a consumer refuses, such as a lease that is too short."""
        for number, consumer in enumerate(spec.consumers):
            try:
                consumer.sensor()
            except InvalidInput as error:
                field = f"consumers[{number}]"
                raise InvalidDefinition(
                    [InvalidInput(field, error.value, f"{error.field}: {error.expected}")]
                ) from error


@dg.scaffold_with(_Scaffolder)
class ArcticCompaction(_ArcticComponent):
    """Compaction: merges the small files of Iceberg tables; needs the extra `lake`."""

    attributes = CompactionAttributes
    kind = "compaction"


@dg.scaffold_with(_Scaffolder)
class ArcticFreshness(_ArcticComponent):
    """Freshness: the tasks of batch files, and every `fresh_parents` asset and job in `defs/`."""

    attributes = FreshnessAttributes
    kind = "freshness"

    @classmethod
    def placed(cls, spec: FreshnessAttributes, folder: Path) -> FreshnessAttributes:
        """Returns the attributes with absolute paths."""
        below = {
            name: tuple(str(folder / path) for path in getattr(spec, name))
            for name in ("batches", "elsewhere")
        }
        return spec.model_copy(update=below)


def _merged(
    components: Sequence[_ArcticComponent], code: Sequence[tuple[str, dg.Definitions]]
) -> dg.Definitions:
    for place, definitions in code:
        names = {sensor.name for sensor in definitions.sensors or ()}
        for name in names.intersection(_SENSORS):
            expected = (
                f"no Arctic(...) in code beside the component {components[0].kind} in "
                f"{components[0].place}: declare all parts in one of the two ways"
            )
            raise InvalidDefinition([InvalidInput(place, name, expected)])
    schedules = _different("schedules", "name", components)
    sources = _sources(components, code)
    consumers = _different("consumers", "name", components)
    compaction = _same(components, ArcticCompaction, ("tables",))
    freshness = _same(components, ArcticFreshness, ("batches", "elsewhere"))
    return Arctic(
        schedules=schedules,
        consumers=[consumer.sensor() for consumer in consumers],
        sources=sources,
        compaction=None if compaction is None else _compaction(compaction),
        freshness=None
        if freshness is None
        else Freshness(**freshness, loaded=list(_tasks(each for _, each in code))),
    ).definitions()


def _compaction(fields: Mapping[str, Any]) -> Any:
    # It needs the extra ``spark``.
    from arctic_orchestration.compaction.dagster.definitions import Compaction

    return Compaction(**fields)


def _different(field: str, key: str, components: Sequence[_ArcticComponent]) -> list[Any]:
    """Returns the items of all instances; requires different names."""
    places: dict[str, str] = {}
    items = []
    for component in components:
        for number, item in enumerate(getattr(component.spec, field, ())):
            name, place = getattr(item, key), f"{component.place}: {field}[{number}].{key}"
            if name in places:
                expected = f"another name: {places[name]} has it"
                raise InvalidDefinition([InvalidInput(place, name, expected)])
            places[name] = place
            items.append(item)
    return items


def _sources(
    components: Sequence[_ArcticComponent], code: Sequence[tuple[str, dg.Definitions]]
) -> list[dg.SensorDefinition]:
    """Returns the sensors of the code whose requests a schedule takes; requires plain ones."""
    plain = {
        sensor.name: sensor
        for _, definitions in code
        for sensor in definitions.sensors or ()
        if is_plain(sensor)
    }
    names: set[str] = set()
    for component in components:
        for number, schedule in enumerate(getattr(component.spec, "schedules", ())):
            for leaf in schedule.trigger.leaves:
                if not isinstance(leaf, Requests):
                    continue
                if leaf.sensor not in plain:
                    place = f"{component.place}: schedules[{number}].trigger.requests.sensor"
                    expected = f"a plain @sensor in the code of defs/: one of {sorted(plain)}"
                    raise InvalidDefinition([InvalidInput(place, leaf.sensor, expected)])
                names.add(leaf.sensor)
    return [plain[name] for name in sorted(names)]


def _same(
    components: Sequence[_ArcticComponent], kind: type[_ArcticComponent], lists: Sequence[str]
) -> dict[str, Any] | None:
    """Returns the fields of all instances of a kind: lists are joined, others must be equal."""
    some = [one for one in components if isinstance(one, kind)]
    if not some:
        return None
    fields = {name: getattr(some[0].spec, name) for name in type(some[0].spec).model_fields}
    for other in some[1:]:
        for name in fields:
            value = getattr(other.spec, name)
            if name in lists:
                fields[name] = tuple(dict.fromkeys((*fields[name], *value)))
            elif value != fields[name]:
                expected = f"{fields[name]!r} as in {some[0].place}: a project has one value"
                raise InvalidDefinition([InvalidInput(f"{other.place}: {name}", value, expected)])
    return fields


def _tasks(
    code: Iterable[dg.Definitions],
) -> Iterable[dg.AssetsDefinition | dg.JobDefinition | UnresolvedAssetJobDefinition]:
    for definitions in code:
        for one in (*(definitions.assets or ()), *(definitions.jobs or ())):
            kinds = (dg.AssetsDefinition, dg.JobDefinition, UnresolvedAssetJobDefinition)
            if isinstance(one, kinds) and spec_of(one) is not None:
                yield one


def _rendered(value: Any, context: dg.ComponentLoadContext) -> Any:
    """Renders templates such as ``{{ env.TEAM }}``; other texts stay as they are written."""
    if isinstance(value, str):
        return context.resolution_context.resolve_value(value) if "{{" in value else value
    if isinstance(value, Mapping):
        return {key: _rendered(item, context) for key, item in value.items()}
    return [_rendered(item, context) for item in value] if isinstance(value, list) else value


def _located(context: dg.ComponentLoadContext, field: str) -> str:
    """Returns file, line and field: ``/project/defs/x/defs.yaml:7: schedules[0].name``."""
    tree = context.resolution_context.source_position_tree
    if tree is None:
        return field
    steps = [int(number) if number else name for number, name in _STEP.findall(field)]
    position, _ = tree.lookup_closest_and_path(["attributes", *steps], trace=None)
    return f"{position.filename}:{position.start.line}: {field}"
