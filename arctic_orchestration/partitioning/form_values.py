"""Parses the values of forms; errors name the field, the value and what was expected."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from arctic_orchestration.dagster_internals import disable_dagster_warnings
from arctic_orchestration.errors import InvalidDefinition, InvalidInput

Made = TypeVar("Made")


def made(field: str, value: object, make: Callable[..., Made], *args: Any, **given: Any) -> Made:
    """Returns Dagster's object for the values; a refusal names the field."""
    try:
        with disable_dagster_warnings():
            return make(*args, **given)
    except Exception as error:
        raise InvalidDefinition(
            [InvalidInput(field, value, f"what Dagster accepts ({str(error).strip()})")]
        ) from error


def refuse(field: str, value: object, expected: str) -> NoReturn:
    raise InvalidDefinition([InvalidInput(field, value, expected)])


def only_key(form: object, field: str, kinds: Sequence[str]) -> tuple[str, Any]:
    """Returns the one key of a form, and its value."""
    expected = f"a mapping with one key, one of {', '.join(kinds)}"
    if not isinstance(form, Mapping) or len(form) != 1:
        refuse(field, form, expected)
    ((kind, body),) = form.items()
    if kind not in kinds:
        refuse(field, form, expected)
    return kind, body


def mapping_at(value: object, field: str) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else refuse(field, value, "a mapping")


def text_at(value: object, field: str) -> str:
    return value if isinstance(value, str) and value else refuse(field, value, "text")


def texts_at(value: object, field: str) -> list[str]:
    if not isinstance(value, (list, tuple)):
        refuse(field, value, "a list of texts")
    return [text_at(each, f"{field}[{place}]") for place, each in enumerate(value)]


def number_at(value: object, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    refuse(field, value, "a whole number")
