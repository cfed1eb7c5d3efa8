"""The asset checks of arrivals, and the latest evaluation of each check, in bulk."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from arctic_orchestration.event_log.arrival_checks import ArrivalChecks, concerns
from arctic_orchestration.event_log.arrival_lookup import column_of, rows_of, run_statement
from arctic_orchestration.event_log.check_rows import evaluation, planned_check
from arctic_orchestration.event_log.escaping import escaped
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.log_rows import CHECK, CHECK_PLANNED, COLUMNS

_ENDED = "execution_status in ('SUCCEEDED', 'FAILED')"
_OF_RUNS = (
    f"select {COLUMNS} from event_logs "
    f"where dagster_event_type in ('{CHECK}', '{CHECK_PLANNED}') and run_id {{in}} order by id"
)
#: The names of an asset's checks, one step in the index for each.
_NAMES = """
    with recursive names(name) as (
        select min(check_name) from asset_check_executions where asset_key = ?
        union all
        select (select min(check_name) from asset_check_executions
                where asset_key = ? and check_name > names.name)
        from names where names.name is not null
    )
"""
_CHECKS_OF_NAMES = f"""
    select x.evaluation_event_storage_id from names join asset_check_executions x
      on x.asset_key = ? and x.check_name = names.name and x.{_ENDED}
"""
_REPORTED = (
    "and x.materialization_event_storage_id is null and x.run_id = '' "
    "and x.evaluation_event_storage_id > ?"
)
#: The latest evaluation of each check: for materializations, and without one.
_LATEST_CHECKS = (
    _NAMES
    + f"""
    select names.name,
           (select max(x.evaluation_event_storage_id) from asset_check_executions x
            where x.asset_key = ? and x.check_name = names.name and x.{_ENDED}
              and x.materialization_event_storage_id {{of_target}}),
           (select max(x.evaluation_event_storage_id) from asset_check_executions x
            where x.asset_key = ? and x.check_name = names.name and x.{_ENDED}
              and x.materialization_event_storage_id is null {{of_partition}})
    from names where names.name is not null
"""
)
#: A check is evaluated for the newest materialization, so the newest target has the latest one.
_NEWEST_TARGET = f"""
    = (select y.materialization_event_storage_id from asset_check_executions y
       where y.asset_key = ? and y.check_name = names.name and y.{_ENDED}
         and y.materialization_event_storage_id is not null
       order by y.materialization_event_storage_id desc limit 1)
"""
_OF_ASSET = "asset_key = ? and dagster_event_type = 'ASSET_MATERIALIZATION'"
_TARGETS_OF_PARTITION = (
    f'in (select m.id from event_logs m where m.{_OF_ASSET} and m."partition" = ?)'
)
_OF_PARTITION = 'and (x."partition" is null or x."partition" = ?)'
_NEWEST = f'select "partition" from event_logs where {_OF_ASSET} order by id desc limit 1'
_PARTITIONS = (
    'select id, "partition" from event_logs '
    'where id in (select value from {ids} as t) and "partition" is not null'
)


def checks_of(sql: Any, arrivals: Sequence[Event]) -> dict[int, ArrivalChecks]:
    """Returns the checks of each of some arrivals, by its storage id."""
    by_asset: dict[str, list[Event]] = defaultdict(list)
    for event in arrivals:
        by_asset[event.subject].append(event)
    planned, evaluations = _checks_of_runs(sql, {e.run_id for e in arrivals if e.run_id})
    ids = {number for asset, events in by_asset.items() for number in _checked(sql, asset, events)}
    evaluations |= rows_of(sql, ids - evaluations.keys())
    known: dict[tuple[str, int | None, str | None], list[Event]] = defaultdict(list)
    for check in _evaluations(sql, list(evaluations.values())):
        partition = None if check.target_id is not None else check.partition
        known[check.subject, check.target_id, partition].append(check)
    return {
        event.storage_id: ArrivalChecks(
            planned=frozenset(planned.get((event.run_id, event.subject), ())),
            evaluations=_of_arrival(event, known),
        )
        for event in arrivals
    }


def _of_arrival(
    event: Event, known: Mapping[tuple[str, int | None, str | None], Sequence[Event]]
) -> tuple[Event, ...]:
    """Returns the evaluations that belong to an arrival, by ascending storage id.

    Args:
        event: the arrival.
        known: evaluations by asset, the materialization that they name, else by partition.
    """
    keys = {(event.storage_id, None), (None, None), (None, event.partition)}
    found = [check for key in keys for check in known.get((event.subject, *key), ())]
    found.sort(key=lambda check: check.storage_id)
    return tuple(check for check in found if concerns(check, event))


def _checks_of_runs(
    sql: Any, run_ids: set[str]
) -> tuple[dict[tuple[str | None, str], set[str]], dict[int, tuple[Any, ...]]]:
    planned: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    evaluations: dict[int, tuple[Any, ...]] = {}
    for row in sql.rows_in(_OF_RUNS, sorted(run_ids)) if run_ids else ():
        if row[1] == CHECK:
            evaluations[row[0]] = row
        elif (plan := planned_check(row)) is not None:
            asset, check = plan
            planned[row[5], asset].add(check)
    return planned, evaluations


def _checked(sql: Any, asset: str, arrivals: Sequence[Event]) -> set[int]:
    """Returns the ids of evaluations of an asset's checks by other runs or from outside."""
    column, ids = column_of(asset), [event.storage_id for event in arrivals]
    table, parameter = sql.table_of(ids)
    targeted = f"and x.materialization_event_storage_id in (select value from {table} as t)"
    base = _NAMES + _CHECKS_OF_NAMES
    rows = run_statement(sql, f"{base} {targeted}", column, column, column, parameter)
    rows += run_statement(sql, f"{base} {_REPORTED}", column, column, column, min(ids))
    return {row[0] for row in rows if row[0] is not None}


def latest_checks(
    sql: Any, assets: Sequence[str], partition: str | None
) -> dict[str, dict[str, Event | None]]:
    """Returns the latest evaluation of each check of each asset; None: planned, never evaluated.

    Args:
        sql: runs statements on the event log.
        assets: as ``raw/orders``; an asset without checks is left out.
        partition: evaluations of other partitions are ignored; those without one count. None:
            all count.
    """
    numbers = {asset: _latest_numbers(sql, asset, partition) for asset in assets}
    ids = {number for found in numbers.values() for number in found.values() if number is not None}
    rows = rows_of(sql, ids)
    events = {event.storage_id: event for event in _evaluations(sql, list(rows.values()))}
    return {
        asset: {check: events.get(number or 0) for check, number in found.items()}
        for asset, found in numbers.items()
        if found
    }


def _latest_numbers(sql: Any, asset: str, partition: str | None) -> dict[str, int | None]:
    """Returns the id of the latest evaluation of each check of an asset."""
    column = column_of(asset)
    if partition is not None:
        newest = run_statement(sql, _NEWEST, column)
        # An evaluation of an asset without partitions counts for all of them.
        partition = None if newest and newest[0][0] is None else partition
    if partition is None:
        statement = _LATEST_CHECKS.format(of_target=_NEWEST_TARGET, of_partition="")
        values = [column] * 5
    else:
        parts = {"of_target": _TARGETS_OF_PARTITION, "of_partition": _OF_PARTITION}
        statement = _LATEST_CHECKS.format(**parts)
        values = [column, column, column, column, partition, column, partition]
    return {
        check: max((number for number in found if number is not None), default=None)
        for check, *found in run_statement(sql, statement, *values)
    }


def _evaluations(sql: Any, rows: Sequence[tuple[Any, ...]]) -> list[Event]:
    return with_checked_partitions(sql, [evaluation(row) for row in rows])


def with_checked_partitions(sql: Any, events: list[Event]) -> list[Event]:
    """Adds the partition of the checked materialization to CHECK events without one."""
    targets = {
        event.target_id
        for event in events
        if event.kind is EventKind.CHECK and event.partition is None and event.target_id
    }
    if not targets:
        return events
    table, parameter = sql.table_of(sorted(targets))
    statement = _PARTITIONS.format(ids=table)
    partitions = {number: escaped(key) for number, key in run_statement(sql, statement, parameter)}
    return [
        replace(event, partition=partitions[event.target_id])
        if event.kind is EventKind.CHECK
        and event.partition is None
        and event.target_id in partitions
        else event
        for event in events
    ]
