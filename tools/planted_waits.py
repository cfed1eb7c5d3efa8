"""Makes a home in which ten things wait, each for another cause, to try the pages on strangers.

``python tools/planted_waits.py HOME KEY`` writes the answers to KEY, and prints the command that
serves the pages. Ticks of sensors, a pass over the run queue, a round of the planner and a block of
a consumer leave everything as it is; no process has to run afterwards. After 15 minutes the first
page says, too, that none does.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import dagster as dg
import planted_lake
import yaml
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.arctic import DISPATCHER
from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.dagster.sensor import SENSOR
from arctic_orchestration.run_queue import pauses
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in, table_of
from arctic_orchestration_tests.consumers.dagster_assets import arrive, settings_of
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue

_LOCATION, _CLUSTER = "commerce", "default"
_RULES = {
    "max_concurrent_runs": 20,
    "queues": {"reporting": {"match": {"job": "board_*"}}},
    "groups": {"xl_cluster": {"limit": 1, "match": [{"job": "rebuild_*"}, {"job": "train_*"}]}},
}


class Planted(NamedTuple):
    """A line of the key: what waits, for which cause, and what a reader should find out."""

    kind: str
    cause: str
    name: str
    answer: str


#: an object each
KEY = (
    Planted("job", "trigger", "settle_marketplace",
            "Needs 12 partitions of raw/marketplace_payouts; 9 have arrived."),
    Planted("job", "window", "refresh_price_book",
            "May start only in a window that opens ten hours after the planting."),
    Planted("job", "rate", "file_tax_statement",
            "One launch in 12 h; the invoices of the first day took it."),
    Planted("job", "suspended", "credit_loyalty_points",
            "h.lindqvist suspended the schedule, which collects raw/loyalty_events meanwhile."),
    Planted("run", "paused:queue:reporting", "board_pack",
            "m.okafor paused the queue reporting until the restated figures are signed off."),
    Planted("run", "group:xl_cluster", "train_demand_forecast",
            "A run of rebuild_customer_360 has the only slot of the group."),
    Planted("task", "parents", "store_footfall",
            "Its parent raw/door_counters was never materialized."),
    Planted("merge_task", "worker:default", "sales.order_lines",
            "No worker of compaction serves the queue default."),
    Planted("partition", "given_up:archive_delivery_notes", "archive_delivery_notes DN-40418",
            "Its only attempt failed with a bad weight; a person has to retry it."),
    Planted("table", "refused", "logistics.shipments",
            "Its property arctic.compaction.target-size is 512, without a unit."),
)  # fmt: skip
_ORIGIN = InProcessCodeLocationOrigin(
    LoadableTargetOrigin(python_file=planted_lake.__file__, attribute="defs"),
    location_name=_LOCATION,
)


def plant(home: Path) -> None:
    """Makes the home, which must not be there yet: Dagster's storage, ``arctic.db`` and a lake."""
    home.mkdir(parents=True)
    config = {"telemetry": {"enabled": False}, "run_coordinator": {**OURS, "config": _RULES}}
    (home / "dagster.yaml").write_text(yaml.safe_dump(config))
    ours = {name: "" for name in os.environ if name.startswith("ARCTIC_")}
    url = f"sqlite:///{home.resolve() / 'arctic.db'}"
    with (
        patch.dict(os.environ, {**ours, "DAGSTER_HOME": str(home.resolve())}),
        dg.DagsterInstance.from_config(str(home)) as instance,
        closing(Database.open(url)) as database,
        _run_queue(instance) as queue,
    ):
        _plant_jobs(database, queue)
        _plant_runs(database, queue)
        _plant_task(database, instance)
        _plant_compaction(database, home)
        _plant_partition(instance, url)


@contextmanager
def _run_queue(instance: dg.DagsterInstance) -> Iterator[RunQueue]:
    workspace = InProcessWorkspaceLoadTarget([_ORIGIN])
    with (
        WorkspaceProcessContext(instance, workspace) as context,
        QueuedRunCoordinatorDaemon(interval_seconds=1) as daemon,
    ):
        yield RunQueue(instance=instance, context=context, daemon=daemon)


def _tick(instance: dg.DagsterInstance, sensor: str) -> SensorExecutionData:
    repository = planted_lake.defs.get_repository_def()
    with dg.SensorEvaluationContext(
        instance_ref=instance.get_ref(),
        repository_name=repository.name,
        repository_def=repository,
        sensor_name=sensor,
        code_location_origin=_ORIGIN,
    ) as context:
        return repository.get_sensor_def(sensor).evaluate_tick(context)


def _plant_jobs(database: Database, queue: RunQueue) -> None:
    instance = queue.instance
    _tick(instance, DISPATCHER)
    with database.begin() as tx:
        place = locations.locked(tx, _CLUSTER, _LOCATION)
        by = Actor(name="h.lindqvist", cluster=_CLUSTER)
        control.suspend(tx, ScheduleStore(), place, "credit_loyalty_points", utc_now(), actor=by)
    arrive(instance, "raw/marketplace_payouts", *(f"shop-{shop:02}" for shop in range(1, 10)))
    for feed in ("supplier_prices", "loyalty_events", "invoices"):
        arrive(instance, f"raw/{feed}", "2026-02-27")
    for request in _tick(instance, DISPATCHER).run_requests or ():
        tags = {**request.tags, "dagster/run_key": str(request.run_key)}
        run = queue.submit(
            str(request.job_name), tags=tags, location=_LOCATION,
            status=dg.DagsterRunStatus.NOT_STARTED,
        )  # fmt: skip
        for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.SUCCESS):
            queue.report(run, status)
    arrive(instance, "raw/invoices", "2026-02-28")
    _tick(instance, DISPATCHER)


def _plant_runs(database: Database, queue: RunQueue) -> None:
    with database.begin() as tx:
        pauses.change(
            tx, queue.coordinator.rules, pauses.Pausable.QUEUE, "reporting", utc_now(),
            Actor(name="m.okafor", cluster=_CLUSTER), paused=True,
            reason="until the restated figures are signed off",
        )  # fmt: skip
    started = dg.DagsterRunStatus.STARTED
    queue.submit("rebuild_customer_360", location=_LOCATION, status=started)
    for job in ("board_pack", "train_demand_forecast"):
        queue.submit(job, location=_LOCATION)
    for _ in queue.daemon.run_iteration(queue.context):
        pass


def _plant_task(database: Database, instance: dg.DagsterInstance) -> None:
    _tick(instance, SENSOR)
    with database.begin() as tx:
        submissions.submit(tx, ["store_footfall"], cluster=_CLUSTER, by="e.varga")
    _tick(instance, SENSOR)


def _plant_compaction(database: Database, home: Path) -> None:
    lake = lake_in(home.resolve() / "lake")
    table_of(lake, "sales.order_lines", 6, **{"arctic.compaction.minor.min-files": "4"})
    table_of(lake, "logistics.shipments", 3, **{"arctic.compaction.target-size": "512"})
    Planner(database, lake).tick(utc_now())


def _plant_partition(instance: dg.DagsterInstance, url: str) -> None:
    asset, name = "raw/delivery_notes", "archive_delivery_notes"
    consumer = PartitionConsumer(
        asset, name=name, attempts=1, instance=instance, settings=settings_of(url)
    )
    with closing(consumer):
        arrive(instance, asset, "DN-40417", "DN-40418")
        with consumer.consume(limit=1):
            pass
        with suppress(ValueError), consumer.consume(limit=1):
            raise ValueError("line 14: the weight '1.204,50' is not a number")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path, help="the folder to make")
    parser.add_argument("key", type=Path, help="the file of the answers, outside of the home")
    given = parser.parse_args()
    plant(given.home)
    lines = [f"| {one.name} | {one.kind} `{one.cause}` | {one.answer} |" for one in KEY]
    head = ["| what waits | kind and cause | the answer |", "|---|---|---|"]
    given.key.write_text("\n".join([*head, *lines]) + "\n")
    arctic = Path(sys.executable).parent.resolve() / "arctic"
    print(shlex.join(["env", f"DAGSTER_HOME={given.home.resolve()}", str(arctic), "serve"]))


if __name__ == "__main__":
    main()
