"""What an event set off, who holds what, and what was decided, on both databases."""

from collections.abc import Callable, Sequence

import pytest

from arctic_orchestration.errors import NotFound
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views.decisions import decisions
from arctic_orchestration.schedules.views.event_effects import Span
from arctic_orchestration.schedules.views.holders import holders_by_resource, waiting_by_resource
from arctic_orchestration.schedules.views.set_off import newest_events, set_off
from arctic_orchestration_tests.schedules.simulated import World

MakeWorld = Callable[[Sequence[Schedule]], World]
SPARK = [only.concurrency(1, group="spark")]


def chain() -> list[Schedule]:
    """An arrival sets off a run, whose success sets off another one; and one that waits."""
    return [
        Schedule(name="load", target="load", trigger=on.partitions("raw/a"), enabled=True),
        Schedule(name="sums", target="sums", trigger=on.run("load"), enabled=True),
        Schedule(name="pair", target="pair", trigger=on.partitions("raw/a", count=2), enabled=True),
    ]


def test_an_event_shows_everything_that_it_set_off(world: MakeWorld) -> None:
    """Two jobs took it; the run of one made an event that the next job took; others stay out."""
    here = world(chain())
    here.feed.arrive("raw/other", "1")
    here.feed.arrive("raw/a", "monday")
    (run,) = here.tick(1)
    here.dagster.end(run)
    here.tick(2)
    here.tick(3)
    with here.database.read() as tx:
        place = location_by_name(tx, "default", None)
        listed = newest_events(tx, [])
        found = set_off(tx, place, listed[-1].number)
        with pytest.raises(NotFound, match="no event 99"):
            set_off(tx, place, 99)
    assert [one.event.subject for one in listed] == ["load", "raw/a"]
    jobs = {one.effect.schedule: one for one in found.jobs}
    assert set(jobs) == {"load", "pair"}
    assert (jobs["load"].effect.state, jobs["load"].effect.run_id) == ("succeeded", run)
    assert jobs["pair"].events == []
    (ended,) = jobs["load"].events
    assert (ended.event.subject, ended.event.run_id) == ("load", run)
    assert [one.effect.schedule for one in ended.jobs] == ["sums"]


def test_events_are_filtered_and_follow_each_other(world: MakeWorld) -> None:
    """Newest first; by the cursor each comes once."""
    here = world([chain()[2]])
    for number in range(5):
        here.feed.arrive("raw/a", f"p{number}")
    here.tick(1)
    with here.database.read() as tx:
        read, after = [], None
        while page := newest_events(tx, [], after=after, limit=2):
            after = page[-1].place
            read += [one.event.partition for one in page]
        only_one = newest_events(tx, Span(subject="raw/a", partition="p3").conditions)
        none = newest_events(tx, Span(subject="raw/b").conditions)
    assert read == ["p4", "p3", "p2", "p1", "p0"]
    assert [one.event.partition for one in only_one] == ["p3"]
    assert none == []


def test_who_holds_a_group_and_how_many_wait_for_it(world: MakeWorld) -> None:
    """Its first job holds it, and the resource of its target; two others wait."""
    here = world(
        [
            Schedule(
                name=name, target=name, trigger=on.partitions("raw/a"), constraints=SPARK,
                enabled=True,
            )
            for name in ("x", "y", "z")
        ]
    )  # fmt: skip
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    with here.database.read() as tx:
        held = holders_by_resource(tx, 10)
        waiting = waiting_by_resource(tx)
    assert [one.schedule for one in held["group:spark"]] == ["x"]
    assert waiting == {"group:spark": 2}


def test_decisions_are_those_of_one_schedule_newest_first(world: MakeWorld) -> None:
    here = world(chain())
    for number in range(3):
        here.feed.arrive("raw/a", f"p{number}")
        for run in here.tick(2 * number + 1):
            here.dagster.end(run)
        here.tick(2 * number + 2)
    with here.database.read() as tx:
        place = location_by_name(tx, "default", None)
        found = decisions(tx, place, "load", 100)
        assert len(decisions(tx, place, "load", 4)) == 4
        assert decisions(tx, place, "nothing", 4) == []
    assert [row.state for row in found][:2] == ["succeeded", "launched"]
    assert len({row.job for row in found}) == 3
    assert [row.at for row in found] == sorted((row.at for row in found), reverse=True)
