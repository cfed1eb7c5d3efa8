"""The code location whose runs the proofs of the run coordinator submit."""

import time
from pathlib import Path

import dagster as dg

from arctic_orchestration_tests.proofs.coordinator.timed_launcher import SECONDS


@dg.op
def work(context: dg.OpExecutionContext) -> None:
    """Where a real process executes it: works for as long as the run says, or until it is ended."""
    lasting = context.run.tags.get(SECONDS)
    if lasting is not None:
        time.sleep(float(lasting))
        return
    marker = end_marker(context.instance.root_directory, context.run.run_id)
    while not marker.exists():
        time.sleep(0.05)


def end_marker(home: str, run_id: str) -> Path:
    """The file for which the process of a run without a length waits."""
    return Path(home) / f"{run_id}.end"


def _job(name: str, tags: dict[str, str] | None = None) -> dg.JobDefinition:
    @dg.job(name=name, tags=tags, executor_def=dg.in_process_executor)
    def job() -> None:
        work()

    return job


@dg.asset(name="mart")
def _mart() -> None:
    """A run of it is distinguished by its asset."""


defs = dg.Definitions(
    assets=[_mart],
    jobs=[
        *map(_job, ("plain", "bill", "close", "load", "low", "high", "rollup", "report")),
        # stands under a group by its own tag, also when no coordinator sees its run
        _job("member", {"arctic/group": "warehouse"}),
    ],
)
