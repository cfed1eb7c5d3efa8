"""Templates, and what they show: every value is text, with control characters made visible."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.terminal import json_text, visible
from arctic_orchestration.quantities import counted, format_bytes, format_moment, iso, rounded_span
from arctic_orchestration.schedules.views.texts import one_line
from arctic_orchestration.service.pages.accepting import wants_events
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
    layout = "live.html" if wants_events(request) else "base.html"
    shown = {"request": request, "layout": layout, "now": iso(utc_now().replace(microsecond=0))}
    text = _environment().get_template(template).render(shown, **values)
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
    made.globals.update(
        link=_link,
        dagster_url=_dagster_url,
        here=here,
        next_page=next_page,
        bulk_url=bulk_url,
        api_url=api_url,
        command=command,
    )
    made.filters.update(
        moment=_moment,
        span=_span,
        counted=counted,
        bytes=format_bytes,
        one_line=one_line,
        json_text=json_text,
        pretty=_pretty,
    )
    return made


def _shown(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


def _moment(at: str | datetime) -> Markup:
    """Returns a moment, or its form in JSON, as an element."""
    return Markup('<time datetime="{}">{}</time>').format(iso(_at(at)), format_moment(_at(at)))


def _at(at: str | datetime) -> datetime:
    return datetime.fromisoformat(at) if isinstance(at, str) else at


def _pretty(document: Any) -> Markup:
    """Returns a document as JSON in lines."""
    return escape(json_text(document, indent=2))


def _span(begin: str | datetime, end: str | datetime) -> str:
    return rounded_span(_at(begin), _at(end))


@pass_context
def _link(context: Context, path: str, *segments: str, **parameters: str | None) -> str:
    """Returns a URL of this service, wherever it is mounted."""
    return root_of(context["request"]) + link(path, *segments, **parameters)


@pass_context
def _dagster_url(context: Context, path: str, *segments: str) -> str | None:
    """Returns a URL in Dagster's UI, or None if it is not known where that is."""
    base = context["request"].app.state.service.settings.dagster_url
    return None if base is None else base + (link(path, *segments) or "/")


def next_page(request: Request, cursor: str) -> str:
    """Returns the URL of the next page of the list of a request, with the same filters."""
    kept = [pair for pair in request.query_params.multi_items() if pair[0] != "cursor"]
    return here(request, [*kept, ("cursor", cursor)])


def bulk_url(request: Request, path: str, action: str) -> str:
    """Returns the URL of an action on everything that the filter of a list matches."""
    query = request.query_params.multi_items()
    kept = [pair for pair in query if pair[0] not in ("cursor", "limit")]
    return f"{root_of(request)}{path}/{action}" + (f"?{urlencode(kept)}" if kept else "")


def here(request: Request, parameters: Sequence[tuple[str, str]] | None = None) -> str:
    """Returns the URL of a request, or the same with other parameters."""
    given = request.query_params.multi_items() if parameters is None else parameters
    path = quote(request.scope["path"])
    return f"{path}?{urlencode(given)}" if given else path


def path_of(request: Request) -> str:
    """Returns the path of a request below the place at which this service is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(root_of(request))


def api_url(request: Request) -> str:
    """Returns the URL of the JSON that a page shows."""
    root = root_of(request)
    filled = [(name, value) for name, value in request.query_params.multi_items() if value]
    return f"{root}{API}{here(request, filled).removeprefix(quote(root))}"


def root_of(request: Request) -> str:
    """Returns the path at which this service is mounted; empty at the top."""
    return str(request.scope.get("root_path", ""))
