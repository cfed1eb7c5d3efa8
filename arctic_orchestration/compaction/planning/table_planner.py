"""Plans one table of the catalog, from its metadata, its manifests and its tasks."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.planner import NameOf, plan, refusal_of
from arctic_orchestration.compaction.planning.policy import DISABLED, Policy
from arctic_orchestration.compaction.planning.table_plan import PlanState, Retried, TablePlan
from arctic_orchestration.compaction.queue import backoff, task_store
from arctic_orchestration.compaction.queue.task import LIVE, TaskKind, TaskState
from arctic_orchestration.errors import InvalidInput, UnsupportedTable
from arctic_orchestration.lake.clustering import clustering_of
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.schema import require_supported_table
from arctic_orchestration.lake.table_properties import require_commit_properties
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.state.database import Database

#: Names of partitions are keys in the database; a longer value is cut, and identified by a digest.
_LONGEST_VALUE = 200
_NULL = "null"


def plan_table(
    database: Database | None,
    catalog: Catalog,
    identifier: str,
    now: datetime,
    *,
    forced: bool = False,
    full: bool = False,
) -> TablePlan:
    """Returns what would be merged in a table now; writes nothing.

    Args:
        database: the records of its tasks; none: it has none.
        catalog: the catalog of the table.
        identifier: its name there.
        now: the moment.
        forced: everything that can be improved is, regardless of thresholds, and also where
            compaction is disabled.
        full: all files are rewritten, whether or not that improves them; with ``forced``.

    Errors:
        NotFound: the catalog does not have the table.
        InvalidDefinition: a property of the table is invalid.
        LakeError: the catalog or a manifest cannot be read.
        DatabaseUnavailable: the state database did not answer.
    """
    state = PlanState()
    if database is not None:
        with database.read() as tx:
            state = state_of(tx, identifier, now, forced=forced)
    table = load_table(catalog, identifier)
    policy = Policy.of(table.properties, identifier)
    return plan_loaded(table, policy, replace(state, forced=forced, full=full), now)


def plan_loaded(table: Table, policy: Policy, state: PlanState, now: datetime) -> TablePlan:
    """Returns the same for a loaded table, at its current snapshot.

    Errors:
        LakeError: a manifest cannot be read.
    """
    refused = None if policy.enabled or state.forced else DISABLED
    try:
        if refused is None:
            require_supported_table(table)
            clustering_of(table)
            require_commit_properties(table.properties)
            files = live_files(table)
            refused = refusal_of(files)
    except (UnsupportedTable, InvalidInput) as error:
        refused = str(error)
    if refused is not None:
        snapshot = table.current_snapshot()
        return TablePlan(
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            sequence_number=(snapshot.sequence_number or 0) if snapshot else 0,
            refused=refused,
        )
    # The snapshot of a rewrite has a later number than the planned one: else it is not in the
    # history, as of an earlier table of the name, or after a rollback. Format 1 has no numbers.
    last = files.sequence_number or math.inf
    rewritten = {name: number for name, number in state.rewritten.items() if number < last}
    state = replace(state, written_at=moments_of(table), rewritten=rewritten)
    return plan(files, policy, state, now, name_of=partition_names(table))


def state_of(tx: sa.Connection, table: str, now: datetime, *, forced: bool = False) -> PlanState:
    """Returns the effect of the table's tasks on a plan: claimed and resting files, last merges.

    Args:
        tx: the transaction.
        table: its name.
        now: the moment.
        forced: a person requests the plan, which replaces waiting tasks of earlier requests: their
            files are planned again.
    """
    paths: dict[str, set[str]] = defaultdict(set)
    for path, task_id in task_store.live_paths(tx, table).items():
        paths[task_id].add(path)
    held_files: set[str] = set()
    held_partitions = set()
    retried = []
    for task in task_store.tasks(tx, table=table, states=LIVE):
        # The other files of its partition may be rewritten already: it does not become due again.
        is_waiting = task.state is TaskState.PLANNED and (forced or not task.forced)
        is_rest = is_waiting and task.kind is TaskKind.FULL and not forced
        if is_waiting and not is_rest:
            continue
        if task.state is TaskState.FAILED or is_rest:
            retried.append(
                Retried(
                    kind=task.kind,
                    reason=task.planned_reason,
                    paths=frozenset(paths[task.id]),
                    is_rest=is_rest,
                )
            )
        else:
            held_files |= paths[task.id]
        if task.kind is not TaskKind.MINOR and not is_rest:
            held_partitions.add(task.partition)
    return PlanState(
        merged_at=tables.partitions_merged_at(tx, table),
        rewritten=tables.rewritten(tx, table),
        forced=forced,
        held_files=frozenset(held_files),
        held_partitions=frozenset(held_partitions),
        resting={path: one.until for path, one in backoff.resting(tx, table, now).items()},
        retried=tuple(retried),
    )


def live_tasks(tx: sa.Connection, table: str) -> frozenset[str]:
    """Returns the ids of the live tasks of a table."""
    return frozenset(task.id for task in task_store.tasks(tx, table=table, states=LIVE))


def moments_of(table: Table) -> Callable[[int], datetime | None]:
    """Returns when the files of each sequence number were written, by the table's snapshots.

    For an expired snapshot, the next one counts. Format 1 has no sequence numbers; its files count
    as written long ago.
    """
    known = sorted(
        (snapshot.sequence_number, snapshot.timestamp_ms)
        for snapshot in table.metadata.snapshots
        if snapshot.sequence_number
    )
    numbers = [number for number, _ in known]

    def written_at(sequence_number: int) -> datetime | None:
        place = bisect_left(numbers, sequence_number)
        if not sequence_number or place == len(known):
            return None
        return datetime.fromtimestamp(known[place][1] / 1000, UTC)

    return written_at


def partition_names(table: Table) -> NameOf:
    """Returns names as in paths: ``day=2013-01-01/origin=JFK``.

    Partition names of a table are unique, because they are keys in the database: a text that looks
    like a null is quoted, ``origin="null"``, and a partition of an older spec with the same field
    names as a newer one is ``spec 0: origin=JFK``.
    """
    specs = table.specs()
    fields = {
        # A field that was dropped in format 1 is kept as a void one.
        spec_id: [
            (place, field)
            for place, field in enumerate(spec.fields)
            if not isinstance(field.transform, VoidTransform)
        ]
        for spec_id, spec in specs.items()
    }
    # The last of the specs with equal names keeps them unchanged.
    newest = {tuple(field.name for _, field in fields[one]): one for one in sorted(fields)}
    plain = {*newest.values()}
    # The newest schema with the column: it may have been dropped, with files left behind.
    schemas = [table.schema(), *reversed(table.schemas().values())]

    def text_of(field: PartitionField, value: Any) -> str:
        if value is None:
            return _NULL
        for schema in schemas:
            # Python has no dates before year 1 and after 9999: these are shown by their number.
            with suppress(ValueError, OverflowError):
                source = schema.find_type(field.source_id)
                text = field.transform.to_human_string(field.transform.result_type(source), value)
                return f'"{text}"' if text.strip('"') == _NULL else text
        return str(value)

    def name_of(spec_id: int, values: tuple[Any, ...]) -> str:
        name = "/".join(
            f"{field.name}={_short(text_of(field, values[place]))}"
            for place, field in fields[spec_id]
            if place < len(values)
        )
        if spec_id in plain:
            return name
        return f"spec {spec_id}: {name}" if name else f"spec {spec_id}"

    return name_of


def _short(text: str) -> str:
    if not text.isprintable() or "/" in text or "%" in text:
        text = quote(text, safe=" ", errors="replace")
    if len(text) <= _LONGEST_VALUE:
        return text
    digest = sha256(text.encode()).hexdigest()[:12]
    return f"{text[: _LONGEST_VALUE - 20]}...{digest}"
