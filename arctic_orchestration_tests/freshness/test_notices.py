"""The notices of tasks that failed: each cause once, under the right title."""

import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.skip_list import skip
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.notifications.messages import Message
from arctic_orchestration.notifications.outbox import Notice, StoredNotice
from arctic_orchestration.state.tables import locations, notices
from arctic_orchestration_tests.freshness.imagined import NOON, Place, World, spec


def _titles(world: World, cluster: str = "east") -> list[str]:
    """The titles of the notices of a cluster, in order."""
    query = (
        sa.select(notices.c.event, notices.c.schedule, notices.c.reason)
        .join(locations, locations.c.id == notices.c.location_id)
        .where(locations.c.cluster == cluster)
        .order_by(notices.c.id)
    )
    with world.state.read() as tx:
        return [
            Message(
                notice=StoredNotice(
                    id=0, at=NOON, event=Notice(row.event), schedule=row.schedule,
                    reason=row.reason, job_id=None, tags={}, attempts=0, sent_to={},
                )
            ).title()
            for row in tx.execute(query)
        ]  # fmt: skip


def _ends(place: Place, status: RunStatus, *, started: bool = True) -> None:
    (run,) = place.waiting_runs()
    place.runs.becomes(run.run_id, status, started=started)
    place.tick()


def test_a_failure_is_reported_once_and_not_for_each_descendant(world: World) -> None:
    """Three generations below one run that failed."""
    east = world.place(
        spec("flights"), spec("delays", ["flights"]), spec("routes", ["delays"]),
        spec("report", ["routes", "flights"]),
    )  # fmt: skip
    submitted = east.submit("report", with_parents=True)
    east.tick()
    _ends(east, RunStatus.FAILURE)
    assert world.run_all() == []
    assert {world.state_of(one) for one in submitted} == {SubmissionState.FAILED}
    assert _titles(world) == ["task flights: run failed"]


def test_the_title_says_how_a_run_ended(world: World) -> None:
    """Canceled by a person, or never begun: neither has failed at work."""
    east = world.place(spec("a"), spec("b"))
    east.submit("a")
    east.tick()
    _ends(east, RunStatus.CANCELED)
    (submission,) = east.submit("b")
    for _ in range(4):
        east.tick()
        _ends(east, RunStatus.FAILURE, started=False)
        world.clock.passes(minutes=4)
    assert world.state_of(submission) is SubmissionState.FAILED
    (refused,) = east.submit("a")
    east.tick()
    east.lifecycle.refuse(refused.id, "no such partition")
    assert _titles(world) == [
        "task a: run canceled", "task b: launch failed", "task a: launch failed",
    ]  # fmt: skip


def test_a_missing_parent_is_reported_once_for_all_its_children(world: World) -> None:
    """And again when it is in the way again; another parent is another cause."""
    children = [spec(f"child{number}", ["elsewhere"]) for number in range(3)]
    east = world.place(*children, spec("other", ["elsewhere", "far"]))
    world.place(spec("elsewhere"), spec("far"), location="hills")
    names = [one.name for one in children]
    east.submit(*names)
    east.tick()
    world.clock.passes(seconds=30)
    east.submit("other")
    east.tick()
    for _ in range(17):
        world.clock.passes(minutes=2)
        east.tick()
    assert sorted(_titles(world)) == [
        "task child0: parents not fresh", "task other: parents not fresh",
    ]  # fmt: skip
    east.submit("child1")
    for _ in range(17):
        east.tick()
        world.clock.passes(minutes=2)
    assert _titles(world)[2:] == ["task child1: parents not fresh"]


def test_a_skipped_parent_is_reported_once_for_all_its_children(world: World) -> None:
    """Its own submission is none: only those that need it say so."""
    east = world.place(spec("off"), *(spec(f"child{number}", ["off"]) for number in range(3)))
    with world.state.begin() as tx:
        skip(tx, "off", "broken", by="ben", cluster="east", time=world.clock)
    east.submit(*(f"child{number}" for number in range(3)))
    world.run_all()
    assert len(_titles(world)) == 1
    assert _titles(world)[0].endswith(": parents not fresh")


def test_a_failure_elsewhere_is_reported_once_here_too(world: World) -> None:
    """Each location has people of its own; the first child here says it to them."""
    east = world.place(
        spec("delays", ["flights"]), spec("routes", ["flights"]), spec("report", ["delays"])
    )
    west = world.place(spec("flights"), cluster="west")
    east.submit("report", "routes", with_parents=True)
    east.tick()
    west.tick()
    _ends(west, RunStatus.FAILURE)
    assert world.run_all() == []
    assert _titles(world, "west") == ["task flights: run failed"]
    (title,) = _titles(world, "east")
    assert title.endswith(": parents not fresh")
