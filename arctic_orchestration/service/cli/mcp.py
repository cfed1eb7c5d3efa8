"""``arctic mcp``: the questions of operators as a server of the Model Context Protocol."""

from arctic_orchestration.console.state import opened_state


def mcp() -> None:
    """Answer questions of agents over stdin and stdout.

    What waits, why, why not, and what would happen: read-only, for an agent that starts this
    command as a server of the Model Context Protocol.
    """
    from arctic_orchestration.service.mcp_server import create_server

    with opened_state() as (settings, database):
        create_server(settings, database).run("stdio")
