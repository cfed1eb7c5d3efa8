"""The code location of the scenarios of acceptance: an asset and a job for each of their names.

What it declares stands in a file of ``DAGSTER_HOME``; a process that is started anew deploys it.
"""

import json
import os
from pathlib import Path
from typing import Any

import dagster as dg

from arctic_orchestration import Arctic, Schedule
from arctic_orchestration_tests.proofs.coordinator.timed_launcher import SECONDS

#: with ``schedules``, a list of forms, and ``update_schedules``
DECLARED = "declared.json"
#: of the last scenario: one schedule for each constraint, of which that one admits last
CONSTRAINTS = ("delay", "window", "minimum_interval", "concurrency", "rate", "load")
#: whose runs end when the test reports it
HOLDERS = ("early", "late")
SCENARIOS = ("one", "two", "three", "four", "five", "six", "seven")

partitions = dg.StaticPartitionsDefinition([f"p{number}" for number in range(10)])


def _job(name: str, **tags: str) -> dg.JobDefinition:
    @dg.op(name=f"{name}_op")
    def nothing() -> None:
        """Never executed: the launcher only says that a run began and ended."""

    @dg.job(name=name, tags=tags)
    def made() -> None:
        nothing()

    return made


_file = Path(os.environ.get("DAGSTER_HOME", ".")) / DECLARED
_declared: dict[str, Any] = {"schedules": [], "update_schedules": True}
if _file.exists():
    _declared = json.loads(_file.read_text())
arctic = Arctic(
    schedules=[Schedule.parse(form) for form in _declared["schedules"]],
    update_schedules=_declared["update_schedules"],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[
            dg.AssetSpec(f"raw_{name}", partitions_def=partitions)
            for name in (*SCENARIOS, "eight", *HOLDERS)
        ],
        jobs=[
            *(_job(name, **{SECONDS: "0"}) for name in (*SCENARIOS, *CONSTRAINTS)),
            *(_job(name) for name in HOLDERS),
        ],
    ),
    arctic.definitions(),
)
