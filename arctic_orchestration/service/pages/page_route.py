"""Routes of pages: each answers with HTML, with its changes, or with where its JSON is."""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse

from arctic_orchestration.errors import RequestRefused
from arctic_orchestration.service.pages.accepting import prefers_json, wants_events
from arctic_orchestration.service.pages.rendering import api_url, here, render


class PageRoute(APIRoute):
    """A page whose URL is one of the API without ``/api/v1``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Redirects to JSON, and to a URL without the fields that a form left empty."""
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            if prefers_json(request):
                return redirect(api_url(request))
            given = request.query_params.multi_items()
            filled = [(name, value) for name, value in given if value]
            if filled != given:
                return redirect(here(request, filled))
            if wants_events(request):
                return await request.app.state.live.stream(request, answer)  # type: ignore[no-any-return]
            return await answer(request)

        return handler


def redirect(url: str, status: int = 307) -> Response:
    """Returns a redirection that depends on what the client accepts."""
    return RedirectResponse(url, status, headers={"Vary": "Accept"})


def add_page(
    router: APIRouter,
    path: str,
    template: str,
    read: Callable[..., Any],
    also: Mapping[str, Callable[..., Any]] | None = None,
    without: str | None = None,
    **values: Any,
) -> None:
    """Adds a page that shows, as ``found``, what a function of the API answers.

    Args:
        router: where it is added.
        path: its path.
        template: its template.
        read: the function; the page has its parameters and its scope.
        also: further functions by the names of their values; each is given those of the page's
            parameters that it takes, and ``found``.
        without: the template in place of a refusal with 409: the service lacks what is shown.
        values: what else the template shows.
    """

    def page(request: Request, response: Response, **given: Any) -> HTMLResponse:
        if "response" in inspect.signature(read).parameters:
            given["response"] = response
        try:
            found = read(**given)
        except RequestRefused as error:
            if without is None or error.status != HTTPStatus.CONFLICT:
                raise
            return render(request, without, text=str(error))
        given["found"] = found
        others = {name: call(function, given) for name, function in (also or {}).items()}
        return render(
            request,
            template,
            found=found,
            etag=response.headers.get("etag", ""),
            writer=replace(given["caller"], verb="write"),
            **others,
            **values,
        )

    router.add_api_route(path, with_parameters(page, read), methods=["GET"])


def call(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Calls a function with those of some values that it takes."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in taken})


def with_parameters(
    route: Callable[..., Any], of: Callable[..., Any], but: Sequence[str] = ()
) -> Callable[..., Any]:
    """Returns a function with the parameters of another one beside its own named ones.

    Args:
        route: the function; it takes the others as ``**given``.
        of: the other function.
        but: parameters of that one that are left out.
    """
    own = [one for one in _parameters(route) if one.kind is not one.VAR_KEYWORD]
    names = {*but, *(one.name for one in own)}
    # A caller is refused before a body is read.
    every = [*(one for one in _parameters(of) if one.name not in names), *own]
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in every]
    route.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return route


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())
