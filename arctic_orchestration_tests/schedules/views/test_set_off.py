"""What an event set off, who holds what, and what was decided, on both databases."""

import pytest
import sqlalchemy as sa
from pydantic_core import to_json

from arctic_orchestration.errors import NotFound
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views.decisions import decisions
from arctic_orchestration.schedules.views.event_effects import Span
from arctic_orchestration.schedules.views.holders import holders_by_resource, waiting_by_resource
from arctic_orchestration.schedules.views.set_off import newest_events, set_off
from arctic_orchestration.state.tables import events, jobs
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at
from arctic_orchestration_tests.statements import statements_of

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


def made_by_runs(here: World, of_each: int) -> list[str]:
    """Gives each job a run that made events; one more has a run in its metadata. Returns runs."""
    with here.database.begin() as tx:
        place = location_by_name(tx, "default", None)
        ids = tx.execute(sa.select(jobs.c.id).order_by(jobs.c.id)).scalars().all()
        tx.execute(sa.update(jobs).values(run_id=sa.literal("run-", sa.Text) + jobs.c.id))
        runs = [f"run-{id}" for id in ids]
        made = [
            Event(kind=EventKind.PARTITION, subject="out/x", at=at(2), run_id=run)
            for run in runs
            for _ in range(of_each)
        ]
        odd = {"run_id": runs[0], "text": "\0", "number": float("nan")}
        made.append(Event(kind=EventKind.PARTITION, subject="out/x", at=at(2), metadata=odd))
        rows = [
            {
                "location_id": place.id, "number": 10_000 + number, "kind": event.kind,
                "subject": event.subject, "at": event.at, "taken_at": at(2),
                "details": to_json(event.to_json()).decode(),
            }
            for number, event in enumerate(made)
        ]  # fmt: skip
        tx.execute(sa.insert(events), rows)
    return runs


@pytest.mark.parametrize(("of_each", "shown", "complete"), [(0, 0, 100), (2, 99, 0)])
def test_many_jobs_of_an_event_cost_as_few_statements_as_one(
    world: MakeWorld, of_each: int, shown: int, complete: int
) -> None:
    """Runs of a hundred jobs are looked at, and a hundred events shown; the other jobs say so."""
    many = [
        Schedule(name=f"s{n:03}", target=f"t{n}", trigger=on.partitions("raw/a"), enabled=True)
        for n in range(130)
    ]
    here = world(many)
    here.feed.arrive("raw/a", "monday")
    here.tick(1)
    runs = made_by_runs(here, of_each)
    with here.database.read() as tx:
        place = location_by_name(tx, "default", None)
        (first,) = newest_events(tx, Span(subject="raw/a").conditions)
        with statements_of(tx) as executed:
            found = set_off(tx, place, first.number)
    assert len(executed) <= 5, executed
    assert [job.effect.run_id for job in found.jobs] == runs
    made = [event.event.run_id for job in found.jobs for event in job.events]
    assert made == [run for run in runs for _ in range(of_each)][:shown]
    assert [job.more for job in found.jobs] == [False] * complete + [True] * (130 - complete)


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
