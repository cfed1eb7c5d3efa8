"""The asset checks of arrivals, and the latest evaluation of each check, in bulk."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arctic_orchestration.events.arrival_checks import ArrivalChecks, concerns
from arctic_orchestration.events.arrival_lookup import column_of, rows_of, run_statement
from arctic_orchestration.events.check_rows import evaluation, planned_check
from arctic_orchestration.events.escaping import escaped
from arctic_orchestration.events.event import Event, EventKind
from arctic_orchestration.events.log_rows import CHECK, CHECK_PLANNED, COLUMNS

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
_LATEST_CHECKS = f"""
    select x.asset_key, x.check_name,
           max(case when x.{_ENDED} {{and_partition}} then x.evaluation_event_storage_id end)
    from asset_check_executions x {{join}} where x.asset_key in (select value from {{assets}} as t)
    group by x.asset_key, x.check_name
"""
_OF_PARTITION = 'and coalesce(x."partition", m."partition", ?) = ?'
_PARTITIONS = (
    'select id, "partition" from event_logs '
    'where id in (select value from {ids} as t) and "partition" is not null'
)
_JOIN = "left join event_logs m on m.id = x.materialization_event_storage_id"


def checks_of(sql: Any, arrivals: Sequence[Event]) -> dict[int, ArrivalChecks]:
    """The checks of each of some arrivals, by its storage id."""
    by_asset: dict[str, list[Event]] = defaultdict(list)
    for event in arrivals:
        by_asset[event.subject].append(event)
    planned, evaluations = _checks_of_runs(sql, {e.run_id for e in arrivals if e.run_id})
    ids = {number for asset, events in by_asset.items() for number in _checked(sql, asset, events)}
    evaluations |= rows_of(sql, ids - evaluations.keys())
    known: dict[str, list[Event]] = defaultdict(list)
    for check in _evaluations(sql, [evaluations[number] for number in sorted(evaluations)]):
        known[check.subject].append(check)
    return {
        event.storage_id: ArrivalChecks(
            planned=frozenset(planned.get((event.run_id, event.subject), ())),
            evaluations=tuple(e for e in known[event.subject] if concerns(e, event)),
        )
        for event in arrivals
    }


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
    """The ids of evaluations of an asset's checks, by other runs and from outside."""
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
    """The latest evaluation of each check of each asset; None: planned, never evaluated.

    Args:
        sql: statements to the event log.
        assets: as ``raw/orders``; one without checks is left out.
        partition: evaluations of other partitions do not count; those without one do. None:
            all count.
    """
    columns = {column_of(asset): asset for asset in assets}
    table, parameter = sql.table_of(list(columns))
    parts = {"and_partition": "", "join": "", "assets": table}
    values: list[Any] = [parameter]
    if partition is not None:
        parts |= {"and_partition": _OF_PARTITION, "join": _JOIN}
        values = [partition, partition, parameter]
    found = run_statement(sql, _LATEST_CHECKS.format(**parts), *values)
    rows = rows_of(sql, {number for _, _, number in found if number is not None})
    latest = {event.storage_id: event for event in _evaluations(sql, list(rows.values()))}
    checks: dict[str, dict[str, Event | None]] = defaultdict(dict)
    for column, check, number in found:
        checks[columns[column]][check] = latest.get(number)
    return dict(checks)


def _evaluations(sql: Any, rows: Sequence[tuple[Any, ...]]) -> list[Event]:
    return with_checked_partitions(sql, [evaluation(row) for row in rows])


def with_checked_partitions(sql: Any, events: list[Event]) -> list[Event]:
    """The events, where CHECK events without a partition have that of what was checked."""
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
