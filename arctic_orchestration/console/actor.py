"""Who calls the command, for the histories that others read."""

import getpass

from arctic_orchestration.state.audit import Actor


def person() -> str:
    """The name of the system's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container without a name for its user.
        return "a person"


def actor(cluster: str) -> Actor:
    """Who calls the command, for the audit log."""
    return Actor(name=person(), cluster=cluster)
