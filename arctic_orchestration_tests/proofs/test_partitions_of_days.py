"""With a real daemon and real runs: schedules whose runs are for partitions of the target.

What is expected was worked out without the code; it is compared with Dagster's own records of runs
and of partitions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration.clock import utc_now
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import schedules, timers
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs import lake_of_days
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    DagsterProcesses,
)

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
Runs = dict[str, list[str]]


class Lake:
    """The code location, a daemon that executes runs itself, and what Dagster records."""

    def __init__(self, instance: DagsterInstance, database_url: str) -> None:
        self.instance = instance
        self.home = Path(instance.root_directory)
        self.database = Database(database_url)
        self.database.upgrade()
        self.processes = DagsterProcesses(
            self.home,
            database_url,
            module=lake_of_days.__name__,
            launcher="dagster._core.launcher.sync_in_memory_run_launcher.SyncInMemoryRunLauncher",
        )
        self.processes.start(CODE_SERVER)
        self.processes.start(DAEMON)
        self.wait(self._has_ticked, "the first tick")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.runs()}\n{self.processes.logs()}") from None

    def announce(self, asset: str, *partitions: str | None) -> None:
        """Partitions of an asset arrive from outside; none: the asset has no partitions."""
        for partition in partitions or (None,):
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(dg.AssetKey.from_user_string(asset), partition=partition)
            )

    def make_invoices(self, day: str) -> None:
        """A run of the test makes a day of invoices, and checks it."""
        everything = [lake_of_days.invoices, lake_of_days.no_nulls]
        dg.materialize(everything, instance=self.instance, partition_key=day, raise_on_error=False)

    def check_invoices(self) -> None:
        """A run of the test checks the invoices that were made last."""
        everything = [lake_of_days.invoices, lake_of_days.no_nulls]
        check = dg.AssetSelection.checks(lake_of_days.no_nulls)
        assert dg.materialize(everything, instance=self.instance, selection=check).success

    def miss_nights(self, first: datetime) -> None:
        """The nightly schedule has not ticked since ``first``, as after an outage."""
        nightly = sa.select(schedules.c.id).where(schedules.c.name == "nightly")
        move = sa.update(timers).where(timers.c.schedule_id.in_(nightly)).values(due_at=first)
        with self.database.begin() as tx:
            assert tx.execute(move).rowcount == 1

    def runs(self) -> Runs:
        """The partition, or the range, of each run of each schedule, from the tags of runs."""
        found: Runs = defaultdict(list)
        for run in self.instance.get_runs():
            schedule = run.tags.get("arctic/schedule")
            if schedule is not None:
                start, end = (run.tags.get(tag) for tag in _RANGE)
                key = run.tags.get("dagster/partition", "unpartitioned")
                found[schedule].append(key if start is None else f"{start}...{end}")
        return {schedule: sorted(keys) for schedule, keys in found.items()}

    def all_ended_well(self) -> bool:
        runs = [run for run in self.instance.get_runs() if "arctic/schedule" in run.tags]
        ended = [run for run in runs if run.is_finished]
        assert all(run.is_success for run in ended), [run.tags for run in ended]
        return len(ended) == len(runs)

    def let_tick(self, times: int) -> None:
        """Waits until all that was announced before has become runs, which have ended well."""
        self.announce("raw/marker")
        self.wait(lambda: len(self.runs().get("marker", ())) == times, "a run for the marker")
        self.wait(self.all_ended_well, "all runs have ended")

    def upstream(self, asset: str, partition: str | None = None) -> object:
        """What the newest run of a partition noted of the partitions it was made from."""
        records = self.instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(
                dg.DagsterEventType.ASSET_MATERIALIZATION,
                asset_key=dg.AssetKey(asset),
                asset_partitions=None if partition is None else [partition],
            ),
            limit=1,
        )
        materialization = records[0].asset_materialization
        assert materialization is not None
        return materialization.metadata[lake_of_days.UPSTREAM].value

    def deferred(self) -> list[tuple[str, str]]:
        """What each arrival waits for that no job has."""
        query = sa.select(deferred_arrivals.c.waits_for, deferred_arrivals.c.reason)
        with self.database.read() as tx:
            return [tuple(row) for row in tx.execute(query.order_by(deferred_arrivals.c.id))]

    def close(self) -> None:
        self.processes.end()
        self.database.close()

    def _has_ticked(self) -> bool:
        with self.database.read() as tx:
            return tx.execute(sa.select(sa.func.count()).select_from(timers)).scalar_one() > 0


@pytest.fixture
def lake(
    backend: str,
    dagster_instance: Callable[[str], DagsterInstance],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lake]:
    instance = dagster_instance(backend)
    monkeypatch.setenv("DAGSTER_HOME", str(instance.root_directory))
    made = Lake(instance, database_url)
    yield made
    made.close()


def test_each_target_partition_runs_once_and_only_when_it_is_complete(lake: Lake) -> None:
    """First everything arrives but one part, then that part; each partition has one run.

    The nights are made up: the schedule's timer is put two days back.
    """
    midnight = datetime.combine(utc_now().date(), time(), tzinfo=UTC)
    lake.miss_nights(midnight - timedelta(days=2) + timedelta(hours=2))
    hours = [f"2024-03-21-{hour:02d}:00" for hour in range(24)]
    lake.announce("raw/orders", "2024-03-21|emea", "2024-03-21|amer", "2024-03-22|apac")
    lake.announce("raw/orders", "2024-03-21|mars")
    lake.announce("raw/hours", *hours[:-1])
    lake.announce("raw/sales", "2024-03-21")
    lake.announce("raw/payments", "2024-03-22")
    lake.announce("raw/refunds", "2024-03-01", "2024-03-02", "2024-03-03", "2024-03-05")
    for _ in range(3):
        lake.announce("raw/table")
    (lake.home / lake_of_days.NULLS).touch()
    lake.make_invoices("2024-03-21")
    lake.let_tick(1)
    assert lake.runs() == {"nightly": nights(midnight), "marker": ["unpartitioned"]}
    mars = ("match", "2024-03-21|mars is no partition of raw/orders")
    assert sorted(lake.deferred()) == [("checks", "check no_nulls has failed"), mars]

    lake.announce("raw/orders", "2024-03-21|apac")
    lake.announce("raw/hours", hours[-1])
    lake.announce("raw/sales", "2024-03-22")
    lake.announce("raw/payments", "2024-03-21")
    lake.announce("raw/gate")
    lake.announce("raw/table")
    (lake.home / lake_of_days.NULLS).unlink()
    lake.check_invoices()
    lake.let_tick(2)
    assert lake.runs() == {
        "regions_of_day": ["2024-03-21"],
        "hours_of_day": ["2024-03-21"],
        "sales_paid": ["2024-03-21", "2024-03-22"],
        "nightly": nights(midnight),
        "invoices_checked": ["2024-03-21"],
        "refunds": ["2024-03-01", "2024-03-02", "2024-03-03", "2024-03-05"],
        "refunds_in_ranges": ["2024-03-01...2024-03-03", "2024-03-05"],
        "four_commits": ["unpartitioned"],
        "marker": ["unpartitioned"] * 2,
    }
    assert lake.deferred() == [mars]
    of_refunds = {"2024-03-01", "2024-03-02", "2024-03-03", "2024-03-05"}
    expected = {
        "regions_of_day": {"2024-03-21"},
        "hours_of_day": {"2024-03-21"},
        "sales_paid": {"2024-03-21", "2024-03-22"},
        "nightly": set(nights(midnight)),
        "invoices_checked": {"2024-03-21"},
        "refunds": of_refunds,
        "refunds_in_ranges": of_refunds,
    }
    keys = {asset: dg.AssetKey(asset) for asset in expected}
    bar = {asset: lake.instance.get_materialized_partitions(key) for asset, key in keys.items()}
    assert bar == expected
    regions = ["2024-03-21|amer", "2024-03-21|apac", "2024-03-21|emea"]
    assert lake.upstream("regions_of_day", "2024-03-21") == {"raw/orders": regions}
    assert lake.upstream("hours_of_day", "2024-03-21") == {"raw/hours": hours}
    both = {"raw/sales": ["2024-03-22"], "raw/payments": ["2024-03-22"]}
    assert lake.upstream("sales_paid", "2024-03-22") == both


def nights(midnight: datetime) -> list[str]:
    """The days that had ended at 02:00, from two days before ``midnight`` until now."""
    # The day before the first tick, then one for each tick since.
    since = (utc_now() - timedelta(hours=2) - (midnight - timedelta(days=2))) // timedelta(days=1)
    return [f"{midnight - timedelta(days=3 - n):%Y-%m-%d}" for n in range(since + 1)]
