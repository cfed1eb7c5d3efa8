"""The tasks of the example, submitted as a person does it, made by both of its code locations.

A real daemon, a code server for each location of ``workspace.yaml``, and for each task a run
process with a Spark of its own. ``ARCTIC_PROOF=full`` makes all fourteen; by default it is three of
them, over both locations, of which one is named and the parent of another one that is named.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import arctic_orchestration_tests
from arctic_orchestration.flights.batches import NETWORK, PUNCTUALITY
from arctic_orchestration.freshness.batch_file import load_batch
from arctic_orchestration.freshness.definitions import declared
from arctic_orchestration.freshness.run_requests import TASK_TAG
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.lake.sessions import FAST
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    HERE,
    DagsterProcesses,
)
from arctic_orchestration_tests.proofs.freshness.example_lake import (
    EXPECTED,
    PLAIN_ASSETS,
    ExampleLake,
)
from arctic_orchestration_tests.proofs.freshness.sizes import FULL
from arctic_orchestration_tests.templates import write_dagster_yaml

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

_ROOT = str(Path(arctic_orchestration_tests.__file__).parents[1])
_SPECS = {spec.name: spec for path in (PUNCTUALITY, NETWORK) for spec in load_batch(path).specs()}
_REPORTS = "reports"
_SECONDS = 1800 if FULL else 400

if FULL:
    NAMED = ("report_overview", "punctuality/scorecard")
    ALL = frozenset(_SPECS)
else:
    NAMED = ("punctuality/ranking", "network/fleets")
    ALL = frozenset((*NAMED, "punctuality/carriers"))


@dataclass(frozen=True)
class Example:
    """The instance of ``workspace.yaml``, in a directory of its own."""

    home: Path
    environment: Mapping[str, str]
    lake: ExampleLake
    processes: DagsterProcesses

    def submit(self, *options: str) -> list[dict[str, Any]]:
        """``arctic tasks submit ... --with-parents --wait``, in a process of its own."""
        command = "from arctic_orchestration.cli.main import main; main()"
        words = ["tasks", "submit", *NAMED, "--with-parents", "--wait", "--json", *options]
        done = subprocess.run(
            [sys.executable, "-c", command, *words],
            env=dict(self.environment), cwd=self.home, capture_output=True, text=True,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.processes.logs()}"
        found: list[dict[str, Any]] = json.loads(done.stdout)["submissions"]
        return found


@pytest.fixture
def example(state: Database, database_url: str, tmp_path: Path) -> Iterator[Example]:
    """Its processes run, its lake holds two days, and both have registered their tasks."""
    home = tmp_path / "home"
    home.mkdir()
    write_dagster_yaml(home)
    spark = home / "spark"
    spark.mkdir()
    lines = "".join(f"{name} {value}\n" for name, value in FAST.items())
    (spark / "spark-defaults.conf").write_text(lines)
    own: dict[str, Any] = {
        "DAGSTER_HOME": str(home),
        "ARCTIC_DATABASE_URL": database_url,
        "ARCTIC_SPARK_MASTER": "local[1]",
        "SPARK_CONF_DIR": str(spark),
        # Processes of runs find the same code as this one, wherever they begin.
        "PYTHONPATH": os.pathsep.join([_ROOT, os.environ.get("PYTHONPATH", "")]),
    }
    lake = ExampleLake(Settings.from_environment(own), tmp_path)
    lake.fill()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for asset in PLAIN_ASSETS:
            instance.report_runless_asset_event(dg.AssetMaterialization(asset))
    processes = DagsterProcesses(
        home,
        database_url,
        module="arctic_orchestration.definitions",
        elsewhere={_REPORTS: "arctic_orchestration.flights.reports"},
        launcher=None,
        **{name: value for name, value in own.items() if name != "DAGSTER_HOME"},
    )
    try:
        processes.start(CODE_SERVER)
        processes.start(CODE_SERVER, _REPORTS)
        processes.start(DAEMON)

        def registered() -> bool:
            with state.read() as tx:
                return set(declared(tx, sorted(_SPECS))) == set(_SPECS)

        until(registered, "both locations have registered their tasks")
        ours = {name: value for name, value in os.environ.items() if not name.startswith("ARCTIC_")}
        yield Example(home, {**ours, **own}, lake, processes)
    finally:
        processes.end()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_the_tasks_of_both_locations_are_each_made_once_parents_first(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the runs of Dagster, and by the rows; submitted again, nothing runs."""
    if not FULL:
        with capsys.disabled():
            print(f"\n{len(ALL)} of the {len(_SPECS)} tasks; all of them with ARCTIC_PROOF=full")
    made = {one["task"]: one for one in example.submit()}
    assert set(made) == ALL
    assert {one["state"] for one in made.values()} == {"succeeded"}

    with dg.DagsterInstance.from_config(str(example.home)) as instance:
        succeeded = dg.RunsFilter(
            tags={TASK_TAG: sorted(ALL)}, statuses=[dg.DagsterRunStatus.SUCCESS]
        )
        # A task is published before its run has come to its end.
        until(lambda: instance.get_runs_count(succeeded) == len(ALL), "all runs succeed")
        records = {
            record.dagster_run.tags[TASK_TAG]: record
            for record in instance.get_run_records(dg.RunsFilter(tags={TASK_TAG: sorted(ALL)}))
        }
        assert instance.get_runs_count(dg.RunsFilter(tags={TASK_TAG: sorted(_SPECS)})) == len(ALL)
        assert set(records) == ALL
        for task, record in records.items():
            run = record.dagster_run
            assert run.status is dg.DagsterRunStatus.SUCCESS, task
            assert run.run_id == made[task]["run_id"]
            assert run.remote_job_origin is not None
            at_home = HERE if task.startswith("punctuality/") else _REPORTS
            assert run.remote_job_origin.location_name == at_home
        edges = [
            (parent.name, task)
            for task in ALL
            for parent in _SPECS[task].parents
            if parent.name in ALL
        ]
        assert ("network/fleets", "punctuality/ranking") in edges
        for parent, child in edges:
            key = dg.AssetKey.from_user_string(parent)
            (of_parent,) = instance.fetch_materializations(key, limit=10).records
            assert of_parent.run_id == records[parent].dagster_run.run_id
            began = records[child].start_time
            assert began is not None
            assert of_parent.timestamp < began, f"{child} before {parent}"
    for table in EXPECTED:
        if table.replace(".", "/") in ALL:
            example.lake.agrees(table)

    # Of the last day, since it may become another day in New York while this runs.
    again = example.submit("--freshness-hours", "24")
    assert {one["task"]: one["state"] for one in again} == dict.fromkeys(ALL, "fresh")
    with dg.DagsterInstance.from_config(str(example.home)) as instance:
        assert instance.get_runs_count(dg.RunsFilter(tags={TASK_TAG: sorted(_SPECS)})) == len(ALL)
