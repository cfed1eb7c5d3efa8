"""A clock for tests that stands until it is set."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that stands until it is set; called with a transaction, as leases want it."""

    now: datetime = NOON

    def __call__(self, tx: sa.Connection) -> datetime:
        return self.now

    def passes(self, **parts: float) -> None:
        """Sets it forward."""
        self.now += timedelta(**parts)
