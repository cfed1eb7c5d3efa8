"""Errors as ``application/problem+json`` of RFC 9457, with all invalid values at once.

A browser gets the same as a page, but not below ``/api/v1``.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from arctic_orchestration.errors import (
    ArcticError,
    ConfigurationError,
    DatabaseUnavailable,
    InvalidDefinition,
    InvalidInput,
    LakeError,
    NotFound,
    Refused,
    RequestRefused,
    TransitionRefused,
    shown,
)
from arctic_orchestration.service.pages.accepting import names_html
from arctic_orchestration.service.pages.rendering import API, path_of, render
from arctic_orchestration.specification import problems_of

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
#: after which a client may try again while the database is away
RETRY_SECONDS = 5
_LONGEST_VALUE = 1_000
_LONGEST_DETAIL = 4_000
_MOST_ERRORS = 1_000
_OF_SCHEDULE = re.compile(r"^Schedule(\([^)]*\))?\.")

_STATUSES: Mapping[type[ArcticError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    TransitionRefused: 409,
    Refused: 409,
    DatabaseUnavailable: 503,
    ConfigurationError: 503,
    LakeError: 503,
}


class InvalidValue(BaseModel):
    """One invalid value of a request."""

    model_config = ConfigDict(extra="forbid")

    #: its path, as ``trigger.partitions.count``, or the name of a parameter
    field: str
    value: Any
    expected: str


class Problem(BaseModel):
    """An error, as RFC 9457 defines it."""

    model_config = ConfigDict(extra="forbid")

    type: str
    title: str
    status: int
    detail: str
    #: all invalid values
    errors: list[InvalidValue]
    request_id: str


#: The errors of every route, for OpenAPI.
RESPONSES: dict[int | str, dict[str, Any]] = {
    key: {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for key, text in (
        ("4XX", "The request was refused, and nothing was changed."),
        ("5XX", "The service could not answer; with 503, try again after Retry-After."),
    )
}


def answer(
    request: Request,
    status: int,
    detail: str,
    problems: Sequence[InvalidInput] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Returns the answer for an error."""
    document = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_short(detail, _LONGEST_DETAIL),
        errors=[
            InvalidValue(
                field=_short(_name(one.field), _LONGEST_VALUE),
                value=_value(one.value),
                expected=_short(one.expected, _LONGEST_VALUE),
            )
            for one in problems[:_MOST_ERRORS]
        ],
        request_id=getattr(request.state, "request_id", ""),
    )
    if names_html(request) and not path_of(request).startswith(f"{API}/"):
        return render(request, "problem.html", status=status, headers=headers, problem=document)
    content = document.model_dump()
    return JSONResponse(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Makes an application answer every error as a problem."""
    app.add_exception_handler(ArcticError, _arctic_error)
    app.add_exception_handler(RequestValidationError, _invalid_parameters)
    app.add_exception_handler(HTTPException, _http_error)


async def _arctic_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ArcticError)
    if isinstance(error, RequestRefused):
        return answer(request, error.status, str(error), error.problems, error.headers)
    status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), None)
    if status is None:
        return unexpected(request, error)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log.warning("request %s: %s", request.state.request_id, error)
        # The message names hosts, users and paths.
        detail = (
            "A database does not answer, or it or the lake cannot be used: the log of the service "
            "has the reason under request_id."
        )
        return answer(request, status, detail, headers={"Retry-After": str(RETRY_SECONDS)})
    if getattr(request.state, "is_limited", False):
        # The ends of these messages name objects that the caller may not see.
        if isinstance(error, NotFound):
            return answer(request, status, str(error).partition("; ")[0])
        if isinstance(error, InvalidInput) and error.field == "--location":
            hidden = InvalidInput("location", error.value, "the name of a location")
            return answer(request, status, str(hidden), problems=[hidden])
    problems = [error] if isinstance(error, InvalidInput) else []
    if isinstance(error, InvalidInput) and error.field.startswith("--"):
        error = InvalidInput(_name(error.field), error.value, error.expected)
    if isinstance(error, InvalidDefinition):
        problems = list(error.problems)
    return answer(request, status, str(error), problems)


async def _invalid_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # The location begins with the part of the request: query, path or header.
    details: list[Any] = [
        {"type": "value_error", "loc": one["loc"][1:], "input": one.get("input"), "msg": one["msg"]}
        | {"ctx": {"error": ValueError(one["msg"].removeprefix("Input should be "))}}
        for one in error.errors()
    ]
    made = problems_of(ValidationError.from_exception_data("request", details), "")
    return answer(request, 422, "\n".join(map(str, made)), made)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(request, error.status_code, str(error.detail), headers=error.headers)


async def problem_of(request: Request, error: Exception) -> Response:
    """Returns the answer for any error of a route."""
    known = isinstance(error, ArcticError)
    return await _arctic_error(request, error) if known else unexpected(request, error)


def unexpected(request: Request, error: Exception) -> Response:
    """Logs an unexpected error; returns its answer, which gives no details."""
    _log.error("request %s failed", getattr(request.state, "request_id", ""), exc_info=error)
    detail = "An unexpected error; the log of the service has it under this request_id."
    return answer(request, 500, detail)


def _name(field: str) -> str:
    """Returns a field as it stands in a request: not as an option, not as of an object."""
    field = _OF_SCHEDULE.sub("", field)
    return field.removeprefix("--").replace("-", "_") if field.startswith("--") else field


def _short(text: str, longest: int) -> str:
    # A lone half of a surrogate pair is no text that can be sent.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _value(value: object) -> Any:
    """Returns the value as it was sent, or as text if it is long or no JSON."""
    try:
        text = json.dumps(value, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return shown(value).encode("utf-8", "replace").decode()
    return value if len(text) <= _LONGEST_VALUE else shown(value)
