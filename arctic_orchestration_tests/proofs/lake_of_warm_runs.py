"""The code location of ``test_warm_runs``: each run notes that its step began."""

import os
import time
from pathlib import Path

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on

#: the folder of the notes, in the environment
NOTES = "ARCTIC_TEST_NOTES"


@dg.op
def step(context: dg.OpExecutionContext) -> None:
    """Leaves a file whose name is the job, the run and its process."""
    job = context.run.tags["arctic/job"]
    # A run that is launched twice has one id.
    (Path(os.environ[NOTES]) / f"{job}.{context.run_id}.{os.getpid()}").touch()
    # Long enough to be killed in the middle of it.
    time.sleep(0.3)


@dg.job(executor_def=dg.in_process_executor)
def work() -> None:
    step()


feed = dg.DynamicPartitionsDefinition(name="feed")
arctic = Arctic(
    schedules=[
        Schedule(
            name="work", target=work, trigger=on.partitions("raw/a"), coalesce=False, enabled=True
        )
    ],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    dg.Definitions(assets=[dg.AssetSpec(["raw", "a"], partitions_def=feed)], jobs=[work]),
    arctic.definitions(),
)
