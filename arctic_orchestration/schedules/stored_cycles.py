"""Finds cycles among the stored schedules of a location; see :mod:`.cycles`."""

from collections import defaultdict
from collections.abc import Collection

import sqlalchemy as sa

from arctic_orchestration.schedules.cycles import Cycle, JobAssets, cycles, run_keys
from arctic_orchestration.schedules.inventory import job_assets
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import stored_forms
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.tables import schedule_keys


def stored_cycles(
    tx: sa.Connection, store: ScheduleStore, location: Location, *, through: Collection[str] = ()
) -> list[Cycle]:
    """Returns the cycles of a location's schedules; ``through`` as in :func:`.cycles.cycles`.

    Reads the index and the forms; parses only schedules that may be part of a cycle.
    """
    made = job_assets(tx, location)
    suspects = store.by_ids(tx, _suspects(tx, location, made)).values()
    among = [stored.schedule for stored in suspects]
    return cycles(among, location.name, made, through=through)


def _suspects(tx: sa.Connection, location: Location, made: JobAssets) -> set[str]:
    """Returns the ids of schedules that listen to each other's runs, satisfied by them or not."""
    heard: dict[str, set[str]] = defaultdict(set)
    index = sa.select(schedule_keys.c.schedule_id, schedule_keys.c.event_key)
    for row in tx.execute(index.where(schedule_keys.c.location_id == location.id)):
        heard[row.schedule_id].add(row.event_key)
    writes = {
        id: run_keys(target.get("job"), target.get("assets", ()), location.name, made)
        for id, _, _, target in stored_forms(tx, location)
        if id in heard
    }
    left = set(writes)
    while True:
        written = set().union(*(writes[id] for id in left))
        kept = {id for id in left if heard[id] & written}
        if kept == left:
            return left
        left = kept
