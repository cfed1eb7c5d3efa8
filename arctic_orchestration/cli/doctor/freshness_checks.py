"""The checks of tasks with fresh parents and of partition consumers, in ``arctic doctor``."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.console.display import counted
from arctic_orchestration.console.findings import Finding, bad, good, warning
from arctic_orchestration.console.state import read_state
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.freshness import definitions
from arctic_orchestration.freshness.dagster.plain_assets import PlainAssets
from arctic_orchestration.freshness.definitions import RegisteredLocation
from arctic_orchestration.freshness.views.overview import task_overview
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.inventory import assets_of, inventories
from arctic_orchestration.schedules.lookup import near
from arctic_orchestration.state.consumer_tables import consumer_partitions
from arctic_orchestration.state.consumer_tables import consumers as consumer_rows
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.waits import command

#: A location that has not ticked for this long may be gone for good.
_GONE = timedelta(days=1)


def tasks_and_consumers() -> list[Finding]:
    """Finds tasks that no sensor runs, unknown parents and assets, and partitions given up."""
    with read_state() as state:
        if state is None:
            return []
        tx, cluster = state
        return [
            *_locations(tx, cluster, database_time(tx)),
            *_unknown_parents(tx, cluster),
            *_discarded(tx, cluster),
            *_without_asset(tx, cluster),
        ]


def _locations(tx: sa.Connection, cluster: str, now: datetime) -> Iterator[Finding]:
    known = [one for one in definitions.locations(tx) if one.cluster == cluster]
    for one in known:
        yield _location(one, now)


def _location(one: RegisteredLocation, now: datetime) -> Finding:
    check = f"tasks of {one.location}"
    if one.trouble is not None:
        advice = "fix the reported problem; the previous registration stays until then"
        return bad(check, one.trouble, advice)
    ticked = one.ticked_at
    found = "no tick yet" if ticked is None else f"last tick {format_moment(ticked)}"
    if ticked is not None and now - ticked <= definitions.SILENT:
        return good(check, found)
    if ticked is not None and now - ticked > _GONE:
        advice = f"if it was renamed or is gone: {command('tasks', 'forget', one.location)}"
        return warning(check, found, advice)
    advice = "start the daemon, and the sensor arctic_tasks on the Automation page of Dagster's UI"
    return bad(check, found, advice)


def _unknown_parents(tx: sa.Connection, cluster: str) -> Iterator[Finding]:
    """Finds parents that are no task, no asset of a code location, and were never materialized."""
    assets = assets_of(inventories(tx, cluster))
    if not assets or not definitions.locations(tx):
        return
    overview = task_overview(tx, PlainAssets())
    known = {*assets, *overview.views}
    names = sorted(known)
    for view in overview.views.values():
        for edge in view.parents:
            if edge.parent not in known and overview.may_be_none(edge):
                yield warning(
                    f"task {view.name}",
                    f"its parent {edge.parent} is no task, no asset of a code location, and "
                    "was never materialized",
                    f"check the name{near(edge.parent, names)}",
                )


def _discarded(tx: sa.Connection, cluster: str) -> Iterator[Finding]:
    col, of = consumer_partitions.c, consumer_rows.c
    query = (
        sa.select(of.name, sa.func.count())
        .join(consumer_partitions, col.consumer_id == of.id)
        .where(of.cluster == cluster, col.state == PartitionState.DISCARDED.value)
        .group_by(of.name)
        .order_by(of.name)
    )
    for name, count in tx.execute(query):
        yield warning(
            f"consumer {name}",
            f"{counted(count, 'partition')} given up",
            f"arctic consumers show {name} --state discarded shows why, and "
            f"arctic consumers retry {name} --all delivers again",
        )


def _without_asset(tx: sa.Connection, cluster: str) -> Iterator[Finding]:
    """Finds consumers of which nothing has arrived, of an asset that no code location defines.

    Not all locations store what they define: an asset of which something arrived is no typo.
    """
    names = assets_of(inventories(tx, cluster))
    known = set(names)
    has_some = sa.exists().where(consumer_partitions.c.consumer_id == consumer_rows.c.id)
    query = sa.select(consumer_rows.c.name, consumer_rows.c.asset).where(
        consumer_rows.c.cluster == cluster, consumer_rows.c.asset != "", ~has_some
    )
    for name, asset in tx.execute(query.order_by(consumer_rows.c.name)) if known else ():
        if asset not in known:
            yield warning(
                f"consumer {name}",
                f"no code location defines {asset}, and nothing of it has arrived",
                f"check the name{near(asset, names)}",
            )
