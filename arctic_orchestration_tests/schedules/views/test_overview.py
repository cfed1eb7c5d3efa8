"""What a location's scheduler holds, in numbers."""

from arctic_orchestration import on
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.views.overview import overview
from arctic_orchestration_tests.schedules.lake_of_partitions import DAY, MakeWorld, daily, lake

__all__ = ["lake"]


def test_an_event_counts_once_whatever_takes_it(lake: MakeWorld) -> None:
    """Two parts of the trigger take each of two arrivals, and two days share a run."""
    trigger = on.partitions("raw/payments") | on.quiet("raw/payments", "1h")
    here = lake(daily(trigger=trigger, partitions="range"))
    for day in ("2026-01-01", "2026-01-02"):
        here.feed.arrive("raw/payments", day)
    here.tick(3 * DAY)
    with here.database.read() as tx:
        found = overview(tx, here.engine.cluster, here.engine.location)
    (schedule,) = found.schedules
    assert (found.events, schedule.events) == (2, 2)
    assert sum(schedule.jobs.values()) == 2
    assert schedule.jobs[JobState.DISCARDED] == 1
