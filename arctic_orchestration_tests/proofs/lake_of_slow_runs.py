"""A code location whose runs wait to be let on, after Dagster's last look and before they begin."""

import os
from itertools import count
from pathlib import Path

import dagster as dg
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration_tests.patience import until

#: the folder in which the processes of runs and the test leave files for each other
FOLDER = "ARCTIC_TEST_SLOW_RUNS"
#: gets the id of each run that has come to its step
STEPS = "steps"
_SECONDS = 500


def came(folder: Path, number: int) -> Path:
    """Has the id of the process that was the ``number``-th to be about to begin its run."""
    return folder / f"came-{number}"


def let(folder: Path, number: int) -> Path:
    """The process waits until this is there."""
    return folder / f"let-{number}"


@dg.executor(name="let_on")
def let_on(context: dg.InitExecutorContext) -> dg.Executor:
    """Runs steps in the process of the run, once it is let on."""
    folder = Path(os.environ[FOLDER])
    # A link, since who sees the file reads it at once.
    whole = folder / f"pid-{os.getpid()}"
    whole.write_text(str(os.getpid()))
    for number in count(1):
        try:
            os.link(whole, came(folder, number))
        except FileExistsError:
            continue
        until(let(folder, number).exists, f"run {number} is let on", _SECONDS)
        break
    return InProcessExecutor(retries=RetryMode.DISABLED)


@dg.op
def step(context: dg.OpExecutionContext) -> None:
    """Leaves the id of its run."""
    with (Path(os.environ[FOLDER]) / STEPS).open("a") as steps:
        steps.write(f"{context.run_id}\n")


@dg.job(executor_def=let_on)
def work() -> None:
    """One step."""
    step()


arctic = Arctic(
    schedules=[
        Schedule(name="s", target=work, trigger=on.partitions("raw/a", count=2), enabled=True)
    ],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    dg.Definitions(assets=[dg.AssetSpec("raw/a")], jobs=[work]), arctic.definitions()
)
