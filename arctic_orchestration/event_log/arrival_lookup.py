"""Looks up facts about arrivals that their events lack: in bulk, by indexes of Dagster's storage.

The statements are the same on SQLite and Postgres, apart from ``is_wiped``; ``placeholder`` and
``table_of`` of the connection give the form of parameters.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dagster import AssetKey

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.event_log.log_rows import COLUMNS, arrival
from arctic_orchestration.event_log.ranges import IdRanges

_BACKFILL_TAG = "dagster/backfill"
_BACKFILLS = "select run_id, value from run_tags where key = ? and run_id {in}"

_MATERIALIZED = "e.dagster_event_type = 'ASSET_MATERIALIZATION'"
_OBSERVED = "e.dagster_event_type = 'ASSET_OBSERVATION'"
_OUTSIDE = "(e.run_id is null or e.run_id = '')"


def backfills_of(sql: Any, run_ids: Iterable[str]) -> dict[str, str]:
    """Returns the backfill of each of some runs that belongs to one."""
    values = sorted(set(run_ids))
    if not values:
        return {}
    statement = _BACKFILLS.replace("?", sql.placeholder)
    return dict(sql.rows_in(statement, values, _BACKFILL_TAG))


def arrived(
    sql: Any,
    asset: str,
    partitions: Collection[str],
    delivered: tuple[int, IdRanges],
    *,
    observed_by_runs: bool,
) -> set[str]:
    """Returns partitions with an arrival among delivered events; ``""``: without a partition."""
    keys = sorted({key for key in partitions if key})
    upto, above = delivered
    found: set[str] = set()
    for wanted, matches in ((keys, 'e."partition" = t.value'), ([""], 'e."partition" is null')):
        if not set(wanted) <= set(partitions):
            continue
        found |= _arrived_up_to(sql, asset, wanted, matches, upto, observed_by_runs)
        missing = [key for key in wanted if key not in found]
        if missing and len(above):
            found |= _arrived_above(sql, asset, missing, matches, upto, above, observed_by_runs)
    return found


def _arrived_up_to(
    sql: Any, asset: str, keys: Sequence[str], matches: str, upto: int, observed_by_runs: bool
) -> set[str]:
    column = column_of(asset)
    table, parameter = sql.table_of(keys)
    kinds = _kinds(observed_by_runs)
    exists = " or ".join(
        f"exists (select 1 from event_logs e where e.asset_key = ? and {kind} "
        f"and {matches} and e.id <= ? and {_not_wiped(sql)})"
        for kind in kinds
    )
    rows = run_statement(
        sql,
        f"select t.value from {table} as t where {exists}",
        parameter,
        *(column, upto) * len(kinds),
    )
    return {row[0] for row in rows}


def _arrived_above(
    sql: Any,
    asset: str,
    keys: Sequence[str],
    matches: str,
    upto: int,
    above: IdRanges,
    observed_by_runs: bool,
) -> set[str]:
    table, parameter = sql.table_of(keys)
    kinds = " or ".join(f"({kind})" for kind in _kinds(observed_by_runs))
    rows = run_statement(
        sql,
        f"select e.id, t.value from {table} as t join event_logs e on {matches} "
        f"where e.asset_key = ? and ({kinds}) and e.id > ? and e.id <= ? and {_not_wiped(sql)}",
        parameter,
        column_of(asset),
        upto,
        max(high for _, high in above),
    )
    return {key for number, key in rows if number in above}


def changed(sql: Any, arrivals: Sequence[Event], *, observed_by_runs: bool) -> set[int]:
    """Returns the storage ids of the arrivals whose data version differs from the last one.

    An arrival without a data version, and the first of its asset partition, is included.
    """
    versions = {event.storage_id: event.data_version for event in arrivals}
    ids = sorted(number for number, version in versions.items() if version is not None)
    if not ids:
        return set(versions)
    before = _ids_before(sql, ids, observed_by_runs)
    bodies = rows_of(sql, set(before.values()), f"and {_not_wiped(sql)}")
    return {
        number
        for number, version in versions.items()
        if version is None
        or number not in before
        or before[number] not in bodies
        or arrival(bodies[before[number]]).data_version != version
    }


def _ids_before(sql: Any, ids: Sequence[int], observed_by_runs: bool) -> dict[int, int]:
    """Returns the id of the arrival of the same asset partition before each of some arrivals."""
    table, parameter = sql.table_of(ids)
    before: dict[int, int] = {}
    for same, which in (
        ('e."partition" = a."partition"', 'a."partition" is not null'),
        ('e."partition" is null', 'a."partition" is null'),
    ):
        latest = ", ".join(
            f"(select e.id from event_logs e where e.asset_key = a.asset_key and {kind} "
            f"and {same} and e.id < a.id order by e.id desc limit 1)"
            for kind in _kinds(observed_by_runs)
        )
        statement = (
            f"select a.id, {latest} from {table} as t join event_logs a on a.id = t.value "
            f"where {which}"
        )
        for number, *candidates in run_statement(sql, statement, parameter):
            if known := [candidate for candidate in candidates if candidate is not None]:
                before[number] = max(known)
    return before


def latest_row(sql: Any, asset: str) -> tuple[Any, ...] | None:
    """Returns the row of the last materialization of an asset, or None."""
    statement = (
        f"select {COLUMNS} from event_logs e where asset_key = ? and {_MATERIALIZED} "
        f"and {_not_wiped(sql)} order by id desc limit 1"
    )
    rows = run_statement(sql, statement, column_of(asset))
    return rows[0] if rows else None


def rows_of(sql: Any, ids: Collection[int], condition: str = "") -> dict[int, tuple[Any, ...]]:
    """Returns the rows of the log with these ids, by id, in the form for ``log_rows``."""
    if not ids:
        return {}
    table, parameter = sql.table_of(sorted(ids))
    wanted = f"id in (select value from {table} as t) {condition}"
    statement = f"select {COLUMNS} from event_logs e where {wanted}"
    return {row[0]: row for row in run_statement(sql, statement, parameter)}


def _not_wiped(sql: Any) -> str:
    """Returns the condition that the row is not from before its asset was wiped."""
    return (
        "not exists (select 1 from asset_keys k where k.asset_key = e.asset_key "
        f"and {sql.is_wiped})"
    )


def column_of(asset: str) -> str:
    """Returns the value of the column ``asset_key`` for an asset, ``["raw", "orders"]``."""
    return AssetKey.from_user_string(asset).to_string()


def _kinds(observed_by_runs: bool) -> tuple[str, str]:
    return _MATERIALIZED, _OBSERVED if observed_by_runs else f"{_OBSERVED} and {_OUTSIDE}"


def run_statement(sql: Any, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement with ``?`` as the placeholder of parameters."""
    # The table of values already has the placeholder of its driver.
    with sql.session() as run:
        return list(run(statement.replace("?", sql.placeholder), parameters))
