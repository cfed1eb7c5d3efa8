"""Templates, and what they show: every value is text, with control characters made visible."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from arctic_orchestration.console.terminal import json_text, visible
from arctic_orchestration.quantities import counted, format_moment, rounded_span
from arctic_orchestration.schedules.views.texts import one_line
from arctic_orchestration.waits import command

API = "/api/v1"


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Returns a page.

    Args:
        request: the request that it answers; relates links to the present URL.
        template: the name of its file.
        status: the HTTP status.
        headers: further headers.
        values: the documents that it shows.
    """
    text = _environment().get_template(template).render(request=request, **values)
    # A lone half of a surrogate pair is no text that can be sent.
    content = text.encode("utf-8", "replace")
    return HTMLResponse(content, status, headers={"Vary": "Accept", **(headers or {})})


def link(path: str, *segments: str, **parameters: str | None) -> str:
    """Returns a URL; segments are quoted, and parameters that are None are left out."""
    full = "/".join([path, *(quote(segment, safe="") for segment in segments)])
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{full}?{urlencode(given)}" if given else full


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("arctic_orchestration.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(link=link, next_page=next_page, api_url=api_url, command=command)
    made.filters.update(
        moment=_moment,
        span=_span,
        counted=counted,
        one_line=one_line,
        json_text=json_text,
        pretty=_pretty,
    )
    return made


def _shown(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


def _moment(text: str) -> Markup:
    """Returns a moment in the form of JSON as an element."""
    shown = format_moment(datetime.fromisoformat(text))
    return Markup('<time datetime="{}">{}</time>').format(text, shown)


def _pretty(document: Any) -> Markup:
    """Returns a document as JSON in lines."""
    return escape(json_text(document, indent=2))


def _span(begin: str, end: str) -> str:
    return rounded_span(datetime.fromisoformat(begin), datetime.fromisoformat(end))


def next_page(request: Request, cursor: str) -> str:
    """Returns the URL of the next page of the list of a request, with the same filters."""
    kept = [pair for pair in request.query_params.multi_items() if pair[0] != "cursor"]
    return page_url(request, [*kept, ("cursor", cursor)])


def page_url(request: Request, parameters: Sequence[tuple[str, str]]) -> str:
    """Returns the URL of a request with other parameters."""
    path = quote(request.scope["path"])
    return f"{path}?{urlencode(parameters)}" if parameters else path


def api_url(request: Request) -> str:
    """Returns the URL of the JSON that a page shows."""
    filled = [(name, value) for name, value in request.query_params.multi_items() if value]
    return f"{API}{page_url(request, filled)}"
