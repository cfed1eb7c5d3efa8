"""The only place that reads the time; all other code receives ``now``."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Returns the current moment as an aware UTC datetime."""
    return datetime.now(UTC)
