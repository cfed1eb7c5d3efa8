"""Proof: planner, worker and committer are killed at every step, and nothing is lost or doubled.

Real processes, real Spark, tables that are written to meanwhile. In the end, what the killed ones
left beside the tables' files is removed as orphans, and no file is left that nobody knows.
``ARCTIC_PROOF=full`` kills 200 times on each database, by default at a quarter of the steps, on
each database others. Then only the first worker has a JVM of its own, which dies with it. The next
ones have one that outlives them, and die when nothing is under way there.
"""

import random
import time

import pytest

from arctic_orchestration_tests.proofs.compaction.killed import ROLES, STEPS, Killed
from arctic_orchestration_tests.proofs.compaction.sizes import FULL
from arctic_orchestration_tests.proofs.compaction.what_is_wrong import (
    unknown_files,
    what_is_wrong,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(5400)]

#: Housekeeping needs a worker that was killed before: two kills.
ROUNDS = 8
#: with those at random moments
KILLS = 200 if FULL else 0


def chosen(backend: str) -> list[tuple[str, str]]:
    """All steps some times in the full size; else every fourth one."""
    # A committer that is killed at SNAPSHOT_WRITTEN, on SQLite, leaves orphans.
    return STEPS * ROUNDS if FULL else STEPS[{"sqlite": 3, "postgres": 1}[backend] :: 4]


def test_nothing_is_lost_whichever_process_is_killed_and_wherever(
    killed: Killed, backend: str
) -> None:
    """Rows as the writers left them, each task in one snapshot, no file that nobody knows."""
    began = time.monotonic()
    for role in ROLES:
        killed.start(role)
    for role, step in chosen(backend):
        killed.kill_at(role, step)
        print(f"{time.monotonic() - began:6.1f} s {role} {step}", flush=True)
    chance = random.Random(5)
    while killed.kills.total() < KILLS:
        killed.kill_sometime(chance)
    assert killed.ends() == []
    unknown = unknown_files(killed.written)
    removed = killed.remove_orphans()
    assert sorted(removed) == sorted(unknown)
    assert unknown_files(killed.written) == []
    assert what_is_wrong(killed.database, killed.written) == []
    manifests = [path for path in removed if path.endswith(".avro")]
    if killed.kills["SNAPSHOT_WRITTEN"]:
        assert manifests
    snapshots = sum(len(one.table.snapshots()) for one in killed.written)
    rows = sum(len(one.rows) for one in killed.written)
    print(
        f"{backend}: {killed.kills.total()} kills {dict(killed.kills)}, {snapshots} snapshots, "
        f"{rows} rows, nothing wrong, {len(manifests)} manifests and their lists among "
        f"{len(removed)} orphans, {time.monotonic() - began:.0f} s"
    )


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_committer_without_the_tables_history_is_found_out(killed: Killed) -> None:
    """The control: what is committed and not reported is dropped, and its files are removed."""
    killed.commits_without_history()
