"""Schedules whose jobs belong to partitions of the target, on both databases."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import on, only
from arctic_orchestration.database.engine import Database
from arctic_orchestration.database.tables import deferred_arrivals, jobs
from arctic_orchestration.scheduling.schedule import Schedule, Target
from arctic_orchestration.scheduling.simulation import DeclaredAssets, read_declared
from arctic_orchestration.scheduling.targets import PartitionMap, TargetPartitions
from arctic_orchestration_tests.scheduling.simulated import AnyTargets, World

DAILY = {"daily": {"start": "2026-01-01"}}
REGIONS = {"multi": {"date": DAILY, "region": {"static": ["emea", "amer", "apac"]}}}
ASSETS: dict[str, Any] = {
    "raw/orders": {"partitions": REGIONS},
    "raw/hours": {"partitions": {"hourly": {"start": "2026-01-01-00:00"}}},
    "raw/payments": {"partitions": DAILY},
    "raw/days": {"partitions": DAILY},
    "config": {},
    "summary": {
        "partitions": DAILY,
        "deps": ["raw/orders", "raw/hours", "raw/payments", "raw/days"],
    },
    "report": {},
}
#: seconds of a day, from the epoch of the tests, which is 2026-01-01
DAY = 86_400
HOUR = 3_600


class Declared(AnyTargets):
    """Targets whose partitions are declared."""

    def __init__(self, declared: DeclaredAssets) -> None:
        self.declared = declared
        self.materialized: dict[str, set[str]] = {}

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        return None

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        found = self.declared.ranges(target, partitions)
        assert found is not None
        return found

    def partitions(self, target: Target) -> TargetPartitions | None:
        return self.declared.partitions(target, lambda asset: self.materialized.get(asset, ()))

    def groups(self, asset: str, dimension: str) -> PartitionMap:
        return self.declared.groups(asset, dimension)


MakeWorld = Callable[..., World]


@pytest.fixture
def lake(database: Database) -> MakeWorld:
    """An engine whose targets have partitions; its first tick is done, on 2026-01-01."""

    def make(*schedules: Schedule, assets: dict[str, Any] = ASSETS) -> World:
        declared = read_declared({"assets": assets})
        assert declared.problems(schedules) == []
        made = World(database, schedules, targets=Declared(declared))
        made.tick(0)
        return made

    return make


def daily(name: str = "daily", **fields: Any) -> Schedule:
    """A schedule that makes the daily summary, a run for each day."""
    given = {"target": {"assets": ["summary"]}, "partitions": "each", "enabled": True}
    return Schedule(name=name, **{**given, **fields})


def runs(here: World) -> list[str]:
    """The partitions, or ranges, of the runs that were asked for, in order."""
    return [
        str(r.partition_start)
        if r.partition_start == r.partition_end
        else f"{r.partition_start}..{r.partition_end}"
        for r in here.dagster.requests
    ]


def waiting(here: World) -> dict[str, str]:
    """The reasons of waiting jobs, by the target partition."""
    query = sa.select(jobs.c.scope, jobs.c.reason).where(jobs.c.state.like("waiting%"))
    with here.database.read() as tx:
        return {row.scope: row.reason for row in tx.execute(query)}


def end_runs(here: World, now: float) -> None:
    """All runs end well, and the engine sees it."""
    for run_id, run in list(here.dagster.runs.items()):
        if not run.status.ended:
            here.dagster.end(run_id)
    here.tick(now)


def test_the_three_regions_of_a_day_make_a_run_of_that_day(lake: MakeWorld) -> None:
    """Three keys of different days make none."""
    here = lake(daily(trigger=on.partitions("raw/orders", count="all")))
    for key in ("2026-01-01|emea", "2026-01-01|amer", "2026-01-02|apac"):
        here.feed.arrive("raw/orders", key)
    here.tick(3 * DAY)
    assert runs(here) == []
    assert waiting(here) == {
        "2026-01-01": "2 of 3 partitions of raw/orders have arrived, missing 2026-01-01|apac",
        "2026-01-02": "1 of 3 partitions of raw/orders have arrived, "
        "missing 2026-01-02|emea, 2026-01-02|amer",
    }
    here.feed.arrive("raw/orders", "2026-01-01|apac")
    here.tick(3 * DAY + 1)
    assert runs(here) == ["2026-01-01"]


def test_a_count_is_of_one_target_partition(lake: MakeWorld) -> None:
    """Two of the three regions of one day, and a region twice is one."""
    here = lake(daily(trigger=on.partitions("raw/orders", count=2)))
    for key in ("2026-01-01|emea", "2026-01-02|emea", "2026-01-01|emea"):
        here.feed.arrive("raw/orders", key)
    here.tick(3 * DAY)
    assert runs(here) == []
    here.feed.arrive("raw/orders", "2026-01-02|apac")
    here.tick(3 * DAY + 1)
    assert runs(here) == ["2026-01-02"]


def test_24_hourly_files_make_a_day(lake: MakeWorld) -> None:
    """By the default mapping of the dependency; the day need not have ended."""
    here = lake(daily(trigger=on.partitions("raw/hours", count="all")))
    for hour in range(23):
        here.feed.arrive("raw/hours", f"2026-01-02-{hour:02d}:00")
    here.tick(2 * DAY + 60)
    assert runs(here) == []
    assert waiting(here) == {
        "2026-01-02": "23 of 24 partitions of raw/hours have arrived, missing 2026-01-02-23:00"
    }
    here.feed.arrive("raw/hours", "2026-01-02-23:00")
    here.tick(2 * DAY + 61)
    assert runs(here) == ["2026-01-02"]


def test_a_day_that_has_not_ended_is_waited_for(lake: MakeWorld) -> None:
    """Dagster has no such partition before: an hour of the day holds its run until midnight."""
    here = lake(daily(trigger=on.partitions("raw/hours")))
    here.feed.arrive("raw/hours", "2026-01-02-01:00")
    here.tick(DAY + 2 * HOUR)
    assert runs(here) == []
    assert waiting(here) == {
        "2026-01-02": "partition 2026-01-02 exists from 2026-01-03 00:00:00Z on"
    }
    here.tick(2 * DAY - 1)
    assert runs(here) == []
    here.tick(2 * DAY)
    assert runs(here) == ["2026-01-02"]


def test_the_timeout_begins_when_the_window_of_the_partition_has_ended(lake: MakeWorld) -> None:
    """What arrives on the first of a month is not given up before the month is over."""
    monthly = {**ASSETS, "summary": {"partitions": {"monthly": {"start": "2026-01-01"}}}}
    here = lake(daily(trigger=on.partitions("raw/days", count="all")), assets=monthly)
    for day in range(1, 31):
        here.feed.arrive("raw/days", f"2026-01-{day:02d}")
        here.tick(day * DAY)
    assert runs(here) == []
    here.tick(31 * DAY + DAY - 1)
    assert list(waiting(here)) == ["2026-01-01"]
    here.feed.arrive("raw/days", "2026-01-31")
    here.tick(31 * DAY + DAY - 1)
    assert runs(here) == ["2026-01-01"]


def test_orders_and_payments_of_the_same_day(lake: MakeWorld) -> None:
    """``all_of`` joins by the target partition."""
    trigger = on.partitions("raw/days") & on.partitions("raw/payments")
    here = lake(daily(trigger=trigger))
    here.feed.arrive("raw/days", "2026-01-01")
    here.feed.arrive("raw/payments", "2026-01-02")
    here.tick(5 * DAY)
    assert runs(here) == []
    here.feed.arrive("raw/payments", "2026-01-01")
    here.tick(5 * DAY + 1)
    here.feed.arrive("raw/days", "2026-01-02")
    here.tick(5 * DAY + 2)
    end_runs(here, 5 * DAY + 3)
    assert runs(here) == ["2026-01-01", "2026-01-02"]
    assert waiting(here) == {}


def test_an_unpartitioned_asset_counts_for_each_partition_once(lake: MakeWorld) -> None:
    """Before the partition or after it, however long before; each run uses it up for itself."""
    trigger = on.partitions("raw/days") & on.partitions("config")
    here = lake(daily(trigger=trigger))
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(2 * DAY)
    assert runs(here) == []
    here.feed.arrive("config")
    here.tick(2 * DAY + 1)
    assert runs(here) == ["2026-01-01"]
    here.tick(10 * DAY)
    here.feed.arrive("raw/days", "2026-01-02")
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(10 * DAY + 1)
    assert runs(here) == ["2026-01-01", "2026-01-02"]
    here.feed.arrive("config")
    here.tick(10 * DAY + 2)
    assert runs(here) == ["2026-01-01", "2026-01-02", "2026-01-01"]


def test_beside_partitions_a_common_event_goes_to_what_waits(lake: MakeWorld) -> None:
    """In an ``any_of`` it is not kept for partitions that begin later."""
    trigger = on.partitions("raw/orders", count="all") | on.run("rollup")
    here = lake(daily(trigger=trigger))
    here.feed.arrive("raw/orders", "2026-01-01|emea")
    here.tick(3 * DAY)
    here.dagster.start("rollup", "r1")
    here.dagster.end("r1")
    here.tick(3 * DAY + 1)
    assert runs(here) == ["2026-01-01"]
    here.feed.arrive("raw/orders", "2026-01-02|emea")
    here.tick(3 * DAY + 2)
    assert runs(here) == ["2026-01-01"]


def test_each_tick_names_the_day_that_ended(lake: MakeWorld) -> None:
    """Also the ticks that are made up; an offset counts from there."""
    cron = {"catch_up": "all", "partition": "last_ended"}
    here = lake(
        daily("nightly", trigger=on.cron("0 2 * * *", **cron)),
        daily("before", trigger=on.cron("0 3 * * *", **cron, offset=-1)),
    )
    here.tick(4 * DAY + 4 * HOUR)
    by_schedule: dict[str, list[str]] = {}
    for request in here.dagster.requests:
        by_schedule.setdefault(request.tags["arctic/schedule"], []).append(
            str(request.partition_start)
        )
    # Of the ticks on the 1st to the 5th: before the 1st there was no day, and no day before it.
    assert by_schedule == {
        "nightly": ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"],
        "before": ["2026-01-01", "2026-01-02", "2026-01-03"],
    }


def test_a_tick_names_all_partitions_that_are_missing(lake: MakeWorld) -> None:
    """Those that exist and were never materialized."""
    here = lake(daily(trigger=on.cron("0 2 * * *", partition="all_missing")))
    assert isinstance(here.targets, Declared)
    here.targets.materialized["summary"] = {"2026-01-02"}
    here.engine = here.new_engine()
    here.tick(3 * DAY + 2 * HOUR)
    assert sorted(runs(here)) == ["2026-01-01", "2026-01-03"]


def test_all_regions_or_at_six_with_what_there_is(lake: MakeWorld) -> None:
    """A day that ran in time does not run again at six."""
    trigger = on.partitions("raw/orders", count="all") | on.partition_end("6h")
    here = lake(daily(trigger=trigger))
    for region in ("emea", "amer", "apac"):
        here.feed.arrive("raw/orders", f"2026-01-01|{region}")
    here.feed.arrive("raw/orders", "2026-01-02|emea")
    here.tick(DAY + HOUR)
    assert runs(here) == ["2026-01-01"]
    here.tick(DAY + 7 * HOUR)
    assert runs(here) == ["2026-01-01"]
    here.tick(2 * DAY + 6 * HOUR - 1)
    assert runs(here) == ["2026-01-01"]
    here.tick(2 * DAY + 6 * HOUR)
    assert runs(here) == ["2026-01-01", "2026-01-02"]
    events = here.dagster.requests[-1]
    assert (events.partition_start, events.partition_end) == ("2026-01-02", "2026-01-02")


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ("rerun", {10: 2, HOUR + 20: 2}),
        ("ignore", {10: 1, HOUR + 20: 1}),
        ("collect:1h", {10: 1, HOUR + 20: 2}),
    ],
)
def test_what_comes_late_to_a_day_that_has_run(
    lake: MakeWorld, late: str, expected: dict[int, int]
) -> None:
    """Again at once, not at all, or once for all that came within an hour."""
    trigger = on.partitions("raw/orders", count="all", late=late) | on.partition_end("6h")
    here = lake(daily(trigger=trigger))
    here.feed.arrive("raw/orders", "2026-01-01|emea")
    here.tick(DAY + 6 * HOUR)
    end_runs(here, DAY + 6 * HOUR + 5)
    assert runs(here) == ["2026-01-01"]
    here.feed.arrive("raw/orders", "2026-01-01|amer")
    here.tick(DAY + 6 * HOUR + 10)
    counts = {10: len(runs(here))}
    here.feed.arrive("raw/orders", "2026-01-01|apac")
    here.tick(DAY + 6 * HOUR + 10 + (0 if late == "rerun" else 1800))
    end_runs(here, DAY + 7 * HOUR + 5)
    here.tick(DAY + 7 * HOUR + 20)
    counts[HOUR + 20] = len(runs(here)) - (late == "rerun")
    assert counts == expected


def test_complete_counts_what_arrived_before_the_schedule(lake: MakeWorld) -> None:
    """All are there, whenever that was, and something is new."""
    here = lake(
        daily("first", trigger=on.partitions("raw/orders", count=9, distinct=False)),
        daily("whole", trigger=on.partitions("raw/orders", complete=True), enabled=False),
    )
    for region in ("emea", "amer"):
        here.feed.arrive("raw/orders", f"2026-01-01|{region}")
    here.tick(DAY + 1)
    here.engine.declared = [
        daily("whole", trigger=on.partitions("raw/orders", complete=True)),
    ]
    here.schedules = here.engine.declared
    here.engine = here.new_engine()
    here.tick(DAY + 2)
    with here.database.begin() as tx:
        tx.execute(sa.text("update arctic_schedules set status = 'enabled'"))
    here.engine = here.new_engine()
    here.feed.arrive("raw/orders", "2026-01-01|emea")
    here.tick(DAY + 3)
    assert waiting(here) == {
        "2026-01-01": "2 of 3 partitions of raw/orders have arrived, missing 2026-01-01|apac"
    }
    here.feed.arrive("raw/orders", "2026-01-01|apac")
    here.tick(DAY + 4)
    assert runs(here) == ["2026-01-01"]
    end_runs(here, DAY + 5)
    here.feed.arrive("raw/orders", "2026-01-01|amer")
    here.tick(DAY + 6)
    assert runs(here) == ["2026-01-01", "2026-01-01"]


def test_keys_are_grouped_by_a_dimension_for_a_target_without_partitions(
    lake: MakeWorld,
) -> None:
    """Three regions of a date make one unpartitioned run."""
    report = Schedule(
        name="report",
        target={"assets": ["report"]},
        trigger=on.partitions("raw/orders", count="all", per="date"),
        enabled=True,
    )
    here = lake(report)
    for key in ("2026-01-01|emea", "2026-01-02|emea", "2026-01-01|amer", "2026-01-01|apac"):
        here.feed.arrive("raw/orders", key)
    here.tick(3 * DAY)
    assert runs(here) == ["None"]
    assert list(waiting(here)) == ["2026-01-02"]


def test_arrivals_of_an_unpartitioned_asset_are_counted(lake: MakeWorld) -> None:
    """Four commits to a table can be waited for."""
    report = Schedule(
        name="report",
        target={"assets": ["report"]},
        trigger=on.partitions("config", count=4),
        enabled=True,
    )
    here = lake(report)
    for _ in range(3):
        here.feed.arrive("config")
    here.tick(1)
    assert runs(here) == []
    here.feed.arrive("config")
    here.tick(2)
    assert runs(here) == ["None"]


def test_a_range_is_one_run_of_adjacent_partitions(lake: MakeWorld) -> None:
    """Each partition is whole by itself; those that are launched together share a run."""
    trigger = on.partitions("raw/payments")
    here = lake(daily(trigger=trigger, partitions="range", constraints=[only.concurrency(5)]))
    for day in (1, 2, 3, 5, 6, 9):
        here.feed.arrive("raw/payments", f"2026-01-{day:02d}")
    here.tick(20 * DAY)
    assert runs(here) == ["2026-01-01..2026-01-03", "2026-01-05..2026-01-06", "2026-01-09"]


def test_what_maps_to_nothing_is_kept_and_spends_nothing(lake: MakeWorld) -> None:
    """Neither a key that the asset has not nor its neighbours fail."""
    here = lake(daily(trigger=on.partitions("raw/orders", count="all")))
    for key in ("2026-01-01|emea", "2026-01-01|mars", "2026-01-01|amer", "2026-01-01|apac"):
        here.feed.arrive("raw/orders", key)
    here.tick(2 * DAY)
    assert runs(here) == ["2026-01-01"]
    with here.database.read() as tx:
        kept = tx.execute(
            sa.select(deferred_arrivals.c.waits_for, deferred_arrivals.c.reason)
        ).all()
    assert [tuple(row) for row in kept] == [
        ("match", "2026-01-01|mars is no partition of raw/orders")
    ]


def test_a_partition_that_is_added_later_matches_after_a_deployment(lake: MakeWorld) -> None:
    """What was kept is looked at again by a process that starts."""
    here = lake(daily(trigger=on.partitions("raw/orders", count="all")))
    here.feed.arrive("raw/orders", "2026-01-01|mars")
    here.tick(2 * DAY)
    regions = {"multi": {"date": DAILY, "region": {"static": ["mars"]}}}
    here.targets = Declared(
        read_declared({"assets": {**ASSETS, "raw/orders": {"partitions": regions}}})
    )
    here.engine = here.new_engine()
    here.tick(2 * DAY + 1)
    here.tick(2 * DAY + 2)
    assert runs(here) == ["2026-01-01"]


def test_one_waiting_job_for_each_partition_under_a_limit(lake: MakeWorld) -> None:
    """Arrivals join the job of their partition; a launched one takes no more."""
    trigger = on.partitions("raw/payments")
    here = lake(daily(trigger=trigger, constraints=[only.concurrency(1)]))
    for day in (1, 2):
        here.feed.arrive("raw/payments", f"2026-01-{day:02d}")
    here.tick(5 * DAY)
    for day in (1, 2):
        here.feed.arrive("raw/payments", f"2026-01-{day:02d}")
    here.tick(5 * DAY + 1)
    assert sorted(waiting(here)) == ["2026-01-01", "2026-01-02"]
    for second in range(2, 6):
        end_runs(here, 5 * DAY + second)
    assert sorted(runs(here)) == ["2026-01-01", "2026-01-01", "2026-01-02"]


def test_without_coalescing_each_firing_is_a_job(lake: MakeWorld) -> None:
    """A run for each arrival of a partition."""
    here = lake(daily(trigger=on.partitions("raw/payments"), coalesce=False))
    for day in (1, 2, 1):
        here.feed.arrive("raw/payments", f"2026-01-{day:02d}")
    here.tick(5 * DAY)
    assert runs(here) == ["2026-01-01", "2026-01-02", "2026-01-01"]
