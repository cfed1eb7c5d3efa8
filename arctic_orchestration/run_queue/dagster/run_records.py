"""Runs of Dagster by the ids that people type, under any run coordinator."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from arctic_orchestration.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from dagster import DagsterInstance, RunRecord

    from arctic_orchestration.run_queue.dagster.queued_runs import QueuedRuns

#: The shortest beginning of a run's id that a person may give, and the ids listed if it is not one.
SHORTEST_PART = 4
_LISTED = 8


def record_of(instance: "DagsterInstance", runs: "QueuedRuns", part: str) -> "RunRecord":
    """Returns the run whose id begins with ``part``.

    Queued and active runs come before ended ones: among many ended runs some ids begin alike.

    Errors:
        InvalidInput: it is too short, or several runs begin with it.
        NotFound: there is no such run.
    """
    wanted = part.strip()
    whole = records_of(instance, [wanted])
    if whole:
        return whole[0]
    if len(wanted) < SHORTEST_PART:
        expected = f"a run's id, or the first {SHORTEST_PART} or more characters of it"
        raise InvalidInput("RUN", part, expected)
    ids: Sequence[str] = runs.ids_like(wanted)
    if not ids:
        ids = [run for run in instance.run_storage.get_run_ids() if run.startswith(wanted)]
    if not ids:
        raise NotFound(f"Dagster has no run {part} (see: arctic runs list)")
    if len(ids) > 1:
        shown = ", ".join(ids[:_LISTED]) + (" and more" if len(ids) > _LISTED else "")
        expected = f"more of an id; several runs begin with it: {shown}"
        raise InvalidInput("RUN", part, expected)
    records = records_of(instance, ids)
    if not records:
        raise NotFound(f"run {ids[0]} was deleted just now")
    return records[0]


def records_of(instance: "DagsterInstance", run_ids: Sequence[str]) -> "Sequence[RunRecord]":
    """Returns the runs with these ids, in no order; missing ones are left out."""
    from dagster import RunsFilter

    # For Dagster an empty list of ids means all runs.
    if not run_ids:
        return []
    return instance.get_run_records(RunsFilter(run_ids=list(run_ids)))
