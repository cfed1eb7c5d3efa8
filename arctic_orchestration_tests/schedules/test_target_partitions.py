"""Schedules whose jobs belong to partitions of the target, on both databases."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import on
from arctic_orchestration.schedules.dagster.resource import RunCause
from arctic_orchestration.schedules.inventory import Inventory, Partitioning
from arctic_orchestration.schedules.inventory import store as keep
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.explanation import explain, explain_schedule
from arctic_orchestration.schedules.views.listing import list_schedules
from arctic_orchestration.schedules.views.locations import list_locations
from arctic_orchestration.schedules.views.numbers import living_jobs
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import jobs
from arctic_orchestration.waiting.reader import waiting as what_waits
from arctic_orchestration.waiting.wait_filter import WaitFilter
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    ASSETS,
    DAY,
    HOUR,
    Declared,
    MakeWorld,
    daily,
    end_runs,
    lake,
    runs,
    waiting,
)
from arctic_orchestration_tests.schedules.simulated import at

__all__ = ["lake"]


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


def test_windows_that_ended_while_nothing_ran_are_all_made_up(
    lake: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick takes the oldest of them, and the next one those that follow."""
    monkeypatch.setattr("arctic_orchestration.partitioning.target._ENDS_AT_ONCE", 2)
    here = lake(daily(trigger=on.partition_end("6h")))
    for second in range(3):
        here.tick(5 * DAY + 6 * HOUR + second)
    assert runs(here) == [f"2026-01-0{day}" for day in range(1, 6)]


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
    cron: dict[str, Any] = {"catch_up": "all", "partition": "last_ended"}
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


def test_a_partition_is_explained_with_the_tick_of_its_own_end(lake: MakeWorld) -> None:
    """One whose moment has passed gets none; the schedule's next tick is of another day."""
    trigger = on.partitions("raw/orders", count="all") | on.partition_end("6h")
    assets = json.loads(json.dumps(ASSETS).replace("2026-01-01", "2025-12-01"))
    here = lake(daily(trigger=trigger), assets=assets)
    of_days = Partitioning(format="%Y-%m-%d", form='{"daily": {"start": "2025-12-01"}}')
    inventory = Inventory(assets={"summary": of_days}, executable=frozenset({"summary"}))
    for day in ("2025-12-20", "2026-01-01", "2026-01-02"):
        here.feed.arrive("raw/orders", f"{day}|emea")
    here.tick(HOUR * 8)
    with here.database.begin() as tx:
        place = locked(tx, "default", here.location)
        keep(tx, place, inventory, at(0))
        query = sa.select(jobs.c.scope, jobs.c.id).where(jobs.c.state == "waiting_trigger")
        given = {
            row.scope: explain(tx, ScheduleStore(), place, row.id, at(HOUR * 9)).trigger
            for row in tx.execute(query)
        }
        without_job = explain_schedule(
            tx, ScheduleStore(), place, "daily", at(HOUR * 9), partition="2025-12-21"
        ).trigger
        waits = what_waits(tx, "default", at(HOUR * 9), WaitFilter()).waits
    given["2025-12-21"] = without_job
    nodes = {key: node.children[1] for key, node in given.items() if node is not None}
    assert {key: node.next_tick_at for key, node in nodes.items()} == {
        "2025-12-20": None,
        "2025-12-21": None,
        "2026-01-01": at(DAY + 6 * HOUR),
        "2026-01-02": at(2 * DAY + 6 * HOUR),
    }
    assert nodes["2025-12-20"].reason == "it does not fire: its moment was 2025-12-21 06:00:00Z"
    assert nodes["2026-01-01"].reason == "no tick 6h after the end of its window yet"
    assert [(wait.until.event, wait.until.at) for wait in waits if wait.cause == "trigger"] == [
        ("deadline", at(DAY + HOUR * 8)),
        ("tick", at(DAY + 6 * HOUR)),
        ("tick", at(2 * DAY + 6 * HOUR)),
    ]


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


@pytest.mark.parametrize("partitions", ["each", "range"])
def test_a_run_over_a_range_counts_for_each_of_its_partitions(
    lake: MakeWorld, partitions: str
) -> None:
    """A run of one job over three days, and a range of which one end is no partition."""
    here = lake(daily(trigger=on.run("rollup"), partitions=partitions))
    ranges = {"r1": ("2026-01-02", "2026-01-04"), "r2": ("2026-01-02", "yesterday")}
    for run_id, (start, end) in ranges.items():
        tags = {
            "dagster/asset_partition_range_start": start,
            "dagster/asset_partition_range_end": end,
        }
        here.dagster.start("rollup", run_id, tags=tags)
        here.dagster.end(run_id)
    here.tick(9 * DAY)
    each = ["2026-01-02", "2026-01-03", "2026-01-04"]
    assert runs(here) == (each if partitions == "each" else ["2026-01-02..2026-01-04"])
    with here.database.read() as tx:
        (unmatched,) = tx.execute(sa.select(deferred_arrivals.c.reason)).scalars()
    assert unmatched.startswith("the partitions 2026-01-02...yesterday could not be listed")


def test_the_last_partition_is_that_of_the_tick(lake: MakeWorld) -> None:
    """Not that of the machine's clock: a simulation has another one."""
    summary = {**ASSETS["summary"], "deps": {"raw/days": "last"}}
    here = lake(daily(trigger=on.partitions("raw/days")), assets={**ASSETS, "summary": summary})
    here.feed.arrive("raw/days", "2026-01-02")
    here.tick(2 * DAY)
    assert runs(here) == ["2026-01-01", "2026-01-02"]
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(2 * DAY + 1)
    assert runs(here) == ["2026-01-01", "2026-01-02"]


def test_what_keeps_common_events_is_not_counted_as_a_waiting_job(lake: MakeWorld) -> None:
    """Not in the list of schedules, nor of locations, nor in the metrics."""
    here = lake(daily(trigger=on.partitions("raw/days") & on.partitions("config")))
    here.feed.arrive("config")
    here.feed.arrive("raw/payments", "2026-01-01")
    here.tick(2 * DAY)
    assert list(waiting(here)) == ["*"]

    def counted() -> tuple[int, int, int]:
        with here.database.read() as tx:
            place = location_by_name(tx, "default", "here")
            (schedule,) = list_schedules(tx, ScheduleStore(), place).listed
            (location,) = list_locations(tx, "default", at(2 * DAY))
            (states, _), *_ = living_jobs(tx, "default", at(2 * DAY)).values()
        return schedule.waiting, location.jobs_waiting, states[JobState.WAITING_TRIGGER]

    assert counted() == (0, 0, 0)
    here.feed.arrive("raw/days", "2027-01-01")
    here.tick(2 * DAY + 1)
    assert sorted(waiting(here)) == ["*", "2027-01-01"]
    assert counted()[:2] == (1, 1)


def test_the_newest_thousand_common_events_are_kept(lake: MakeWorld) -> None:
    """A partition that begins to wait later gets these, and no earlier ones."""
    trigger = on.partitions("raw/days") & on.partitions("config", count=1_001)
    here = lake(daily(trigger=trigger))
    for _ in range(1_003):
        here.feed.arrive("config")
    here.tick(DAY)
    here.tick(DAY + 300)
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(2 * DAY)
    assert waiting(here)["2026-01-01"].endswith("1000 of 1001 partitions of config have arrived")
    here.feed.arrive("config")
    here.tick(2 * DAY + 1)
    assert runs(here) == ["2026-01-01"]


def test_what_maps_to_nothing_is_kept_for_thirty_days(lake: MakeWorld) -> None:
    """From its arrival on, however often the code is loaded again meanwhile."""
    here = lake(daily(trigger=on.partitions("raw/orders", count="all")))
    here.feed.arrive("raw/orders", "2026-01-01|mars")
    here.tick(2 * DAY)

    def load(now: float) -> list[str]:
        here.engine = here.new_engine()
        here.tick(now)
        here.tick(now + 1)
        with here.database.read() as tx:
            return list(tx.execute(sa.select(deferred_arrivals.c.reason)).scalars())

    unmatched = ["2026-01-01|mars is no partition of raw/orders"]
    assert load(20 * DAY) == unmatched
    assert load(32 * DAY) == unmatched
    assert load(32 * DAY + 301) == []


def test_a_run_of_a_partition_receives_the_keys_that_arrived(
    lake: MakeWorld, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their asset, each in the order of its first arrival, and those of no other partition."""
    here = lake(daily(trigger=on.partitions("raw/orders", count=2) & on.partitions("raw/days")))
    for region in ("emea", "amer", "emea"):
        here.feed.arrive("raw/orders", f"2026-01-01|{region}")
    here.feed.arrive("raw/orders", "2026-01-02|apac")
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(3 * DAY)
    (request,) = here.dagster.requests
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    cause = RunCause({"arctic/job": request.job_id})
    regions = ["2026-01-01|emea", "2026-01-01|amer"]
    assert cause.upstream_partitions == {"raw/orders": regions, "raw/days": ["2026-01-01"]}
    assert cause.partitions == [*regions, "2026-01-01"]
