"""Counting partitions that belong together, and arrivals that wait or match nothing."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import on, only
from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.declared_assets import DeclaredAsset
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.simulator import DeclaredAssets, read_declared
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    ASSETS,
    DAILY,
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
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.statements import statements_of

__all__ = ["lake"]


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


def test_many_days_join_a_range_in_as_many_statements_as_few(lake: MakeWorld) -> None:
    """A backfill of 4,000 days read the events of the run for each day: 19 s, in one tick."""
    here = lake(daily(trigger=on.partitions("raw/days"), partitions="range"))
    counts = []
    for first, days in ((1, 2), (5, 4), (11, 15)):
        for day in range(first, first + days):
            here.feed.arrive("raw/days", f"2026-01-{day:02}")
        with statements_of(here.database.engine) as statements:
            here.tick(40 * DAY + first)
        counts.append(len(statements))
    assert runs(here)[1:] == ["2026-01-05..2026-01-08", "2026-01-11..2026-01-25"]
    assert counts[1] == counts[2]


def test_ranges_of_scattered_days_are_computed_once(
    lake: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each of the days: 2,000 of them took 34 s, in one tick."""
    here, asked = lake(daily(trigger=on.partitions("raw/days"), partitions="range")), []
    ranges = here.engine.targets.ranges

    def noted(target: Target, partitions: Sequence[str]) -> list[list[str]]:
        asked.append(len(partitions))
        return ranges(target, partitions)

    monkeypatch.setattr(here.engine.targets, "ranges", noted)
    for day in range(1, 28, 3):
        here.feed.arrive("raw/days", f"2026-01-{day:02}")
        here.feed.arrive("raw/days", f"2026-01-{day + 1:02}")
    here.tick(40 * DAY)
    days = [(f"2026-01-{day:02}", f"2026-01-{day + 1:02}") for day in range(1, 28, 3)]
    assert runs(here) == [f"{first}..{last}" for first, last in days]
    assert asked == [18]


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


@pytest.mark.parametrize("complete", [False, True])
def test_jobs_wait_for_the_partitions_that_the_code_defines_now(
    lake: MakeWorld, complete: bool
) -> None:
    """One is removed, and a job that lacks it alone fires; one is added, and is named."""
    all_ = {"complete": True} if complete else {"count": "all"}
    here = lake(daily(trigger=on.partitions("raw/orders", **all_)))
    for key in ("2026-01-01|emea", "2026-01-01|amer", "2026-01-02|emea"):
        here.feed.arrive("raw/orders", key)
    here.tick(2 * DAY)
    assert runs(here) == []

    def deploy(now: float, *regions: str) -> None:
        changed = {"multi": {"date": DAILY, "region": {"static": list(regions)}}}
        assets = {**ASSETS, "raw/orders": {"partitions": changed}}
        here.targets = Declared(read_declared({"assets": assets}))
        here.engine = here.new_engine()
        here.tick(now)

    deploy(2 * DAY + 1, "emea", "amer")
    assert runs(here) == ["2026-01-01"]
    assert waiting(here) == {
        "2026-01-02": "1 of 2 partitions of raw/orders have arrived, missing 2026-01-02|amer"
    }
    deploy(2 * DAY + 2, "emea", "mars")
    assert waiting(here) == {
        "2026-01-02": "1 of 2 partitions of raw/orders have arrived, missing 2026-01-02|mars"
    }
    deploy(2 * DAY + 3, "emea", *(f"r{number}" for number in range(9)))
    assert waiting(here) == {"2026-01-02": "1 of 10 partitions of raw/orders have arrived"}
    deploy(2 * DAY + 4, "emea")
    assert runs(here) == ["2026-01-01", "2026-01-02"]


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


class OwnMapping(dg.PartitionMapping):
    """A mapping of a user's own that knows one key only."""

    @property
    def description(self) -> str:
        return "its own"

    def validate_partition_mapping(self, *args: Any) -> None: ...

    def get_downstream_partitions_for_partitions(
        self,
        upstream_partitions_subset: Any,
        upstream_partitions_def: Any,
        downstream_partitions_def: Any,
        current_time: Any = None,
        dynamic_partitions_store: Any = None,
    ) -> Any:
        keys = list(upstream_partitions_subset.get_partition_keys())
        if keys != ["2026-01-01"]:
            raise RuntimeError(f"never heard of {keys}")
        return downstream_partitions_def.subset_with_partition_keys(keys)

    def get_upstream_mapped_partitions_result_for_partitions(self, *args: Any, **_: Any) -> Any:
        raise RuntimeError("nor the other way")


def test_a_mapping_that_raises_stops_nothing_beside_it(lake: MakeWorld) -> None:
    """What it can map counts, the rest is kept with the reason, and other schedules go on."""
    other = Schedule(
        name="other", target="job", trigger=on.partitions("raw/payments"), enabled=True
    )
    here = lake(
        daily("one", trigger=on.partitions("raw/payments")),
        daily("whole", trigger=on.partitions("raw/payments", count="all")),
        other,
    )
    assert isinstance(here.targets, Declared)
    made = here.targets.declared.assets["summary"]
    odd = DeclaredAsset(partitions=made.partitions, deps={"raw/payments": OwnMapping()})
    here.targets = Declared(DeclaredAssets(assets={**here.targets.declared.assets, "summary": odd}))
    here.engine = here.new_engine()
    for day in (1, 2):
        here.feed.arrive("raw/payments", f"2026-01-{day:02d}")
    here.tick(5 * DAY)
    here.tick(5 * DAY + 1)
    assert sorted(runs(here)) == ["2026-01-01", "None"]
    assert waiting(here) == {
        "2026-01-01": "1 partitions of raw/payments have arrived; "
        "which belong together is not known"
    }
    with here.database.read() as tx:
        kept = tx.execute(sa.select(deferred_arrivals.c.waits_for, deferred_arrivals.c.reason))
        assert {(row.waits_for, row.reason[:34]) for row in kept} == {
            ("match", "2026-01-02 could not be mapped: Ru")
        }


def test_what_is_kept_for_all_partitions_is_never_launched(lake: MakeWorld) -> None:
    """Neither when a schedule that collects is suspended, nor by a person."""
    trigger = on.all_of(on.partitions("raw/days"), on.partitions("config"), wait="1h")
    here = lake(daily(trigger=trigger, suspend_mode="collect"))
    here.feed.arrive("config")
    here.tick(DAY)
    with here.database.begin() as tx:
        location = locations.locked(tx, "default", "here")
        control.suspend(tx, here.engine.store, location, "daily", at(DAY + 1))
    here.tick(2 * DAY)
    assert runs(here) == []
    with here.database.begin() as tx:
        location = locations.locked(tx, "default", "here")
        (pool,) = tx.execute(sa.select(jobs.c.id)).scalars()
        with pytest.raises(TransitionRefused, match="is never launched: it keeps what concerns"):
            job_control.launch_job(tx, location, pool, at(2 * DAY))
        control.enable(tx, here.engine.store, location, "daily", at(2 * DAY))
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(2 * DAY + 1)
    assert runs(here) == ["2026-01-01"]


def test_events_from_before_the_target_was_partitioned_find_their_partitions(
    lake: MakeWorld, database: Database
) -> None:
    """A job that waited for the whole target gives them up to jobs of the partitions."""
    trigger = on.partitions("raw/orders", count=2) & on.partitions("config")
    here = World(database, [daily(trigger=trigger)])
    here.tick(0)
    here.feed.arrive("raw/orders", "2026-01-01|emea")
    here.feed.arrive("config")
    here.tick(DAY)
    assert list(waiting(here)) == [None]
    here.targets = Declared(read_declared({"assets": ASSETS}))
    here.engine = here.new_engine()
    here.tick(DAY + 1)
    here.tick(DAY + 2)
    assert sorted(waiting(here)) == ["*", "2026-01-01"]
    here.feed.arrive("raw/orders", "2026-01-01|apac")
    here.tick(DAY + 3)
    assert runs(here) == ["2026-01-01"]


def test_a_job_that_was_split_before_is_joined(lake: MakeWorld, database: Database) -> None:
    """By the arrivals of its partition, once the target's partitions are known."""
    constraint = only.delay("1h")
    here = World(database, [daily(trigger=on.partitions("raw/days"), constraints=[constraint])])
    here.tick(0)
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(2 * DAY)
    here.targets = Declared(read_declared({"assets": ASSETS}))
    here.engine = here.new_engine()
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(2 * DAY + 1)
    here.tick(2 * DAY + HOUR)
    assert runs(here) == ["2026-01-01"]
    assert waiting(here) == {}


def test_a_common_event_that_was_used_up_is_not_counted_again(lake: MakeWorld) -> None:
    """Not even when a run in between, that the clock requested, had no common event."""
    both = on.partitions("raw/days") & on.partitions("config")
    here = lake(daily(trigger=both | on.cron("0 2 * * *", partition="last_ended")))
    here.feed.arrive("config")
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(DAY)
    assert runs(here) == ["2026-01-01"]
    here.tick(DAY + 2 * HOUR)
    assert runs(here) == ["2026-01-01"] * 2
    here.feed.arrive("raw/days", "2026-01-01")
    here.tick(DAY + 3 * HOUR)
    assert runs(here) == ["2026-01-01"] * 2
    here.feed.arrive("config")
    here.tick(DAY + 4 * HOUR)
    assert runs(here) == ["2026-01-01"] * 3


def test_complete_counts_what_arrived_a_moment_ago_for_another_job(lake: MakeWorld) -> None:
    """In one reading: whole, and one of them again, where each firing is a job."""
    here = lake(daily(trigger=on.partitions("raw/orders", complete=True), coalesce=False))
    for region in ("emea", "amer", "apac", "emea"):
        here.feed.arrive("raw/orders", f"2026-01-01|{region}")
    here.tick(2 * DAY)
    assert runs(here) == ["2026-01-01", "2026-01-01"]
