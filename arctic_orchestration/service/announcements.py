"""Announcements: arrivals that a request brings, written into Dagster's event log once.

Of a key, the state database has the id of its announcement and a digest of its body. Dagster's log
has the arrivals, all of them or none, each with the id as a tag; the transaction that writes them
looks for the id first, under a lock. So nothing is written twice, also if the first request ended
before its answer, or still runs: the next request with the key completes it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.state import audit, dialect
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.service_tables import announcements

if TYPE_CHECKING:
    from arctic_orchestration.event_log.announcement import Announcer, Arrival

#: how long a key is remembered
KEEP = timedelta(days=30)
#: the assets that the audit log has of an announcement, those with the most arrivals
_RECORDED = 100
_OTHER_BODY = "a new key: this one came with another body"


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """A row of ``arctic_announcements``."""

    id: str
    #: the last event of Dagster's log before it
    position: int
    is_written: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The idempotency key and the body of a request, which belong together.

    A key belongs to its caller: another one's key is another key.
    """

    actor: Actor
    key: str
    body: Any

    @property
    def stored_key(self) -> str:
        """The key in the database."""
        return _digest([self.actor.cluster, self.actor.name, self.key])

    @property
    def digest(self) -> str:
        """The digest of the body."""
        return _digest(self.body)

    def find(self, tx: sa.Connection, now: datetime) -> Announcement | None:
        """Returns the announcement of the key, if there was a request with it that is remembered.

        Errors:
            InvalidInput: it came with another body.
        """
        col = announcements.c
        this = (col.key == self.stored_key) & (col.begun_at >= now - KEEP)
        found = tx.execute(sa.select(announcements).where(this)).one_or_none()
        if found is None:
            return None
        if found.digest != self.digest:
            raise InvalidInput("Idempotency-Key", self.key, _OTHER_BODY)
        return Announcement(
            id=found.id, position=found.position, is_written=found.written_at is not None
        )

    def begin(self, tx: sa.Connection, position: int, assets: Counter[str]) -> Announcement:
        """Stores the announcement and its audit record, unless another request was first."""
        now = database_time(tx)
        tx.execute(sa.delete(announcements).where(announcements.c.begun_at < now - KEEP))
        new = dialect.insert(tx, announcements).values(
            id=new_id(now), key=self.stored_key, digest=self.digest, position=position, begun_at=now
        )
        made = tx.execute(new.on_conflict_do_nothing(index_elements=["key"])).rowcount
        found = self.find(tx, now)
        assert found is not None
        if made:
            most = dict(assets.most_common(_RECORDED))
            details = {"key": self.key, "arrivals": assets.total(), "assets": most}
            audit.record(tx, self.actor, "events", "announce", found.id, **details)
        return found


def write(
    database: Database,
    announcer: "Announcer",
    request: Request,
    arrivals: Sequence["Arrival"],
    assets: Counter[str],
) -> Announcement:
    """Writes the arrivals of a request into Dagster's log, unless they are there.

    Errors:
        InvalidInput: the key came with another body.
        DatabaseUnavailable: a database does not answer; the same request may be sent again.
    """
    position = announcer.last_event()
    with database.begin() as tx:
        announcement = request.begin(tx, position, assets)
    if not announcement.is_written:
        announcer.announce(arrivals, announcement.id, announcement.position)
        with database.begin() as tx:
            this = announcements.c.id == announcement.id
            tx.execute(sa.update(announcements).where(this).values(written_at=database_time(tx)))
    return announcement


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
