"""Proof: tables that are written to all the time are compacted, and no writer notices.

Planner, worker and committer are processes, and so are the writers, who begin again as soon as
compaction has committed, or after ten seconds: if they did not wait for it, they would leave few
cores nothing to merge with, and a committer would lose each race. ``ARCTIC_PROOF=full`` goes on
until there were 100 snapshots of compaction on each database, by default four; its worker then
has a JVM of its own.
"""

import time

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_lookup
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.lake.racing_writer import left_by_mixed, racing_writers
from arctic_orchestration_tests.lake.sessions import RunningJvm
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.compaction.crew import (
    COMMITTER,
    PLANNER,
    WORKER,
    Crew,
    How,
)
from arctic_orchestration_tests.proofs.compaction.sizes import FULL
from arctic_orchestration_tests.proofs.compaction.what_is_wrong import is_done, what_is_wrong
from arctic_orchestration_tests.proofs.compaction.written_tables import (
    Partitioned,
    written_tables,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

SNAPSHOTS = 100 if FULL else 4
#: each of them is a process that appends, deletes by position and overwrites
WRITERS = 3 if FULL else 2
#: how often a writer appends two rows, deletes one and overwrites the other, in a turn
TIMES = 3 if FULL else 1
#: after which the next turn begins, whatever compaction does
LONGEST_TURN = 10.0
#: ids of a writer in a turn: those that it changes from here on, those that stay as they are
FIRST_ID, STAYING = 1_000_000, 900_000


def test_no_row_is_lost_and_none_comes_back(
    state: Database, catalog: Catalog, crew: Crew, backend: str, classic_spark: SparkSession
) -> None:
    """Rows as all writers together left them; some merges came too late, the others counted."""
    how = How(jvm=None if FULL else RunningJvm.of(classic_spark))
    began = time.monotonic()
    with written_tables(catalog, crew.lake, [Partitioned]) as written:
        (one,) = written
        with racing_writers(crew.lake, one.name, WRITERS) as writers:
            for role in (PLANNER, COMMITTER, WORKER):
                crew.start(role, how)
            turns = 0
            while _snapshots(state) < SNAPSHOTS:
                assert time.monotonic() - began < 8 * PATIENCE_SECONDS, "compaction stands still"
                turn_ends, before = time.monotonic() + LONGEST_TURN, _snapshots(state)
                for who, writer in enumerate(writers, 1):
                    # Of each turn and each writer, ids that nobody else has.
                    number = turns * WRITERS + who
                    stay = [(number * FIRST_ID + STAYING + row, "JFK") for row in range(3)]
                    writer.begins("append", stay)
                    writer.begins("mixed", number, TIMES)
                    rows = [*stay, *left_by_mixed(number, TIMES)]
                    one.rows |= {row[0]: row for row in rows}
                turns += 1
                one.write()
                one.ends()
                for writer in writers:
                    writer.ends()
                    writer.ends()
                while _snapshots(state) == before and time.monotonic() < turn_ends:
                    time.sleep(0.05)
            until(is_done(state, written), "nothing is left to do")
        assert what_is_wrong(state, written) == []
        with state.read() as tx:
            made = [
                done
                for task in task_store.tasks(tx)
                for done in attempt_lookup.attempts_of(tx, task.id)
            ]
        late = sum(attempt.state is AttemptState.DROPPED for attempt in made)
        print(
            f"{backend}: {_snapshots(state)} snapshots of compaction among "
            f"{len(one.table.snapshots())}, {late} of {len(made)} merges too late, "
            f"{len(one.rows)} rows, nothing wrong, {time.monotonic() - began:.0f} s"
        )


def _snapshots(state: Database) -> int:
    """How many snapshots compaction has made."""
    with state.read() as tx:
        tasks = task_store.tasks(tx, states=[TaskState.COMMITTED])
    return len({task.snapshot_id for task in tasks})
