"""Who calls the command, for the histories that others read."""

import getpass


def person() -> str:
    """The name of the system's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container without a name for its user.
        return "a person"
