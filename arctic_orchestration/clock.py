"""The only place that reads the time; everything else is handed ``now``."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The current moment as an aware UTC datetime."""
    return datetime.now(UTC)
