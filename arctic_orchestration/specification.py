"""What a user writes: frozen models whose YAML, JSON and Python forms are one definition."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from arctic_orchestration.errors import InvalidDefinition, InvalidInput

#: pydantic's words for what went wrong, in the words of our messages.
_EXPECTATIONS = {
    "missing": "a value: the field is required",
    "extra_forbidden": "no such field",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
}


class Specification(BaseModel):
    """The base of everything that is written by people and stored as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @classmethod
    def parse(cls, form: object, *, field: str = "") -> Self:
        """Reads the YAML or JSON form (already loaded into dicts and lists).

        Args:
            form: the loaded form, or an instance.
            field: the path under which problems are named.

        Errors:
            InvalidDefinition: names every field, its value and what was expected.
        """
        try:
            return cls.model_validate(form)
        except ValidationError as error:
            raise InvalidDefinition(problems_of(error, field)) from error


class Tagged(Specification):
    """A specification that is one of several kinds, written ``{kind: {fields}}``."""

    kind: str

    def to_form(self) -> dict[str, Any]:
        """``{kind: {fields}}`` with the fields that differ from their defaults."""
        defaults = {name: info.default for name, info in type(self).model_fields.items()}
        body = {
            name: value
            for name, value in self.model_dump(mode="json", exclude={"kind"}).items()
            if getattr(self, name) != defaults[name]
        }
        return {self.kind: body["of"] if set(body) == {"of"} else body}


def untag(form: object, kinds: Sequence[str], what: str) -> object:
    """Turns ``{kind: {fields}}`` into the flat form by which pydantic finds the class.

    Errors:
        ValueError: no mapping, not exactly one key, or one that is not in ``kinds``.
    """
    if isinstance(form, Tagged):
        return form
    if not isinstance(form, dict):
        raise ValueError(f"a mapping with a {what} key, one of {', '.join(kinds)}")
    if len(form) != 1:
        raise ValueError(f"exactly one {what} key, one of {', '.join(kinds)}")
    ((kind, fields),) = form.items()
    if kind not in kinds:
        raise ValueError(f"a {what} key, one of {', '.join(kinds)}")
    if isinstance(fields, (list, tuple)):
        fields = {"of": fields}
    if not isinstance(fields, dict):
        raise ValueError(f"a mapping of the fields of {kind}")
    return {**fields, "kind": kind}


def problems_of(error: ValidationError, field: str) -> list[InvalidInput]:
    """Each problem pydantic found, with its path as it stands in the YAML form."""
    problems = []
    for detail in error.errors(include_url=False):
        path = field
        for step in detail["loc"]:
            if step == "of":
                continue
            separator = "." if path else ""
            path += f"[{step}]" if isinstance(step, int) else f"{separator}{step}"
        cause = detail.get("ctx", {}).get("error")
        message = str(cause) if isinstance(cause, ValueError) else detail["msg"]
        expected = _EXPECTATIONS.get(detail["type"], message.removeprefix("Input should be "))
        if detail["type"] == "missing":
            problems.append(InvalidInput(path, None, expected))
        else:
            value = detail["input"]
            if isinstance(value, dict) and detail["loc"] and value.get("kind") == detail["loc"][-1]:
                value = {key: item for key, item in value.items() if key != "kind"}
            problems.append(InvalidInput(path or "(definition)", value, expected))
    return problems
