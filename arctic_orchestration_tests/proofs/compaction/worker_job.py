"""The job of Dagster's that merges, as a run of it has it: in a process of its own."""

import os
from typing import Any

from arctic_orchestration.compaction.dagster.definitions import Compaction
from arctic_orchestration.compaction.dagster.worker_job import JOB, OP
from arctic_orchestration.lake import session_source
from arctic_orchestration_tests.proofs.dagster_processes import end_with_the_parent


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
