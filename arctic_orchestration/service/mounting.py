"""Dagster's UI and this service as one application."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

#: where this service is on Dagster's server
MOUNT = "/arctic"


def mounted(ours: FastAPI, dagster: Starlette) -> Starlette:
    """Returns an application with Dagster's UI, and ours below :data:`MOUNT`."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # That of a mounted application is not run by itself.
        async with AsyncExitStack() as stack:
            for app in (dagster, ours):
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    def first_page(_: Request) -> Response:
        return RedirectResponse(f"{MOUNT}/")

    routes = [Route(MOUNT, first_page), Mount(MOUNT, ours), Mount("/", dagster)]
    return Starlette(routes=routes, lifespan=lifespan)
