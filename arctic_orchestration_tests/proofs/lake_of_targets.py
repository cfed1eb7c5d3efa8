"""A code location with a job that no schedule of the code names, and that a deployment may drop.

A test decides by files in ``DAGSTER_HOME`` what the next process that loads it finds.
"""

import os
from pathlib import Path

import dagster as dg
from dagster._core.remote_representation.external_data import SensorSnap

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.schedules.dagster import every_job

#: the job ``spare`` is gone
WITHOUT_SPARE = "without_spare"
#: followed by the id of a run: its first step was executed
EXECUTED = "executed_"
#: Dagster learns only of the jobs that declared schedules name
DECLARED_ONLY = "declared_only"

_home = Path(os.environ.get("DAGSTER_HOME", "."))
if (_home / DECLARED_ONLY).exists():
    SensorSnap.from_def = every_job._from_def  # type: ignore[method-assign]


@dg.op
def nothing(context: dg.OpExecutionContext) -> None:
    """Leaves a trace of each run that is executed, where the launcher starts a process."""
    (_home / f"{EXECUTED}{context.run_id}").touch()


@dg.job
def work() -> None:
    """What the schedule in the code names."""
    nothing()


@dg.job
def spare() -> None:
    """What only a manually created schedule names."""
    nothing()


arctic = Arctic(
    schedules=[
        Schedule(name="declared", target=work, trigger=on.partitions("raw/a"), enabled=True),
    ],
    interval_seconds=1,
)
jobs = [work] if (_home / WITHOUT_SPARE).exists() else [work, spare]
defs = dg.Definitions.merge(
    dg.Definitions(assets=[dg.AssetSpec("raw/a")], jobs=jobs), arctic.definitions()
)
