"""How far consumers are, with what Dagster's event log has for them and was not read yet."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.progress import Progress, counted
from arctic_orchestration.consumers.specification import ConsumerSpec
from arctic_orchestration.consumers.store import Consumer
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.event_log.feed import Batch, Feed, FeedMode, Position
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

if TYPE_CHECKING:
    from arctic_orchestration.event_log.dagster_log import DagsterLog

_NO_INSTANCE = "DAGSTER_HOME is not set"
_NOT_ASKED = "the event log was not asked"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How far a consumer is.

    Attributes:
        consumer: it.
        progress: what is done and left.
        uncounted: why ``progress`` is that of the last reading, without what came since; none: it
            counts what came since.
    """

    consumer: Consumer
    progress: Progress
    uncounted: str | None

    @classmethod
    def as_read(cls, consumer: Consumer, progress: Progress, why: str = _NOT_ASKED) -> "Standing":
        """By the state database alone."""
        return cls(consumer=consumer, progress=progress, uncounted=why)


class _TooMuchError(ArcticError):
    """More events than one wants to read."""


class _Bounded:
    """A feed of which no more than so many events are read, from whatever positions."""

    def __init__(self, feed: Feed, events: int) -> None:
        self._feed = feed
        self._left = events

    @property
    def storage_id(self) -> str:
        return self._feed.storage_id

    @property
    def mode(self) -> FeedMode:
        return self._feed.mode

    @property
    def mode_reason(self) -> str:
        return self._feed.mode_reason

    def read(self, position: Position | None, limit: int) -> Batch:
        """The next events.

        Errors:
            _TooMuchError: so many were read already.
        """
        if self._left <= 0:
            raise _TooMuchError("more of the event log is unread than is counted here")
        batch = self._feed.read(position, limit)
        # A full reading may have been of others' events that this feed leaves out.
        self._left -= limit if batch.more else len(batch.events)
        return batch

    def end(self) -> Position:
        return self._feed.end()


def standings(
    database: Database, found: Sequence[Consumer], *, asks_log: bool, at_most: int | None = None
) -> list[Standing]:
    """How far consumers are, by the event log of ``DAGSTER_HOME`` where it can be asked.

    Some 30 microseconds an event that a consumer has not read.

    Args:
        database: the state database.
        found: which consumers.
        asks_log: whether the event log is to be asked.
        at_most: so many events are read of it, for all of them together; none: as many as it has.
    """
    with ExitStack() as opened:
        log: Feed | None = None
        why = _NOT_ASKED
        if asks_log and found:
            try:
                log = opened.enter_context(_log({one.asset for one in found}))
                why = _NO_INSTANCE
                if log is not None and at_most is not None:
                    log = _Bounded(log, at_most)
            except ArcticError as error:
                why = str(error)
        return [_standing(database, one, log, why) for one in found]


def _standing(database: Database, one: Consumer, log: Feed | None, why: str) -> Standing:
    if log is not None:
        try:
            if one.storage_id == log.storage_id:
                # All that counting needs to know of it is in its row.
                spec = ConsumerSpec.parse({"name": one.name, "asset": one.asset})
                engine = ConsumerEngine(spec=spec, cluster=one.cluster, database=database, feed=log)
                return Standing(consumer=one, progress=engine.progress(), uncounted=None)
            why = (
                "it was reset, and has not read since"
                if one.storage_id is None
                else "the instance of DAGSTER_HOME has another event log than it reads"
            )
        except ArcticError as error:
            why = str(error)
    with database.read() as tx:
        progress = counted(tx, one.id, database_time(tx))
    return Standing.as_read(one, progress, why)


@contextmanager
def _log(assets: Collection[str]) -> "Iterator[DagsterLog | None]":
    if not os.environ.get("DAGSTER_HOME"):
        yield None
        return
    # Dagster takes seconds to import.
    from arctic_orchestration.consumers.dagster.event_source import log_of, opened_instance

    with opened_instance() as instance:
        log = log_of(instance, assets)
        try:
            yield log
        finally:
            log.close()
