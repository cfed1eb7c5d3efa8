"""``arctic mcp``: the questions of operators as a server of the Model Context Protocol."""

from arctic_orchestration.console.state import state_database
from arctic_orchestration.settings import Settings


def mcp() -> None:
    """Answer questions of agents over stdin and stdout.

    What waits, why, why not, and what would happen: read-only, for an agent that starts this
    command as a server of the Model Context Protocol.
    """
    from arctic_orchestration.service.mcp_server import create_server

    settings = Settings.from_environment()
    database = state_database(settings, made_by="the dispatcher")
    try:
        create_server(settings, database).run("stdio")
    finally:
        database.close()
