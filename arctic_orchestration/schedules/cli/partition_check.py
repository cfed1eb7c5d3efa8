"""Checks whether a reported partition exists in a code location, or is a typo."""

from arctic_orchestration.console.state import read_state
from arctic_orchestration.errors import DatabaseUnavailable, InvalidInput
from arctic_orchestration.schedules.arrival_names import ArrivalNames

_FIELDS = {"asset": "ASSET", "partition": "KEY"}


def check_names(asset: str, key: str) -> str | None:
    """Refuses an unknown asset, and a key that the asset cannot have.

    Returns why nothing could be checked, or None.

    Errors:
        InvalidInput: names the nearest.
    """
    try:
        with read_state() as state:
            if state is None:
                return "there is no state database of this version"
            names = ArrivalNames(*state)
            problem, unchecked = names.problem(asset, key), names.unchecked(asset)
    except DatabaseUnavailable as error:
        # Arrivals are written to Dagster's own log, which does not depend on the state database.
        return str(error)
    if problem is not None:
        part, expected = problem
        value = asset if part == "asset" else key
        raise InvalidInput(
            _FIELDS[part], value, f"{expected} (to announce it all the same: --force)"
        )
    return unchecked
