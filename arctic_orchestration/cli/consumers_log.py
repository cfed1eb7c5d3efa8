"""How far consumers are, with what Dagster's event log has for them and was not read yet."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from arctic_orchestration.consuming.consumers import Consumer
from arctic_orchestration.consuming.engine import ConsumerEngine
from arctic_orchestration.consuming.progress import Progress, counted
from arctic_orchestration.consuming.specification import ConsumerSpec
from arctic_orchestration.database.dialect import database_time
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import ArcticError

if TYPE_CHECKING:
    from arctic_orchestration.events.dagster_log import DagsterLog

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


def standing_as_read(tx: sa.Connection, one: Consumer) -> Standing:
    """How far a consumer is by the state database alone."""
    progress = counted(tx, one.id, database_time(tx))
    return Standing(consumer=one, progress=progress, uncounted=_NOT_ASKED)


def standings(database: Database, found: Sequence[Consumer], *, asks_log: bool) -> list[Standing]:
    """How far consumers are, by the event log of ``DAGSTER_HOME`` where it can be asked.

    Some 30 microseconds an event that a consumer has not read.

    Args:
        database: the state database.
        found: which consumers.
        asks_log: whether the event log is to be asked.
    """
    with ExitStack() as opened:
        log: DagsterLog | None = None
        why = _NOT_ASKED
        if asks_log and found:
            try:
                log = opened.enter_context(_log())
                why = _NO_INSTANCE
            except ArcticError as error:
                why = str(error)
        return [_standing(database, one, log, why) for one in found]


def _standing(database: Database, one: Consumer, log: "DagsterLog | None", why: str) -> Standing:
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
    return Standing(consumer=one, progress=progress, uncounted=why)


@contextmanager
def _log() -> "Iterator[DagsterLog | None]":
    if not os.environ.get("DAGSTER_HOME"):
        yield None
        return
    # Dagster takes seconds to import.
    from arctic_orchestration.consuming.instance import log_of, opened_instance

    with opened_instance() as instance:
        log = log_of(instance)
        try:
            yield log
        finally:
            log.close()
