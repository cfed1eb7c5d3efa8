"""The caller of a command, for histories and the audit log."""

import getpass

from arctic_orchestration.state.audit import Actor


def person() -> str:
    """Returns the name of the system's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may have no name for its user.
        return "a person"


def actor(cluster: str) -> Actor:
    """Returns the caller of the command, for the audit log."""
    return Actor(name=person(), cluster=cluster)
