"""The code of two clusters: both have ``flights``, and ``report`` in the west needs the east.

Both have ``held`` too, whose run says which process makes it, and goes on when its gate is opened.
"""

import os
from datetime import timedelta
from pathlib import Path

import dagster as dg

from arctic_orchestration import Freshness
from arctic_orchestration.freshness.dagster.fresh_parents import fresh_parents
from arctic_orchestration_tests.patience import until

#: the directory of the gates
GATES = "ARCTIC_PROOF_GATES"

_SOON = timedelta(seconds=5)
#: how long a gate is waited at: for as long as a test may take, so that it ends none by itself
_GATE_SECONDS = 600
_TASKS: dict[str, dict[str, dict[str, float | None]]] = {
    "east": {"flights": {}, "raw": {}},
    "west": {"flights": {}, "report": {"raw": 24.0}},
}


def _asset(name: str, parents: dict[str, float | None]) -> dg.AssetsDefinition:
    @fresh_parents(parents, recheck=_SOON)
    @dg.asset(name=name)
    def made() -> None: ...

    return made


@fresh_parents({}, retries=1)
@dg.asset
def held(context: dg.AssetExecutionContext) -> None:
    """Waits for its gate."""
    gates = Path(os.environ[GATES])
    pid_file = gates / f"{context.run.run_id}.writing"
    pid_file.write_text(str(os.getpid()))
    pid_file.rename(gates / f"{context.run.run_id}.pid")
    until((gates / f"{context.run.run_id}.open").exists, "its gate is opened", _GATE_SECONDS)


defs = Freshness(
    tasks=[
        held,
        *(
            _asset(name, dict(parents))
            for name, parents in _TASKS[os.environ.get("ARCTIC_CLUSTER", "east")].items()
        ),
    ],
    interval_seconds=1,
).definitions()
