"""What a user writes: frozen models whose YAML, JSON and Python forms are one definition."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from arctic_orchestration.errors import InvalidDefinition, InvalidInput

#: What Postgres, or UTF-8, cannot hold.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_STORABLE = "text that a database can hold: no character 0, no half of a surrogate pair"
#: Deeper than anybody writes, and not too deep to be stored and read back.
DEEPEST = 80

#: pydantic's words for what went wrong, in the words of our messages.
_EXPECTATIONS = {
    "missing": "a value: the field is required",
    "extra_forbidden": "no such field",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "string_unicode": _STORABLE,
    "invalid_key": "text as a key",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number that is not infinite",
    "literal_error": "{expected}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
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
        problems = unwritable(form, field)
        if problems:
            raise InvalidDefinition(problems)
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

    A list is taken for the field ``of`` of kinds that end so: ``any_of``, ``all_of``.

    Errors:
        ValueError: no mapping, not exactly one key, or one that is not in ``kinds``.
    """
    if isinstance(form, Tagged) and form.kind in kinds:
        return form
    if not isinstance(form, dict):
        raise ValueError(f"a mapping with a {what} key, one of {', '.join(kinds)}")
    if len(form) != 1:
        raise ValueError(f"exactly one {what} key, one of {', '.join(kinds)}")
    ((kind, fields),) = form.items()
    if kind not in kinds:
        raise ValueError(f"a {what} key, one of {', '.join(kinds)}")
    if isinstance(fields, (list, tuple)) and kind.endswith("_of"):
        fields = {"of": fields}
    if not isinstance(fields, dict) or "kind" in fields:
        raise ValueError(f"a mapping of the fields of {kind}")
    return {**fields, "kind": kind}


def unwritable(form: object, field: str) -> list[InvalidInput]:
    """What no YAML or JSON could say, and would be taken for something else, with its path.

    Sets have no order, iterators are empty the second time, and a database cannot hold all
    texts. Looks into lists, mappings and specifications, but not into ``properties`` and
    ``run_config``, which hold what JSON can.
    """
    return list(_unwritable(form, field, 0))


def _unwritable(form: object, path: str, depth: int) -> Iterator[InvalidInput]:
    if depth > DEEPEST:
        yield InvalidInput(path[:60] + "...", "more", f"at most {DEEPEST} levels")
    elif isinstance(form, str):
        if _UNSTORABLE.search(form):
            yield InvalidInput(path, form, _STORABLE)
    elif isinstance(form, (bytes, bytearray)):
        yield InvalidInput(path, form, "text")
    elif isinstance(form, (Set, Iterator)):
        yield InvalidInput(path, form, "a list")
    elif form is None or isinstance(form, (int, float)):
        return
    elif isinstance(form, list) or type(form) is tuple:
        for place, item in enumerate(form):
            yield from _unwritable(item, f"{path}[{place}]", depth + 1)
    elif isinstance(form, (Mapping, Tagged)):
        if isinstance(form, Tagged):
            form = {name: getattr(form, name) for name in type(form).model_fields}
        for key, value in form.items():
            if key in ("properties", "run_config"):
                continue
            yield from _unwritable(key, path, depth)
            inner = path if key == "of" else f"{path}.{key}" if path else str(key)
            yield from _unwritable(value, inner, depth + 1)


def problems_of(error: ValidationError, field: str) -> list[InvalidInput]:
    """Each problem pydantic found, with its path as it stands in the YAML form."""
    problems = []
    for detail in error.errors(include_url=False):
        path = field
        keyed = detail["loc"][-1:] == ("[key]",)
        # A key that is not text itself is shown as the value that was found.
        for step in detail["loc"][:-2] if keyed else detail["loc"]:
            if step == "of":
                continue
            separator = "." if path else ""
            path += f"[{step}]" if isinstance(step, int) else f"{separator}{step}"
        cause = detail.get("ctx", {}).get("error")
        type_ = "invalid_key" if keyed else detail["type"]
        if type_ in _EXPECTATIONS:
            limits = {
                name: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
                for name, limit in detail.get("ctx", {}).items()
            }
            expected = _EXPECTATIONS[type_].format_map(limits)
        elif isinstance(cause, ValueError):
            expected = str(cause)
        else:
            expected = detail["msg"].removeprefix("Input should be ")
        if detail["type"] == "missing":
            problems.append(InvalidInput(path, None, expected))
        else:
            value = detail["input"]
            if isinstance(value, dict) and detail["loc"] and value.get("kind") == detail["loc"][-1]:
                value = {key: item for key, item in value.items() if key != "kind"}
            problems.append(InvalidInput(path or "(definition)", value, expected))
    return problems
