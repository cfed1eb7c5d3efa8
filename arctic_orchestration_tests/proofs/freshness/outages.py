"""Clusters as processes whose state database goes away and comes back; each writes a journal.

A cluster ticks as its sensor does, and its runs are threads of it. Moments of a journal are those
of the machine's steady clock, which all its processes share.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from arctic_orchestration.errors import DatabaseUnavailable, LeaseLost, Refused
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.lifecycle import Lifecycle, TaskRequest
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.run_requests import TOKEN_TAG
from arctic_orchestration.freshness.run_start import begun
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.freshness.owners import NoRuns
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

#: tasks of the west that need nothing
PLAIN = tuple(f"plain{number}" for number in range(5))
_TASKS: Mapping[str, list[dict[str, Any]]] = {
    "east": [{"name": "held", "retries": 1}],
    "west": [
        {"name": "child", "parents": [{"name": "held", "hours": 24}], "recheck": "1s"},
        *({"name": name} for name in PLAIN),
    ],
}


class Cluster:
    """One cluster; its tasks are registered by its first tick."""

    def __init__(self, name: str, url: str, directory: Path, life: timedelta) -> None:
        self._directory = directory / name
        self._directory.mkdir()
        context = forkserver()
        self._process: BaseProcess = context.Process(
            target=_be, args=(name, url, self._directory, life)
        )
        self._process.start()

    def journal(self, what: str, **fields: Any) -> list[dict[str, Any]]:
        """What it has noted of a kind, with these fields, oldest first."""
        file = self._directory / "journal"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        # The last line may not be whole yet.
        noted = [json.loads(line) for line in lines if line.endswith("\n")]
        wanted = {"what": what, **fields}.items()
        return [one for one in noted if wanted <= one.items()]

    def pause(self) -> None:
        """Returns when it ticks no more; its runs go on."""
        before = len(self.journal("paused"))
        (self._directory / "paused").touch()
        until(lambda: len(self.journal("paused")) > before, "the cluster is paused")

    def resume(self) -> None:
        """It ticks again."""
        (self._directory / "paused").unlink()

    def open_gate(self) -> None:
        """Lets its runs of ``held`` go on."""
        (self._directory / "open").touch()

    def end(self) -> None:
        """Kills it, and its runs with it."""
        self._process.kill()
        self._process.join()


def _be(name: str, url: str, directory: Path, life: timedelta) -> None:
    end_with_the_parent()
    database = Database(url, busy_seconds=0.5)
    lock = threading.Lock()

    def note(what: str, **fields: Any) -> None:
        line = json.dumps({"what": what, "at": time.monotonic(), **fields})
        with lock, (directory / "journal").open("a") as file:
            file.write(f"{line}\n")

    lifecycle = Lifecycle(
        database=database,
        cluster=name,
        location="lake",
        declared=[TaskSpec.parse({"target": one["name"], **one}) for one in _TASKS[name]],
        runs=NoRuns(),
        life=life,
    )
    begun_keys: set[str] = set()
    while True:
        time.sleep(0.05)
        if (directory / "paused").exists():
            note("paused")
            continue
        try:
            requests = lifecycle.tick().requests
        except DatabaseUnavailable:
            note("away")
            continue
        for request in requests:
            # As Dagster makes one run of a run key.
            if request.run_key not in begun_keys:
                begun_keys.add(request.run_key)
                given = (
                    request,
                    f"{name}.{len(begun_keys)}",
                    database,
                    life,
                    directory / "open",
                    note,
                )
                threading.Thread(target=_run, args=given, daemon=True).start()


def _run(
    request: TaskRequest,
    run_id: str,
    database: Database,
    life: timedelta,
    gate: Path,
    note: Callable[..., None],
) -> None:
    request_fields: dict[str, Any] = {"task": request.task, "token": int(request.tags[TOKEN_TAG])}
    try:
        with begun(
            database,
            task=request.task,
            submission=request.submission,
            token=request_fields["token"],
            run_id=run_id,
            outcomes=Outcomes(life=life),
        ) as running:
            note("begun", **request_fields)
            while request.task == "held" and not gate.exists():
                trusted_until = running.renewal.lease.trusted_until
                checked_from = time.monotonic()
                running.check()
                note(
                    "at work",
                    trusted_until=trusted_until,
                    checked_from=checked_from,
                    **request_fields,
                )
                time.sleep(0.05)
            running.publish()
            note("published", **request_fields)
    except LeaseLost as error:
        note("lost", reason=str(error), **request_fields)
    except Refused as error:
        note("refused", reason=str(error), **request_fields)
