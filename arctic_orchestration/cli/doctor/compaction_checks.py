"""The checks of compaction in ``arctic doctor``: catalog, tables, tasks, workers, rounds."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.cli.context import Lake
from arctic_orchestration.compaction.commit.orphaned_outputs import in_trouble, to_clean
from arctic_orchestration.compaction.planning.policy import DISABLED
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.task import WAITING, TaskState
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.work.workers import live_workers
from arctic_orchestration.console.display import counted
from arctic_orchestration.console.findings import SHOWN, Finding, bad, good, some, warning
from arctic_orchestration.console.state import readable_database
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.compaction_tables import compaction_tasks, in_state, is_merged
from arctic_orchestration.state.database import Database
from arctic_orchestration.waits import command

_CATALOG = "lake catalog"
#: Due tables and merged tasks are handled within seconds while rounds are made;
_PATIENCE = timedelta(minutes=5)
#: a table that stays due because its queue is full waits for its check interval.
_LONG_PATIENCE = timedelta(hours=1)
_ROUNDS = (
    "let rounds be made: the sensor in Dagster's daemon, or arctic compaction serve "
    "--tables '*' --mode run"
)


def compaction() -> list[Finding]:
    """Checks the catalog, and the tables of compaction if there are any."""
    settings = Settings.from_environment()
    database = readable_database(settings)
    if database is None:
        return [_catalog(settings)]
    with closing(database):
        return [_catalog(settings), *_found(database, utc_now())]


def _catalog(settings: Settings) -> Finding:
    from pyiceberg.utils.config import Config

    name, config = settings.catalog, Config()
    embedded = config.get_catalog_config(name) is None
    others = sorted(config.config.get("catalog") or ())
    if embedded and others and os.environ.get("ARCTIC_CATALOG") == name:
        found = f"{name} is none of pyiceberg's catalogs ({', '.join(others)}): an embedded one"
        advice = "set ARCTIC_CATALOG to one of them, if the embedded one is not meant"
        return warning(_CATALOG, found, advice)
    where = f"{name}, embedded in {settings.lake}" if embedded else f"{name}, of pyiceberg's"
    # A check must not create a catalog.
    if embedded and not Path(settings.lake, "catalog.db").exists():
        return good(_CATALOG, f"{where}: not there yet, made on first use")
    try:
        names = Lake(settings).tables()
    except ArcticError as error:
        advice = "fix the reported problem, or set ARCTIC_CATALOG and ARCTIC_LAKE"
        return bad(_CATALOG, str(error), advice)
    return good(_CATALOG, f"{where}: {counted(len(names), 'table')}")


def _found(database: Database, now: datetime) -> Iterator[Finding]:
    with database.read() as tx:
        known = [row for row in tables.all_tables(tx) if row.gone_at is None]
        if not known:
            return
        trouble = [
            *_refused(known),
            *_resting(known, now),
            *_unplanned(known),
            *_uncommitted(known),
            *_quarantined(tx),
            *_unserved(tx),
            *_rounds(tx, known, now),
            *_left(tx),
        ]
    yield from trouble
    if not trouble:
        yield good("compaction", f"{counted(len(known), 'table')}, and nothing is in the way")


def _refused(known: Sequence[CompactionTable]) -> Iterator[Finding]:
    refused = [row for row in known if row.refused not in (None, DISABLED)]
    advice = "fix the table, or set its property arctic.compaction.enabled to false"
    for row in refused[:SHOWN]:
        yield warning("table refused", f"{row.name}: {row.refused}", advice)
    if len(refused) > SHOWN:
        yield warning("tables refused", f"{len(refused) - SHOWN} more: arctic compaction list")


def _resting(known: Sequence[CompactionTable], now: datetime) -> Iterator[Finding]:
    resting = [
        f"{row.name} until {format_moment(row.rests_until)}: {row.rest_reason}"
        for row in known
        if row.rests_until is not None and row.rests(now)
    ]
    if resting:
        yield warning(
            "tables resting",
            some(resting),
            "fix the reported reason, then: arctic compaction wake TABLE",
        )


def _unplanned(known: Sequence[CompactionTable]) -> Iterator[Finding]:
    mark = tables.NOT_PLANNED
    trouble = [
        f"{row.name}: {row.looked_reason.removeprefix(mark)}"
        for row in known
        if row.looked_reason and row.looked_reason.startswith(mark)
    ]
    if trouble:
        yield warning(
            "tables not planned",
            f"{counted(len(trouble), 'table')}: {some(trouble)}",
            "fix the reported reason: it is retried; work that never ends goes away "
            "with a restart of the process that makes rounds",
        )


def _uncommitted(known: Sequence[CompactionTable]) -> Iterator[Finding]:
    trouble = [f"{row.name}: {row.commit_trouble}" for row in known if row.commit_trouble]
    if trouble:
        yield warning(
            "tables not committed to",
            some(trouble),
            "fix the reported reason: it is retried; a merged task that never gets "
            "on is taken back with arctic compaction tasks cancel ID",
        )


def _quarantined(tx: sa.Connection) -> Iterator[Finding]:
    col = compaction_tasks.c
    query = (
        sa.select(col.table_name, sa.func.count())
        .where(in_state(TaskState.QUARANTINED.value))
        .group_by(col.table_name)
        .order_by(col.table_name)
    )
    found = [f"{count} of {table}" for table, count in tx.execute(query)]
    if found:
        yield warning(
            "tasks in quarantine",
            some(found),
            "arctic compaction tasks list --state quarantined shows why, and "
            "arctic compaction tasks retry ID tries again",
        )


def _unserved(tx: sa.Connection) -> Iterator[Finding]:
    for one in queues.counted(tx):
        name = one.queue.name
        waiting = sum(one.states.get(state, 0) for state in WAITING)
        if one.queue.state is not queues.QueueState.OPEN:
            yield warning(
                f"queue {name}",
                f"{one.queue.state}, {counted(waiting, 'task')} waiting",
                f"if that is over: {command('compaction', 'queues', 'resume', name)}",
            )
        elif waiting and one.held is None and not live_workers(tx, name):
            yield warning(
                f"queue {name}",
                f"{counted(waiting, 'task')} waiting, and no worker serves the queue",
                f"start one: {command('compaction', 'worker', options=('--queue', name))}",
            )


def _rounds(
    tx: sa.Connection, known: Sequence[CompactionTable], now: datetime
) -> Iterator[Finding]:
    """Checks whether a process plans and commits."""
    late = [
        f"{row.name} is due since {format_moment(row.due_since)}"
        for row in known
        if row.due_since is not None and _is_late(row, now)
    ]
    col = compaction_tasks.c
    query = (
        sa.select(col.table_name, sa.func.min(col.state_at).label("since"))
        .where(is_merged)
        .group_by(col.table_name)
    )
    since = {row.table_name: row.since for row in tx.execute(query)}
    for row in known:
        at = since.get(row.name)
        # Within the commit interval this is normal.
        if at is not None and max(at, row.next_commit_at or at) < now - _PATIENCE:
            late.append(f"{row.name} has merged files since {format_moment(at)}")
    if late:
        yield bad("compaction rounds", f"no process plans or commits: {some(late)}", _ROUNDS)


def _is_late(row: CompactionTable, now: datetime) -> bool:
    """Returns whether a due table should have been planned by now."""
    due, looked = row.due_since or now, row.looked_at
    if looked is not None and looked >= due:
        return looked < now - _LONG_PATIENCE
    return max(due, row.rests_until or due) < now - _PATIENCE


def _left(tx: sa.Connection) -> Iterator[Finding]:
    found = {one.attempt_id: one for one in (*in_trouble(tx), *to_clean(tx))}
    left = list(found.values())
    if left:
        what = [
            f"{one.directory} of {one.table}" + (f": {one.trouble}" if one.trouble else "")
            for one in left
        ]
        text = "outputs of 1 attempt that is over are"
        if len(left) > 1:
            text = f"outputs of {len(left)} attempts that are over are"
        yield warning(
            "left outputs",
            f"{text} not removed yet: {some(what)}",
            f"{_ROUNDS}; arctic compaction tick reports what could not be removed",
        )
