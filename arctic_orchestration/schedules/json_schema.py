"""The JSON Schema of a file of schedules, generated from the models that read it.

Registered triggers and constraints appear automatically. Editors complete and check with it, and
show its texts: the docstring of a model, and the ``#:`` comment above a field.
"""

import inspect
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from arctic_orchestration.quantities import format_duration, parse_duration, parse_size
from arctic_orchestration.schedules.constraints import AnyConstraint
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.triggers import AnyTrigger
from arctic_orchestration.specification import Tagged

DIALECT = "https://json-schema.org/draft/2020-12/schema"

#: The form in a file of values that these functions read.
_LOOKS: dict[object, JsonSchemaValue] = {
    parse_duration: {
        "type": "string",
        "pattern": r"^([0-9]+(\.[0-9]+)?(ms|d|h|m|s))+$",
        "examples": ["90s", "5m", "4h", "1d", "1h30m"],
    },
    parse_size: {
        "type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTP]?B|[KMGTP]iB)$",
        "examples": ["500KB", "100MB", "1.5GB", "64MiB"],
    },
}
_COMMENTED_FIELD = re.compile(r"^((?: {4}#: .*\n)+) {4}(\w+):", re.MULTILINE)


def schedules_schema() -> dict[str, Any]:
    """Returns the schema (draft 2020-12) of ``schedules:`` in a YAML or JSON file.

    It refuses wrong names, nesting, types and enums, and malformed durations and sizes. Checks that
    need more than the form of one value are left to reading the file: for example whether a time
    zone exists, or whether two fields contradict each other.
    """
    made = TypeAdapter(list[Schedule]).json_schema(schema_generator=FileForm)
    definitions = made["$defs"]
    unions: dict[str, TypeAdapter[Any]] = {
        "Trigger": TypeAdapter(AnyTrigger),
        "Constraint": TypeAdapter(AnyConstraint),
    }
    for name, union in unions.items():
        one_of_them = union.json_schema(schema_generator=FileForm)
        definitions |= one_of_them.pop("$defs")
        definitions = _with_reference(definitions, one_of_them, f"#/$defs/{name}")
        definitions[name] = one_of_them
    return {
        "$schema": DIALECT,
        "title": "Schedules of arctic_orchestration",
        "type": "object",
        "properties": {"schedules": {"type": "array", "items": made["items"]}},
        "required": ["schedules"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


class FileForm(GenerateJsonSchema):
    """pydantic's schemas, in the form that people write: ``{kind: {fields}}``, ``90s``."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keeps the order: editors offer fields in it."""
        return value

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Returns an object with exactly one key, which editors can complete and name."""
        choices = schema["choices"].items()
        return {
            "type": "object",
            "properties": {str(kind): self.generate_inner(choice) for kind, choice in choices},
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        }

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        model: type[BaseModel] = schema["cls"]
        made = super().model_schema(schema)
        about = {"description": _plain(model.__doc__ or "")}
        fields: dict[str, JsonSchemaValue] = made["properties"]
        for name, comment in _comments(model).items():
            if name in fields:
                fields[name] = {"description": comment, **fields[name]}
        if model is Target:
            return {**about, **_target(fields)}
        if issubclass(model, Tagged):
            del fields["kind"]
            if "of" in fields:
                return {**about, "anyOf": [fields["of"], {**made, **about}]}
        return {**about, **made, **about}

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        look = _LOOKS.get(schema["function"]["function"])
        return dict(look) if look else super().function_before_schema(schema)

    def encode_default(self, dft: Any) -> Any:
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _target(fields: Mapping[str, JsonSchemaValue]) -> JsonSchemaValue:
    """Returns the schema of a target: a job or assets; a plain string is a job."""
    name = {"type": "string", "minLength": 1}
    assets = {key: value for key, value in fields["assets"].items() if key != "default"}
    either = {
        "type": "object",
        "properties": {"job": name, "assets": {**assets, "minItems": 1}},
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    return {"anyOf": [name, either]}


def _with_reference(value: Any, whole: JsonSchemaValue, reference: str) -> Any:
    """``value`` with a reference in place of each copy of ``whole``."""
    if isinstance(value, dict):
        if value.items() >= whole.items():
            rest = {key: item for key, item in value.items() if key not in whole}
            return {**rest, "$ref": reference}
        return {key: _with_reference(item, whole, reference) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_reference(item, whole, reference) for item in value]
    return value


@cache
def _comments(model: type[BaseModel]) -> Mapping[str, str]:
    """Returns the ``#:`` comments above the fields of a model and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        try:
            source = inspect.getsource(base)
        except OSError:
            # A distribution without sources: the editor shows less.
            continue
        for comment, name in _COMMENTED_FIELD.findall(source):
            lines = (line.strip().removeprefix("#: ") for line in comment.splitlines())
            texts[name] = _plain(" ".join(lines))
    return texts


def _plain(text: str) -> str:
    """Returns a text for an editor: plain paragraphs, without docstring markup and errors."""
    text = re.sub(r"``([^`]*)``", r"`\1`", inspect.cleandoc(text).partition("\n\nErrors:")[0])
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)
