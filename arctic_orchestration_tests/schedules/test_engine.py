"""The engine's promises, one sentence each, on both databases."""

from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.schedules.constraints import Delay, only
from arctic_orchestration.schedules.triggers import Firing, Partitions, on
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import job_events, job_history, jobs, schedules
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at, schedule


def states(world: World) -> list[str]:
    with world.database.read() as tx:
        return list(tx.execute(sa.select(jobs.c.state).order_by(jobs.c.created_at)).scalars())


def job_rows(world: World) -> list[dict[str, Any]]:
    with world.database.read() as tx:
        query = sa.select(jobs).order_by(jobs.c.created_at, jobs.c.id)
        return [dict(row) for row in tx.execute(query).mappings()]


def test_an_arrival_becomes_a_run_and_the_run_ends_the_job(world: MakeWorld) -> None:
    """One partition, one job, one run; the run's end is the job's."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    assert states(here) == ["launching"]
    assert here.tick(2) == []
    assert states(here) == ["launched"]
    here.dagster.end("run-1")
    assert here.tick(3) == []
    assert states(here) == ["succeeded"]
    with here.database.read() as tx:
        rows = tx.execute(sa.select(job_history).order_by(job_history.c.id)).all()
    assert [(row.from_state, row.state) for row in rows] == [
        ("waiting_trigger", "waiting_constraints"),
        ("waiting_constraints", "launching"),
        ("launching", "launched"),
        ("launched", "succeeded"),
    ]


def test_what_arrived_before_the_first_tick_is_ignored(database: Database) -> None:
    """A new location begins at the end of the feed."""
    here = World(database, [schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(0)
    assert here.tick(1) == []
    here.feed.arrive("raw/a", "2")
    assert here.tick(2) == ["run-1"]


def test_only_different_partitions_count(world: MakeWorld) -> None:
    """The same partition twice is one; what was counted before a restart is remembered."""
    here = world([schedule(trigger=on.partitions("raw/a", count=3))])
    for key in ("1", "2", "2"):
        here.feed.arrive("raw/a", key)
    assert here.tick(1) == []
    here.engine = here.new_engine()
    here.feed.arrive("raw/a", "1")
    assert here.tick(2) == []
    here.feed.arrive("raw/a", "3")
    assert here.tick(3) == ["run-1"]
    with here.database.read() as tx:
        taken = tx.execute(sa.select(job_events.c.partition).order_by(job_events.c.number))
        assert list(taken.scalars()) == ["1", "2", "2", "1", "3"]


def test_a_glob_takes_only_what_it_matches(world: MakeWorld) -> None:
    """``where`` is a glob on the partition key."""
    here = world([schedule(trigger=on.partitions("raw/a", where="2013-01-*"))])
    here.feed.arrive("raw/a", "2013-02-01")
    assert here.tick(1) == []
    here.feed.arrive("raw/a", "2013-01-31")
    assert here.tick(2) == ["run-1"]


def test_a_backlog_becomes_one_bigger_run(world: MakeWorld) -> None:
    """While a limit holds the job, events join it; when the slot is free, one run has them all."""
    here = world([schedule(constraints=[only.concurrency(1)])])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    for key in ("2", "3", "4"):
        here.feed.arrive("raw/a", key)
        here.tick(2)
    held = job_rows(here)[-1]
    assert held["state"] == "waiting_constraints"
    assert held["reason"] == "1 of 1 runs of this target are active"
    here.dagster.end("run-1")
    assert here.tick(3) == ["run-2"]
    assert here.tick(4) == []


def test_without_coalescing_each_firing_has_its_job(world: MakeWorld) -> None:
    """Seven partitions at a count of three are two jobs and one that waits."""
    here = world([schedule(trigger=on.partitions("raw/a", count=3), coalesce=False)])
    for key in range(7):
        here.feed.arrive("raw/a", str(key))
    assert here.tick(1) == ["run-1", "run-2"]
    assert sorted(states(here)) == ["launching", "launching", "waiting_trigger"]


def test_a_held_backlog_without_coalescing_runs_one_after_another(world: MakeWorld) -> None:
    """Five jobs under a limit of one start one by one."""
    here = world([schedule(coalesce=False, constraints=[only.concurrency(1)])])
    for key in range(5):
        here.feed.arrive("raw/a", str(key))
    for number in range(1, 6):
        assert here.tick(number) == [f"run-{number}"]
        here.dagster.end(f"run-{number}")
    assert here.tick(6) == []


def test_a_group_is_counted_over_schedules(world: MakeWorld) -> None:
    """Three schedules of one group with a limit of two: the third waits."""
    here = world(
        [
            schedule(f"s{n}", target=f"job{n}", constraints=[only.concurrency(2, group="g")])
            for n in range(3)
        ]
    )
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1", "run-2"]
    here.dagster.end("run-2")
    assert here.tick(2) == ["run-3"]


def test_a_delay_counts_from_the_satisfied_trigger(world: MakeWorld) -> None:
    """Ten minutes after the trigger, and not a second before."""
    here = world([schedule(constraints=[only.delay("10m")])])
    here.feed.arrive("raw/a", "1")
    assert here.tick(5) == []
    assert job_rows(here)[0]["reason"] == "10m after the trigger, at 2026-01-01 00:10:05Z"
    assert here.tick(604.9) == []
    assert here.tick(605) == ["run-1"]


def test_each_partition_has_its_run(world: MakeWorld) -> None:
    """``partitions: each`` splits a job when its trigger is satisfied."""
    here = world([schedule(partitions="each", trigger=on.partitions("raw/a", count=2))])
    for key in ("7", "8", "8"):
        here.feed.arrive("raw/a", key)
    here.tick(1)
    assert [r.partition_start for r in here.dagster.requests] == ["7", "8"]
    with here.database.read() as tx:
        rows = tx.execute(
            sa.select(jobs.c.partition_start, sa.func.count())
            .join(job_events, job_events.c.job_id == jobs.c.id)
            .group_by(jobs.c.partition_start)
            .order_by(jobs.c.partition_start)
        ).all()
    assert [tuple(row) for row in rows] == [("7", 1), ("8", 2)]


def test_a_partition_that_waits_already_is_joined(world: MakeWorld) -> None:
    """One waiting job for each partition, under a limit."""
    here = world([schedule(partitions="each", constraints=[only.concurrency(1)])])
    for key in ("1", "2", "3"):
        here.feed.arrive("raw/a", key)
    assert here.tick(1) == ["run-1"]
    here.feed.arrive("raw/a", "2")
    here.feed.arrive("raw/a", "1")
    here.tick(2)
    waiting = [row for row in job_rows(here) if row["state"] == "waiting_constraints"]
    assert sorted(row["partition_start"] for row in waiting) == ["1", "2", "3"]


def test_a_range_is_contiguous(world: MakeWorld) -> None:
    """``partitions: range`` makes a run of each contiguous range of what arrived."""
    here = world([schedule(partitions="range", trigger=on.partitions("raw/a", count=4))])
    for key in ("3", "1", "2", "9"):
        here.feed.arrive("raw/a", key)
    here.tick(1)
    here.tick(2)
    got = [(r.partition_start, r.partition_end) for r in here.dagster.requests]
    assert got == [("1", "3"), ("9", "9")]


def test_a_partition_the_target_has_not_fails_the_job_alone(world: MakeWorld) -> None:
    """The reason is on the job, and the others run."""
    here = world([schedule(partitions="each")])
    for key in ("1", "missing", "2"):
        here.feed.arrive("raw/a", key)
    assert here.tick(1) == ["run-1", "run-2"]
    failed = [row for row in job_rows(here) if row["state"] == "failed"]
    assert [row["reason"] for row in failed] == ["there is no such partition"]


def test_a_run_triggers_a_run(world: MakeWorld) -> None:
    """B after A succeeded, and not when A failed."""
    here = world([schedule(trigger=on.run("a", status="success"))])
    for run_id, status in (("a1", RunStatus.FAILURE), ("a2", RunStatus.SUCCESS)):
        here.dagster.start("a", run_id)
        here.dagster.end(run_id, status)
        here.tick(1)
    assert len(here.dagster.requests) == 1


def test_cron_ticks_once_whatever_crashes(world: MakeWorld) -> None:
    """A tick is delivered in the transaction that moves its timer."""
    here = world([schedule(trigger=on.cron("*/5 * * * *"))])
    assert here.tick(299) == []
    assert here.tick(300) == ["run-1"]
    here.engine = here.new_engine()
    assert here.tick(301) == []


@pytest.mark.parametrize(("catch_up", "expected"), [("latest", 1), ("all", 12), ("none", 0)])
def test_missed_ticks_follow_the_catch_up_rule(
    world: MakeWorld, catch_up: str, expected: int
) -> None:
    """Down from 00:00 to 01:03: 12 ticks of a five-minute cron were missed (00:05 … 01:00)."""
    here = world([schedule(trigger=on.cron("*/5 * * * *", catch_up=catch_up))])
    runs = here.tick(3780)
    assert len(runs) == (1 if expected else 0)
    with here.database.read() as tx:
        assert tx.execute(sa.select(sa.func.count()).select_from(job_events)).scalar() == expected


def test_a_job_that_waits_too_long_is_discarded(world: MakeWorld) -> None:
    """The timeout runs from the first event, in both waiting states."""
    here = world(
        [
            schedule("t", trigger=on.partitions("raw/a", count=2), timeout="1h"),
            schedule("c", constraints=[only.load(below=0.5)], timeout="1h", target="other"),
        ]
    )
    here.feed.arrive("raw/a", "1")
    here.tick(10)
    assert here.tick(3609) == []
    assert sorted(states(here)) == ["waiting_constraints", "waiting_trigger"]
    here.tick(3610)
    assert states(here) == ["discarded", "discarded"]


def test_a_timeout_can_launch_but_never_past_a_limit(world: MakeWorld) -> None:
    """``on_timeout: launch`` ignores the delay and keeps the limit."""
    here = world(
        [
            schedule(
                constraints=[only.delay("5h"), only.concurrency(1)],
                timeout="1h",
                on_timeout="launch",
            )
        ]
    )
    here.dagster.start("rollup", "manual")
    here.feed.arrive("raw/a", "1")
    here.tick(0)
    assert here.tick(3600) == []
    here.dagster.end("manual")
    assert here.tick(3601) == ["run-1"]


def test_an_update_discards_what_waits_and_keeps_the_status(world: MakeWorld) -> None:
    """Five partitions after an update means five."""
    here = world([schedule(trigger=on.partitions("raw/a", count=2))])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.schedules = [schedule(trigger=on.partitions("raw/a", count=2), description="new")]
    here.engine = here.new_engine()
    here.tick(2)
    here.feed.arrive("raw/a", "2")
    assert here.tick(3) == []
    here.feed.arrive("raw/a", "3")
    assert here.tick(4) == ["run-1"]
    with here.database.read() as tx:
        row = tx.execute(sa.select(schedules)).one()
    assert (row.version, row.status) == (2, "enabled")


def test_a_schedule_that_is_gone_takes_its_jobs_along(world: MakeWorld) -> None:
    """Deleting removes jobs in the same transaction; an active run still counts."""
    first = schedule("one", constraints=[only.concurrency(1)])
    second = schedule("two", trigger=on.partitions("raw/b"), constraints=[only.concurrency(1)])
    here = world([first, second])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.tick(2)
    here.schedules = [second]
    here.engine = here.new_engine()
    here.feed.arrive("raw/b", "1")
    assert here.tick(3) == []
    assert states(here) == ["waiting_constraints"]
    here.dagster.end("run-1")
    assert here.tick(4) == ["run-2"]


def test_jobs_are_pruned_after_their_retention(world: MakeWorld) -> None:
    """Thirty days after it ended a job is gone with its events; what waits stays."""
    here = world([schedule()])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.dagster.end("run-1")
    here.tick(2)
    day = 86_400
    here.tick(30 * day + 1)
    assert len(job_rows(here)) == 1
    here.tick(30 * day + 400)
    assert job_rows(here) == []


def test_broken_metadata_still_counts_and_its_reason_is_on_the_job(world: MakeWorld) -> None:
    """An arrival whose metadata cannot be understood is an arrival."""
    here = world([schedule()])
    problem = "metadata.bytes: got -1, expected a number of bytes"
    here.feed.events.append(
        Event(kind=EventKind.PARTITION, subject="raw/a", at=at(1), partition="1", problem=problem)
    )
    assert here.tick(1) == ["run-1"]
    with here.database.read() as tx:
        reasons = list(tx.execute(sa.select(job_history.c.reason)).scalars())
    assert f"raw/a 1: {problem}" in reasons


def test_a_schedule_that_fails_does_not_stop_the_others(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger or a constraint that raises holds its own job, which says why."""
    here = world(
        [
            schedule("bad_trigger", trigger=on.partitions("raw/a", count=7)),
            schedule("bad_constraint", constraints=[only.delay("1s")]),
            schedule("good"),
        ]
    )

    def fails_for_seven(self: Partitions, *args: Any) -> Firing:
        if self.count == 7:
            raise ZeroDivisionError("seven")
        return Firing(satisfied=True, reason="fine")

    def fails(self: Delay, *args: Any) -> Any:
        raise ZeroDivisionError("delay")

    monkeypatch.setattr(Partitions, "evaluate", fails_for_seven)
    monkeypatch.setattr(Delay, "decide", fails)
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    reasons = {row["state"]: row["reason"] for row in job_rows(here)}
    assert "ZeroDivisionError('seven')" in reasons["waiting_trigger"]
    assert "ZeroDivisionError('delay')" in reasons["waiting_constraints"]


def test_a_schedule_of_another_version_stops_only_itself(world: MakeWorld) -> None:
    """A stored spec that this version cannot read is marked, and replaced by the next deploy."""
    here = world([schedule("old"), schedule("good", target="other")])
    with here.database.begin() as tx:
        spec = tx.execute(sa.select(schedules.c.spec).where(schedules.c.name == "old")).scalar_one()
        broken = spec.replace('"partitions": {"asset"', '"from_the_future": {"asset"')
        tx.execute(sa.update(schedules).where(schedules.c.name == "old").values(spec=broken))
    here.engine = here.new_engine()
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    with here.database.read() as tx:
        found = tx.execute(sa.select(schedules.c.name, schedules.c.problem))
        rows = {row.name: row.problem for row in found}
    assert rows["good"] is None
    assert "spec.trigger" in str(rows["old"])
    here.schedules = [schedule("old", description="anew"), schedule("good", target="other")]
    here.engine = here.new_engine()
    assert here.tick(1.5) == []
    here.feed.arrive("raw/a", "2")
    here.dagster.end("run-1")
    assert sorted(here.tick(2)) == ["run-2", "run-3"]
