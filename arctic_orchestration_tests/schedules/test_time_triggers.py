"""Triggers that look at the time, and those that must know when others fired, in the engine."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at

HOUR = 3600


def schedule(name: str = "s", **fields: Any) -> Schedule:
    return Schedule(**{"name": name, "target": "rollup", "enabled": True, **fields})


def end_all(here: World) -> None:
    for run_id, run in list(here.dagster.runs.items()):
        if not run.status.ended:
            here.dagster.end(run_id)


def launched_at(here: World, moments: Sequence[float]) -> list[float]:
    """Ticks at these moments, each run ending before the next; those at which a run was made."""
    found = []
    for moment in moments:
        if here.tick(moment):
            found.append(moment)
        end_all(here)
    return found


def reason(here: World) -> str:
    with here.database.read() as tx:
        query = sa.select(jobs.c.reason).order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        return tx.execute(query).scalars().first() or ""


def test_data_waits_for_the_size_or_the_first_arrival_waits_long_enough(world: MakeWorld) -> None:
    """60 + 40 MB are 100 MB at once; 10 MB that arrived at 100 go at 700."""
    here = world([schedule(trigger=on.data("raw/a", "100MB", max_wait="10m"))])
    here.feed.arrive("raw/a", "1", size=60_000_000)
    assert launched_at(here, [1]) == []
    here.feed.arrive("raw/a", "2", size=40_000_000)
    assert launched_at(here, [2, 3]) == [2]
    here.feed.arrive("raw/a", "3", size=10_000_000)
    assert launched_at(here, [100, 699, 700, 701]) == [700]


def test_quiet_waits_until_nothing_more_arrives(world: MakeWorld) -> None:
    """The last arrival at 50 makes it quiet for a minute at 110."""
    here = world([schedule(trigger=on.quiet("raw/a", "1m"))])
    for moment in (10, 30, 50):
        here.feed.arrive("raw/a", str(moment))
        assert launched_at(here, [moment]) == []
    assert launched_at(here, [70, 109, 110, 111, 500]) == [110]


def test_at_least_every_four_hours_and_sooner_after_enough_bytes(world: MakeWorld) -> None:
    """Enabled at 0: due at 4 h; 100 GB at 5 h; so again at 9 h, not at 8."""
    here = world([schedule(trigger=on.elapsed("4h") | on.data("raw/a", "100GB"))])
    assert launched_at(here, [4 * HOUR - 1, 4 * HOUR]) == [4 * HOUR]
    here.feed.arrive("raw/a", "1", size=100_000_000_000)
    hours = [5 * HOUR, 8 * HOUR, 9 * HOUR - 1, 9 * HOUR]
    assert launched_at(here, hours) == [5 * HOUR, 9 * HOUR]


def test_elapsed_counts_from_the_launch_not_from_the_trigger(world: MakeWorld) -> None:
    """Due at 1 h, held by a delay until 1 h 30: the next is due at 2 h 30, and runs at 3 h."""
    here = world([schedule(trigger=on.elapsed("1h"), constraints=[only.delay("30m")])])
    moments = [h * HOUR / 4 for h in range(1, 17)]
    assert launched_at(here, moments) == [1.5 * HOUR, 3 * HOUR]


def test_elapsed_after_a_scheduler_that_was_down_fires_once(world: MakeWorld) -> None:
    """Ten hours down: one run when it is back, and the next an hour after that one."""
    here = world([schedule(trigger=on.elapsed("1h"))])
    assert launched_at(here, [10 * HOUR, 11 * HOUR - 1, 11 * HOUR]) == [10 * HOUR, 11 * HOUR]


def test_elapsed_since_an_event_restarts_with_each(world: MakeWorld) -> None:
    """A feed that was silent for an hour: after arrivals at 0:10 and 0:40 that is at 1:40."""
    here = world([schedule(trigger=on.elapsed("1h", since=on.partitions("raw/a")))])
    for moment in (600, 2400):
        here.feed.arrive("raw/a", str(moment))
        here.tick(moment)
    assert "fires 1h later, at 2026-01-01 01:40:00Z" in reason(here)
    assert launched_at(here, [HOUR, 6000 - 1, 6000, 6001]) == [6000]


def test_all_of_waits_for_each_child(world: MakeWorld) -> None:
    """Two of a and one of b, in any order."""
    here = world([schedule(trigger=on.partitions("raw/a", count=2) & on.partitions("raw/b"))])
    for asset in ("raw/a", "raw/b"):
        here.feed.arrive(asset, "1")
        assert launched_at(here, [1]) == []
    here.feed.arrive("raw/a", "2")
    assert launched_at(here, [2, 3]) == [2]


def test_all_of_gives_up_waiting_for_the_rest(world: MakeWorld) -> None:
    """b never comes; the count of a was reached at 50, so it goes at 50 + 600 without b."""
    both = [on.partitions("raw/a", count=2), on.partitions("raw/b")]
    here = world([schedule(trigger=on.all_of(*both, wait="10m"))])
    here.feed.arrive("raw/a", "1")
    here.tick(10)
    here.feed.arrive("raw/a", "2")
    here.tick(50)
    here.feed.arrive("raw/a", "3")
    here.tick(300)
    assert launched_at(here, [649, 650, 651]) == [650]


def test_all_of_within_wants_firings_that_belong_together(world: MakeWorld) -> None:
    """a at 0:00:10 and b three hours later are not together; a again ten minutes after b is."""
    both = [on.partitions("raw/a"), on.partitions("raw/b")]
    here = world([schedule(trigger=on.all_of(*both, within="1h"))])
    here.feed.arrive("raw/a", "1")
    assert launched_at(here, [10]) == []
    here.feed.arrive("raw/b", "1")
    assert launched_at(here, [3 * HOUR]) == []
    assert "another firing" in reason(here)
    here.feed.arrive("raw/a", "1")
    assert launched_at(here, [3 * HOUR + 600]) == [3 * HOUR + 600]


def test_a_restart_forgets_nothing_of_what_has_fired(world: MakeWorld) -> None:
    """When children fired is in the database: another process gives up at the same moment."""
    both = [on.partitions("raw/a"), on.partitions("raw/b")]
    here = world([schedule(trigger=on.all_of(*both, wait="10m"))])
    here.feed.arrive("raw/a", "1")
    here.tick(100)
    here.engine = here.new_engine()
    assert launched_at(here, [699, 700]) == [700]


def test_the_higher_priority_is_first_when_a_slot_is_free(world: MakeWorld) -> None:
    """Three schedules of one group: the order of their runs is that of their priority."""
    one = only.concurrency(1, group="g")
    trigger = on.partitions("raw/a")
    here = world(
        [
            schedule("low", trigger=trigger, constraints=[one], priority=-5, target="a"),
            schedule("middle", trigger=trigger, constraints=[one], target="b"),
            schedule("high", trigger=trigger, constraints=[one], priority=5, target="c"),
        ]
    )
    here.feed.arrive("raw/a", "1")
    for moment in range(1, 8):
        here.tick(moment)
        end_all(here)
    assert [r.tags["arctic/schedule"] for r in here.dagster.requests] == ["high", "middle", "low"]


def test_a_rate_counts_manual_runs_and_other_schedules(world: MakeWorld) -> None:
    """Two an hour of the target: one manually at 0, one of a schedule at 10, the third at 1 h."""
    limited = [only.rate(2, per="1h")]
    here = world(
        [
            schedule("a", trigger=on.partitions("raw/a")),
            schedule("b", trigger=on.partitions("raw/b"), constraints=limited),
        ]
    )
    here.dagster.start("rollup", "by-hand")
    here.tick(1)
    here.dagster.end("by-hand")
    here.feed.arrive("raw/a", "1")
    assert launched_at(here, [10]) == [10]
    here.feed.arrive("raw/b", "1")
    assert launched_at(here, [20, HOUR - 1, HOUR]) == [HOUR]


def test_an_interval_counts_from_the_end_of_any_run_of_the_target(world: MakeWorld) -> None:
    """A manual run that is active holds the schedule, and for five minutes after its end at 100."""
    spaced = [only.minimum_interval("5m")]
    here = world([schedule(trigger=on.partitions("raw/a"), constraints=spaced)])
    here.dagster.start("rollup", "by-hand")
    here.tick(10)
    here.feed.arrive("raw/a", "1")
    assert launched_at(here, []) == []
    here.tick(20)
    assert here.dagster.requests == []
    here.dagster.end("by-hand", ended_at=at(100))
    assert launched_at(here, [100, 399, 400]) == [400]


def test_an_end_that_a_late_tick_reads_counts_from_when_it_was(world: MakeWorld) -> None:
    """A tick that began at 5 waited for its lock and reads an end at 9: the interval ends at 19."""
    here = world(
        [schedule(trigger=on.partitions("raw/a"), constraints=[only.minimum_interval("10s")])]
    )
    here.dagster.start("rollup", "by-hand")
    here.tick(1)
    here.feed.arrive("raw/a", "1")
    here.dagster.end("by-hand", ended_at=at(9))
    assert launched_at(here, [5, 15.5, 18.9, 19]) == [19]
