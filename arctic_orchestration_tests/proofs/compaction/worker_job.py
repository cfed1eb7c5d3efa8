"""The job of Dagster's that merges, as a run of it has it: in a process of its own."""

import os
import sys
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.dagster.definitions import Compaction
from arctic_orchestration.compaction.dagster.worker_job import JOB, OP
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.run_once import offer_now
from arctic_orchestration.compaction.work import attempt_lookup
from arctic_orchestration.compaction.work.attempt import Attempt
from arctic_orchestration.lake import session_source
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.lake.reference_merge import BY_ORIGIN, add, new_table, rows_of
from arctic_orchestration_tests.proofs.compaction.sizes import LONG
from arctic_orchestration_tests.proofs.processes import end_with_the_parent


def run_worker_job(environment: dict[str, str], config: dict[str, Any]) -> None:
    """Runs it until its queues are empty; fails if it asks for a JVM that is lent."""
    end_with_the_parent()
    os.environ.update(environment)

    def lend(_: object) -> dict[str, Any]:
        raise AssertionError("a JVM was asked for")

    session_source.borrow_from(lend)
    definitions = Compaction(tables=["*"], mode="run").definitions()
    result = (
        definitions.get_repository_def()
        .get_job(JOB)
        .execute_in_process(run_config={"ops": {OP: {"config": config}}})
    )
    assert result.success


def merged_by_a_run(
    state: Database,
    catalog: Catalog,
    lake: Path,
    application: dict[str, str],
    **environment: str,
) -> Attempt:
    """Compacts a table of four files by a worker run with an application; its only attempt.

    Args:
        application: the properties of the queue.
        environment: more variables of the run.
    """
    table = new_table(catalog, "lake.clustered", spec=BY_ORIGIN)
    for number in range(4):
        add(table, *((number * 100 + row, "JFK") for row in range(5)))
    before = rows_of(table.refresh())
    _, offered = offer_now(state, catalog, "lake.clustered", utc_now(), force=True)
    assert offered is not None
    config = {"until_idle": 0.0, "application": application}
    own = {
        "ARCTIC_DATABASE_URL": state.engine.url.render_as_string(hide_password=False),
        "ARCTIC_LAKE": str(lake),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Of the executors.
        "PYSPARK_PYTHON": sys.executable,
    }
    process = forkserver().Process(target=run_worker_job, args=(own | environment, config))
    process.start()
    process.join(LONG.total_seconds())
    assert process.exitcode == 0
    assert Committer(state, catalog).tick().committed == 1
    assert rows_of(table.refresh()) == before
    assert len(list(table.scan().plan_files())) == 1
    with state.read() as tx:
        (task,) = task_store.tasks(tx)
        (attempt,) = attempt_lookup.attempts_of(tx, task.id)
    return attempt
