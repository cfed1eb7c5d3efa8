"""Parameters that many routes share, and the refusal of refused ones."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, get_args, get_origin

from fastapi import Header, Path, Query, Request
from fastapi.dependencies.models import Dependant

from arctic_orchestration.errors import InvalidDefinition, InvalidInput, RequestRefused
from arctic_orchestration.quantities import YEARS, in_calendar
from arctic_orchestration.service.bodies import Body

Location = Annotated[
    str | None,
    Query(max_length=1_000, description="The code location; not needed where only one ticks."),
]
SomeLocation = Annotated[
    str | None, Query(max_length=1_000, description="Only of this code location.")
]
Name = Annotated[str, Path(description="The schedule's name.")]
JobId = Annotated[str, Path(description="The job's id.")]
IfMatch = Annotated[str | None, Header(description="The ETag that was read.")]
#: what OpenAPI says of an answer with an ETag
HAS_ETAG: dict[str, Any] = {"headers": {"ETag": {"schema": {"type": "string"}}}}
Text = Annotated[str | None, Query(max_length=1_000)]


def moment(text: str, *, field: str) -> datetime:
    """Parses a moment with its zone, as ``2026-01-01T00:00:00Z``.

    Errors:
        InvalidInput: another form, without a zone, or outside of the years 1970 to 9000.
    """
    expected = "a moment with its zone, such as 2026-01-01T00:00:00Z"
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            if in_calendar(at):
                return at.astimezone(UTC)
            expected = f"a moment in {YEARS}"
    except ValueError:
        pass
    raise InvalidInput(field, text, expected)


def etag(*values: object) -> str:
    """Returns the ETag of an object with these properties."""
    return f'"{hashlib.sha256(repr(values).encode()).hexdigest()[:32]}"'


def check_etag(if_match: str | None, current: str, *, required: bool = False) -> None:
    """Refuses a change of an object that was changed since it was read.

    Errors:
        RequestRefused: 412, the object has another ETag; 428, none is given but required.
    """
    if if_match is None:
        if required:
            raise RequestRefused(428, "If-Match: expected the ETag of the schedule that was read")
        return
    given = [tag.strip() for tag in if_match.split(",")]
    if "*" not in given and current not in given:
        raise RequestRefused(
            412, f"If-Match: got {if_match}, expected {current}: it was changed since it was read"
        )


def _with_dependencies(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _with_dependencies(inner)


def refuse_surplus(request: Request) -> None:
    """Refuses what a route does not take: a typo would be a missing filter.

    These are other query parameters, one that is given twice but has one value, and a body.

    Errors:
        InvalidDefinition: names all of them, and the parameters of the route.
    """
    parts = list(_with_dependencies(request.scope["route"].dependant))
    accepted = {parameter.alias: parameter for part in parts for parameter in part.query_params}
    names = ", ".join(sorted(accepted))
    expected = f"one of the parameters {names}" if names else "no parameter"
    given = dict.fromkeys(request.query_params)
    problems = [
        InvalidInput(name, request.query_params[name], expected)
        for name in given
        if name not in accepted
    ]
    for name in given:
        values = request.query_params.getlist(name)
        if name in accepted and len(values) > 1 and not _is_list(accepted[name]):
            problems.append(InvalidInput(name, values, "one value"))
    has_body = request.headers.get("content-length", "0") != "0"
    if (has_body or "transfer-encoding" in request.headers) and not any(
        isinstance(part.call, Body) for part in parts
    ):
        size = f"{request.headers.get('content-length', 'some')} bytes"
        expected = f"no body; its parameters are {names}" if names else "no body"
        problems.append(InvalidInput("body", size, expected))
    if problems:
        raise InvalidDefinition(problems)


def _is_list(parameter: Any) -> bool:
    annotation = parameter.field_info.annotation
    return any(get_origin(one) is list for one in (annotation, *get_args(annotation)))
