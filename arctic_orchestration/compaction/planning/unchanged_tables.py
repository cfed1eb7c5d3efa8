"""Finds tables whose last check still holds, for all tables of a catalog at once.

A check of one table loads its metadata and asks the state database several times. Where the catalog
tells with one query where the metadata of all tables is, only tables that have changed, or whose
tasks have, are checked: so 50,000 tables of which a few change cost what these few do.
"""

from collections import defaultdict
from collections.abc import Mapping, Set
from datetime import datetime

import sqlalchemy as sa
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction.planning.plan_cache import Memory
from arctic_orchestration.compaction.queue.task import LIVE
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.errors import CatalogUnavailable
from arctic_orchestration.lake.table_listing import metadata_locations
from arctic_orchestration.state.compaction_tables import compaction_rests, compaction_tasks
from arctic_orchestration.state.database import Database

_NONE: frozenset[str] = frozenset()


def find_unchanged(
    catalog: Catalog,
    database: Database,
    memories: Mapping[str, Memory],
    rows: Mapping[str, CompactionTable],
    now: datetime,
) -> dict[str, Memory]:
    """Returns new memories of those tables of which a check would find what the last one did.

    Errors:
        DatabaseUnavailable: the state database did not answer.
    """
    candidates = {
        name: memory
        for name, memory in memories.items()
        if memory.location is not None
        and memory.failures == 0
        and (memory.recheck_at is None or memory.recheck_at > now)
        and name in rows
        and _is_at_rest(rows[name])
    }
    if not candidates:
        return {}
    try:
        locations = metadata_locations(catalog)
    except CatalogUnavailable:
        # The check of a table reports it.
        return {}
    if locations is None:
        return {}
    live, resting = _live_tasks_and_resting(database)
    return {
        name: memory.of_same_check(now)
        for name, memory in candidates.items()
        if memory.location == locations.get(name)
        and memory.tasks == live.get(name, _NONE)
        and name not in resting
    }


def _is_at_rest(row: CompactionTable) -> bool:
    """Returns whether nothing is to be done for a table, and its queue is the one it wants."""
    is_queued = row.mapped_to is not None or row.property_queue in (None, row.queue)
    return row.due_since is None and row.gone_at is None and is_queued


def _live_tasks_and_resting(database: Database) -> tuple[Mapping[str, Set[str]], Set[str]]:
    """Returns the ids of live tasks by table, and the tables with resting files."""
    tasks, rests = compaction_tasks.c, compaction_rests.c
    live: dict[str, set[str]] = defaultdict(set)
    with database.read() as tx:
        query = sa.select(tasks.table_name, tasks.id).where(tasks.state.in_(LIVE))
        for name, id in tx.execute(query):
            live[name].add(id)
        resting = set(tx.execute(sa.select(rests.table_name).distinct()).scalars())
    return live, resting
