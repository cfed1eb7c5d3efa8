"""With real daemons: ``arctic doctor`` sees that a second one runs, and not that one was replaced.

Daemons send heartbeats every 30 seconds, so this takes minutes, and runs with
``ARCTIC_PROOF=full`` only.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.cli.doctor.command import examine
from arctic_orchestration.console.findings import BAD, GOOD
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    DagsterProcesses,
)

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("ARCTIC_PROOF") != "full", reason="takes minutes"),
]


def daemon_found() -> tuple[str, str]:
    """Status and text of the check ``daemon``."""
    (finding,) = [one for one in examine() if one.check == "daemon"]
    return finding.status, finding.found


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_second_daemon_is_noticed_and_a_replaced_one_is_not(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One, then another in its place, then one more beside that."""
    instance = dagster_instance(backend)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    Database.open(database_url).close()
    processes = DagsterProcesses(Path(instance.root_directory), database_url)

    def sensor_ids() -> str | None:
        beat = instance.get_daemon_heartbeats().get("SENSOR")
        return beat.daemon_id if beat else None

    try:
        processes.start(CODE_SERVER)
        first = processes.start(DAEMON)
        until(lambda: sensor_ids() is not None, "a heartbeat")
        replaced = sensor_ids()
        first.terminate()
        first.join(PATIENCE_SECONDS)
        processes.start(DAEMON)
        until(lambda: sensor_ids() != replaced, "a heartbeat of the second daemon")
        until(lambda: daemon_found()[0] == GOOD, "one daemon is right")
        processes.start(DAEMON)
        found = [daemon_found()]

        def is_noticed() -> bool:
            # One may write over all heartbeats of the other: the next look may see only one.
            found.append(daemon_found())
            return found[-1][0] == BAD

        until(is_noticed, "a second daemon is noticed")
        assert found[-1][1].partition(":")[0] == "2 daemons run on this instance"
    finally:
        processes.end()
