"""The base of users' models: frozen, with one definition for their YAML, JSON and Python forms."""

import json
import re
from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from arctic_orchestration.errors import InvalidDefinition, InvalidInput

#: Characters that Postgres or UTF-8 cannot store.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_STORABLE = "text that a database can hold: no character 0, no half of a surrogate pair"
#: Deeper than any real specification, and not too deep to be stored and parsed.
DEEPEST = 80
_TOO_DEEP = f"values that JSON can hold (at most {DEEPEST} levels)"
#: Bytes of a text in a key of an index. Postgres refuses rows with keys above 2,704 bytes, and a
#: key may have two such texts and the id of a row.
LONGEST_INDEXED = 1_000
#: what is expected instead of a longer one
SHORT = f"text of at most {LONGEST_INDEXED:,} bytes in UTF-8"

#: The text of our messages for pydantic's errors.
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


def is_short(text: str) -> bool:
    """Returns whether a key of an index may have the text."""
    return len(text.encode(errors="surrogatepass")) <= LONGEST_INDEXED


def _short(text: str) -> str:
    if not is_short(text):
        raise ValueError(SHORT)
    return text


#: Text that is stored in keys of indexes: the name of something to look up or to count.
IndexedText = Annotated[str, AfterValidator(_short)]
IndexedName = Annotated[str, Field(min_length=1), AfterValidator(_short)]


def one_or_several(value: object) -> object:
    """Returns a text as several, of which it is the only one; anything else as it is."""
    return (value,) if isinstance(value, str) else value


def name_of_asset(value: Any) -> Any:
    """Returns the name of an asset of Dagster, given as its key, spec or definition.

    Anything else is returned as it is. Dagster is not imported, which most commands do without.
    """
    try:
        key = getattr(value, "key", value)
    except Exception:
        # A definition of several assets has no key.
        return value
    name = getattr(key, "to_user_string", None)
    return name() if callable(name) else value


#: An asset in Python or YAML; its name is stored.
AssetName = Annotated[IndexedName, BeforeValidator(name_of_asset)]


class Specification(BaseModel):
    """The base of all models that people write and that are stored as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @classmethod
    def parse(cls, form: object, *, field: str = "") -> Self:
        """Parses the YAML or JSON form (already loaded into dicts and lists).

        Args:
            form: the loaded form, or an instance.
            field: the path under which errors are named.

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
    """A specification of one of several kinds, written ``{kind: {fields}}``."""

    kind: str

    def to_form(self) -> dict[str, Any]:
        """Returns ``{kind: {fields}}`` with the fields that differ from their defaults."""
        defaults = {
            name: info.get_default(call_default_factory=True)
            for name, info in type(self).model_fields.items()
        }
        body = {
            name: value
            for name, value in self.model_dump(mode="json", exclude={"kind"}).items()
            if getattr(self, name) != defaults[name]
        }
        return {self.kind: body["of"] if set(body) == {"of"} else body}


def kinds_of(union: Any) -> dict[str, type[Tagged]]:
    """Returns the classes of a union of tagged ones by their kinds, in the union's order."""
    return {of.model_fields["kind"].default: of for of in union.__args__}


def untag(form: object, kinds: Mapping[str, type[Tagged]], what: str) -> object:
    """Converts ``{kind: {fields}}`` to the flat form by which pydantic finds the class.

    A list becomes the field ``of`` of kinds with this suffix, ``any_of`` and ``all_of``, and of
    ``then``.

    Errors:
        ValueError: not a mapping, not exactly one key, or a key that is not in ``kinds``.
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
    if isinstance(fields, (list, tuple)) and (kind.endswith("_of") or kind == "then"):
        fields = {"of": fields}
    if not isinstance(fields, dict) or "kind" in fields:
        names = ", ".join(name for name in kinds[kind].model_fields if name != "kind")
        raise ValueError(f"a mapping of the fields of {kind}: {names}")
    return {**fields, "kind": kind}


def json_form(value: object) -> Any:
    """Returns a value as it will be read again after it is stored as JSON.

    Errors:
        ValueError: JSON cannot hold it, or it has too many levels.
    """
    try:
        form = json.loads(json.dumps(value, allow_nan=False))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"values that JSON can hold ({error})") from None
    # Versions of Python differ in the levels that they encode.
    if _has_more_levels(form, DEEPEST):
        raise ValueError(_TOO_DEEP)
    return form


def _has_more_levels(form: object, levels: int) -> bool:
    if not isinstance(form, (dict, list)):
        return False
    inside = form.values() if isinstance(form, dict) else form
    return levels == 0 or any(_has_more_levels(value, levels - 1) for value in inside)


def unwritable(form: object, field: str) -> list[InvalidInput]:
    """Returns a value that YAML or JSON cannot represent unchanged, with its path.

    Sets have no order, iterators are empty the second time, and a database cannot store all texts.
    Examines lists, mappings and specifications, but not ``properties`` and ``run_config``, which
    contain JSON values.
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
    """Converts pydantic's errors, with the paths of the YAML form."""
    problems = []
    for detail in error.errors(include_url=False):
        path = field
        keyed = detail["loc"][-1:] == ("[key]",)
        # A key that is not text itself is shown as the invalid value.
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
