"""``arctic webserver``: Dagster's UI, and below ``/arctic`` the REST API and its pages."""

from contextlib import ExitStack
from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import Annotated

import typer

from arctic_orchestration.console.dagster_instance import opened_instance
from arctic_orchestration.errors import ConfigurationError, InvalidInput
from arctic_orchestration.service.cli.serve import opened, run, say, shown_host

#: As dagster-webserver sets them by default: statements end after 15 s, connections after an hour.
_STATEMENT_MILLISECONDS, _RECYCLE_SECONDS, _MORE_CONNECTIONS = 15_000, 3_600, 20


def webserver(
    host: Annotated[str, typer.Option("--host", "-h", help="The address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=1, max=65_535, help="The port.")] = 3000,
    workspace: Annotated[
        list[Path] | None, typer.Option("--workspace", "-w", help="A workspace file; repeatable.")
    ] = None,
    module: Annotated[
        list[str] | None, typer.Option("--module-name", "-m", help="A module with definitions.")
    ] = None,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Require a token on loopback, too.")
    ] = False,
) -> None:
    """Serve Dagster's UI, and the pages at /arctic.

    Tokens and scopes protect what is below /arctic. Dagster's UI has no access control.
    """
    for path in workspace or ():
        if not isfile(path):
            raise InvalidInput("--workspace", str(path), "a workspace file that exists")
    for name in module or ():
        if not all(part.isidentifier() for part in name.split(".")):
            raise InvalidInput("--module-name", name, "a module, such as package.module")
    from dagster import DagsterError
    from yaml import YAMLError

    from arctic_orchestration import postgres_connections
    from arctic_orchestration.dagster_internals import (
        WorkspaceOpts,
        WorkspaceProcessContext,
        create_app_from_workspace_process_context,
        workspace_opts_to_load_target,
    )
    from arctic_orchestration.service.app import create_app
    from arctic_orchestration.service.mounting import MOUNT, mounted

    loaded = WorkspaceOpts(workspace=[str(path) for path in workspace or ()], module_name=module)
    with (
        opened(host, require_token=require_token) as (settings, database, rules),
        opened_instance() as instance,
        ExitStack() as stack,
    ):
        instance.optimize_for_webserver(
            _STATEMENT_MILLISECONDS, _RECYCLE_SECONDS, _MORE_CONNECTIONS
        )
        # Of Postgres: one in place of one for each storage.
        postgres_connections.reuse_in_instance(
            instance, statement_milliseconds=_STATEMENT_MILLISECONDS
        )
        try:
            target = workspace_opts_to_load_target(loaded)
            process = WorkspaceProcessContext(instance, workspace_load_target=target)
            context = stack.enter_context(process)
        except (DagsterError, YAMLError) as error:
            raise ConfigurationError(f"The workspace cannot be loaded: {error}") from error
        dagster = create_app_from_workspace_process_context(context)
        # The UI is on the same server.
        ours = create_app(replace(settings, dagster_url=""), database, rules)
        root = f"http://{shown_host(host)}:{port}"
        say(f"serving {root} and {root}{MOUNT} for cluster {settings.cluster}")
        run(mounted(ours, dagster), host, port)
