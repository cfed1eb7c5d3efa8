"""Which arrivals of a partition count: checks, backfills, data versions."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import on, only
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.simulator import read_declared
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import events, job_events
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    ASSETS,
    DAY,
    Declared,
    MakeWorld,
    daily,
    end_runs,
    lake,
    runs,
    waiting,
)
from arctic_orchestration_tests.schedules.simulated import World, at

__all__ = ["lake"]


class Unchecked(Declared):
    """Code whose assets have no check that blocks."""

    def blocking_checks(self, asset: str) -> Collection[str]:
        return ()


def arrive(here: World, partition: str, *, checks: Sequence[str] = (), **fields: Any) -> int:
    """A run materializes a day of the payments; returns the id of the event."""
    number = len(here.feed.events) + 1
    here.feed.planned[number] = frozenset(checks)
    here.feed.events.append(
        Event(
            kind=EventKind.PARTITION,
            subject="raw/payments",
            at=at(5 * DAY),
            storage_id=number,
            partition=partition,
            **{"run_id": f"r{number}", **fields},
        )
    )
    return number


def evaluate(
    here: World, of: int, name: str, *, passed: bool, partition: str | None = None
) -> None:
    """A blocking check of an arrival ends."""
    here.feed.events.append(
        Event(
            kind=EventKind.CHECK,
            subject="raw/payments",
            at=at(5 * DAY),
            storage_id=len(here.feed.events) + 1,
            check=name,
            passed=passed,
            severity="error",
            blocking=True,
            target_id=of,
            partition=partition,
        )
    )


def test_an_arrival_counts_when_its_blocking_check_has_passed(lake: MakeWorld) -> None:
    """Not before it ended, not after it failed, and after it passes later."""
    here = lake(daily(trigger=on.partitions("raw/payments")))
    good = arrive(here, "2026-01-01", checks=["no_nulls"])
    bad = arrive(here, "2026-01-02", checks=["no_nulls"])
    arrive(here, "2026-01-03")
    here.tick(6 * DAY)
    assert runs(here) == ["2026-01-03"]
    evaluate(here, good, "no_nulls", passed=True)
    evaluate(here, bad, "no_nulls", passed=False)
    here.tick(6 * DAY + 1)
    assert runs(here) == ["2026-01-03", "2026-01-01"]
    with here.database.read() as tx:
        kept = tx.execute(sa.select(deferred_arrivals.c.waits_for, deferred_arrivals.c.reason))
        assert [tuple(row) for row in kept] == [("checks", "check no_nulls has failed")]
    evaluate(here, bad, "no_nulls", passed=True)
    here.tick(6 * DAY + 2)
    assert runs(here) == ["2026-01-03", "2026-01-01", "2026-01-02"]


def test_an_arrival_counts_when_the_code_has_lost_the_check_that_failed(lake: MakeWorld) -> None:
    """Or it blocks no more; while the code has it, a deployment changes nothing."""
    here = lake(daily(trigger=on.partitions("raw/payments")))
    for partition in ("2026-01-01", "2026-01-02"):
        evaluate(here, arrive(here, partition, checks=["no_nulls"]), "no_nulls", passed=False)
    for day in (5, 6):
        here.engine = here.new_engine()
        here.tick(day * DAY)
        here.tick(day * DAY + 1)
    assert runs(here) == []
    with here.database.read() as tx:
        kept = tx.execute(sa.select(deferred_arrivals.c.waits_for, deferred_arrivals.c.at)).all()
    assert kept == [("checks", at(5 * DAY))] * 2
    here.targets = Unchecked(read_declared({"assets": ASSETS}))
    here.engine = here.new_engine()
    here.tick(7 * DAY)
    here.tick(7 * DAY + 1)
    assert runs(here) == ["2026-01-01", "2026-01-02"]


def test_an_evaluation_leaves_the_arrivals_of_other_partitions_alone(lake: MakeWorld) -> None:
    """They are not stored again each time: thousands may wait. One of no partition is for all."""
    here = lake(daily(trigger=on.partitions("raw/payments")))
    days = [f"2026-01-0{day}" for day in range(1, 5)]
    numbers = {day: arrive(here, day, checks=["no_nulls"]) for day in days}

    def kept() -> dict[str, int]:
        """The row of each day that waits for its check."""
        number = (events.c.number == deferred_arrivals.c.number) & (
            events.c.location_id == deferred_arrivals.c.location_id
        )
        query = sa.select(events.c.partition, deferred_arrivals.c.id).join(events, number)
        with here.database.read() as tx:
            return {row.partition: row.id for row in tx.execute(query)}

    here.tick(6 * DAY)
    before = kept()
    assert sorted(before) == days
    evaluate(here, numbers[days[1]], "no_nulls", passed=True, partition=days[1])
    evaluate(here, numbers[days[2]], "no_nulls", passed=False, partition=days[2])
    here.tick(6 * DAY + 1)
    assert runs(here) == [days[1]]
    after = kept()
    assert sorted(after) == [days[0], days[2], days[3]]
    assert [after[day] for day in (days[0], days[3])] == [before[days[0]], before[days[3]]]
    evaluate(here, numbers[days[3]], "no_nulls", passed=True)
    here.tick(6 * DAY + 2)
    assert runs(here) == [days[1], days[3]]


def test_a_trigger_may_wait_for_more_checks(lake: MakeWorld) -> None:
    """Also of arrivals that no run was to check."""
    here = lake(daily(trigger=on.partitions("raw/payments", checks="fresh_enough")))
    number = arrive(here, "2026-01-01", run_id=None)
    here.tick(6 * DAY)
    assert runs(here) == []
    evaluate(here, number, "fresh_enough", passed=True)
    here.tick(6 * DAY + 1)
    assert runs(here) == ["2026-01-01"]


def test_what_a_backfill_made_can_be_left_out(lake: MakeWorld) -> None:
    """``backfill: ignore`` takes the other arrivals only."""
    here = lake(
        daily("both", trigger=on.partitions("raw/payments")),
        daily("news", trigger=on.partitions("raw/payments", backfill="ignore")),
    )
    here.feed.backfills["r1"] = "history"
    arrive(here, "2026-01-01", run_id="r1")
    arrive(here, "2026-01-02", run_id="r2")
    here.tick(6 * DAY)
    by_schedule = {(r.tags["arctic/schedule"], r.partition_start) for r in here.dagster.requests}
    assert by_schedule == {("both", "2026-01-01"), ("both", "2026-01-02"), ("news", "2026-01-02")}


def test_an_arrival_with_the_same_data_version_is_none(lake: MakeWorld) -> None:
    """``changed`` compares it with the arrival before, of the same partition."""
    here = lake(daily(trigger=on.partitions("raw/payments", changed=True)))
    arrive(here, "2026-01-01", data_version="v1")
    arrive(here, "2026-01-02", data_version="v1")
    here.tick(6 * DAY)
    end_runs(here, 6 * DAY + 1)
    arrive(here, "2026-01-01", data_version="v1")
    arrive(here, "2026-01-02", data_version="v2")
    here.tick(6 * DAY + 2)
    assert runs(here) == ["2026-01-01", "2026-01-02", "2026-01-02"]


def test_a_partition_whose_check_failed_leaves_a_day_incomplete(lake: MakeWorld) -> None:
    """Also where what arrived before counts: it is not whole until the check passes."""
    monthly = {**ASSETS, "summary": {"partitions": {"monthly": {"start": "2026-01-01"}}}}
    trigger = on.partitions("raw/payments", complete=True, where="2026-01-0[12]")
    here = lake(daily(trigger=trigger), assets=monthly)
    bad = arrive(here, "2026-01-01", checks=["no_nulls"])
    evaluate(here, bad, "no_nulls", passed=False)
    here.tick(40 * DAY)
    arrive(here, "2026-01-02")
    here.tick(40 * DAY + 1)
    assert runs(here) == []
    evaluate(here, bad, "no_nulls", passed=True)
    here.tick(40 * DAY + 2)
    assert runs(here) == ["2026-01-01"]


@pytest.mark.parametrize("at_once", [False, True])
def test_an_arrival_that_counts_replaces_one_whose_check_failed(
    lake: MakeWorld, at_once: bool
) -> None:
    """The partition is there for later jobs, too, until an arrival of it fails again."""
    monthly = {**ASSETS, "summary": {"partitions": {"monthly": {"start": "2026-01-01"}}}}
    trigger = on.partitions("raw/payments", complete=True, where="2026-01-0[12]")
    here = lake(daily(trigger=trigger), assets=monthly)

    def judged(*, passed: bool) -> None:
        evaluate(here, arrive(here, "2026-01-01", checks=["no_nulls"]), "no_nulls", passed=passed)

    judged(passed=False)
    if not at_once:
        here.tick(40 * DAY)
    judged(passed=True)
    arrive(here, "2026-01-02")
    here.tick(40 * DAY + 1)
    end_runs(here, 40 * DAY + 2)
    arrive(here, "2026-01-02")
    here.tick(40 * DAY + 3)
    assert runs(here) == ["2026-01-01", "2026-01-01"]
    end_runs(here, 40 * DAY + 4)
    judged(passed=False)
    arrive(here, "2026-01-02")
    here.tick(40 * DAY + 5)
    assert runs(here) == ["2026-01-01", "2026-01-01"]


@pytest.mark.parametrize("at_once", [False, True])
def test_an_arrival_with_the_version_of_one_whose_check_failed_is_a_change(
    lake: MakeWorld, at_once: bool
) -> None:
    """The version before it never counted. It counts once: the failed one waits no longer."""
    here = lake(daily(trigger=on.partitions("raw/payments", changed=True)))

    def judged(version: str, *, passed: bool) -> int:
        number = arrive(here, "2026-01-01", checks=["no_nulls"], data_version=version)
        evaluate(here, number, "no_nulls", passed=passed)
        return number

    judged("v1", passed=True)
    here.tick(6 * DAY)
    end_runs(here, 6 * DAY + 1)
    bad = judged("v2", passed=False)
    if not at_once:
        here.tick(6 * DAY + 2)
    judged("v2", passed=False)
    judged("v2", passed=True)
    here.tick(6 * DAY + 3)
    assert len(runs(here)) == 2
    end_runs(here, 6 * DAY + 4)
    evaluate(here, bad, "no_nulls", passed=True)
    judged("v2", passed=True)
    here.tick(6 * DAY + 5)
    assert len(runs(here)) == 2


@pytest.mark.parametrize("field", [{"changed": True}, {"backfill": "ignore"}])
def test_time_since_arrivals_counts_the_same_ones(lake: MakeWorld, field: dict[str, Any]) -> None:
    """The run does not receive an arrival that the trigger in ``since`` does not take."""
    trigger = on.elapsed("1h", since=on.partitions("raw/payments", **field))
    target = {"assets": ["report"]}
    here = lake(daily(target=target, partitions="none", trigger=trigger))
    here.feed.backfills["history"] = "b"
    arrive(here, "2026-01-01", data_version="v1")
    here.tick(6 * DAY)
    end_runs(here, 6 * DAY + 1)
    arrive(here, "2026-01-01", data_version="v1", run_id="history")
    here.tick(7 * DAY)
    assert len(here.dagster.requests) == 2
    assert _taken(here) == ["2026-01-01"]


def test_an_arrival_joins_a_job_that_waits_for_its_constraints(lake: MakeWorld) -> None:
    """It is not late, and the run has it; with ``late: ignore`` the next one is ignored."""
    trigger = on.partitions("raw/payments", late="ignore")
    here = lake(daily(trigger=trigger, constraints=[only.delay("1h")]))
    arrive(here, "2026-01-01")
    here.tick(6 * DAY)
    arrive(here, "2026-01-01")
    here.tick(6 * DAY + 3600)
    assert runs(here) == ["2026-01-01"]
    assert _taken(here) == ["2026-01-01", "2026-01-01"]
    end_runs(here, 6 * DAY + 3601)
    arrive(here, "2026-01-01")
    here.tick(6 * DAY + 3602)
    assert waiting(here) == {}


@pytest.mark.parametrize("discards", ["an update", "a suspension"])
def test_an_arrival_is_not_late_if_a_change_discarded_the_job(
    lake: MakeWorld, discards: str
) -> None:
    """The job waited for an hour and had no run: ``late: ignore`` would never make one."""
    trigger = on.partitions("raw/payments", late="ignore")
    before = daily("s", trigger=trigger, constraints=[only.delay("1h")])
    here = lake(before)
    arrive(here, "2026-01-01")
    here.tick(6 * DAY)
    assert list(waiting(here)) == ["2026-01-01"]
    if discards == "an update":
        here.schedules = [before.model_copy(update={"description": "new"})]
        here.engine = here.new_engine()
        here.tick(6 * DAY + 1)
    else:
        assert here.suspend(6 * DAY + 1)
        assert here.resume(6 * DAY + 2)
    assert waiting(here) == {}
    arrive(here, "2026-01-01")
    here.tick(6 * DAY + 3)
    here.tick(6 * DAY + 3603)
    assert runs(here) == ["2026-01-01"]


def test_what_is_collected_late_fires_with_fewer_than_the_count(lake: MakeWorld) -> None:
    """An hour after the first of it; before the partition has run, the count is waited for."""
    here = lake(daily(trigger=on.partitions("raw/orders", count=2, late="collect:1h")))
    here.feed.arrive("raw/orders", "2026-01-01|emea")
    here.tick(2 * DAY)
    assert runs(here) == []
    here.feed.arrive("raw/orders", "2026-01-01|amer")
    here.tick(3 * DAY)
    end_runs(here, 3 * DAY + 1)
    here.feed.arrive("raw/orders", "2026-01-01|apac", moment=at(3 * DAY + 2))
    here.tick(3 * DAY + 3601)
    assert runs(here) == ["2026-01-01"]
    here.tick(3 * DAY + 3602)
    assert runs(here) == ["2026-01-01", "2026-01-01"]


def _taken(here: World) -> list[str]:
    """The partition of each arrival that a job has."""
    query = sa.select(job_events.c.partition).where(job_events.c.partition != "")
    with here.database.read() as tx:
        return list(tx.execute(query).scalars())
