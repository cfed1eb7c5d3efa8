"""A slot of a batch that becomes free: who is woken for it, and that it is never left unused."""

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness import slots
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.skip_list import skip
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import is_live, task_submissions, task_waits, tasks
from arctic_orchestration_tests.freshness.imagined import Place, World, spec
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


def _night(name: str, parents: Any = (), *, concurrency: int = 1, **fields: Any) -> TaskSpec:
    """A task of one batch that is never rechecked in a test, once it waits for longer."""
    how: dict[str, Any] = {"batch": "night", "concurrency": concurrency, "recheck": "1d", **fields}
    return spec(name, parents, **how)


def _waiting(world: World, *places: Place) -> None:
    """All that wait are checked once more: they have just begun to."""
    for _ in range(2):
        for place in places:
            place.tick()
        world.clock.passes(seconds=11)


def _forget_success(world: World, task: str) -> None:
    with world.state.begin() as tx:
        tx.execute(sa.delete(tasks).where(tasks.c.task == task))


def _began(place: Place) -> list[str]:
    return [run.request.task for run in place.waiting_runs()]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_end_makes_as_many_due_as_can_get_a_slot(world: World, concurrency: int) -> None:
    """Oldest first, and none of the others is checked."""
    names = [f"t{number:02}" for number in range(20)]
    east = world.place(*(_night(name, concurrency=concurrency) for name in names))
    east.submit("night")
    _waiting(world, east)
    for ended in range(concurrency, 20, concurrency):
        assert east.make_all() == names[ended - concurrency : ended]
        counts = east.tick().counts
        assert counts["acquired"] == min(concurrency, 20 - ended)
        assert counts["waits_for_place"] == 0


def test_a_location_that_does_not_tick_keeps_no_other_one_waiting(world: World) -> None:
    """Its submission is the oldest, and was woken first."""
    west = world.place(_night("a"), cluster="west")
    east = world.place(_night("first"), _night("b"))
    east.submit("first")
    east.tick()
    west.submit("a")
    east.submit("b")
    _waiting(world, west, east)
    east.make_all()
    east.tick()
    assert _began(east) == ["b"]


def _parent_is_stale(world: World, east: Place, first: Submission) -> None:
    _forget_success(world, "parent")


def _is_skipped(world: World, east: Place, first: Submission) -> None:
    with world.state.begin() as tx:
        skip(tx, "a", "broken", by="ann", cluster="east", time=world.clock)


def _is_made_elsewhere(world: World, east: Place, first: Submission) -> None:
    other = world.place(spec("a"), location="other")
    other.submit("a", location="other")
    other.tick()


def _cannot_be_checked(world: World, east: Place, first: Submission) -> None:
    def fails(assets: Sequence[str]) -> Mapping[str, datetime]:
        raise ValueError(assets)

    east.assets.materialized_at = fails  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "meanwhile", [_parent_is_stale, _is_skipped, _is_made_elsewhere, _cannot_be_checked]
)
def test_who_cannot_begin_passes_the_slot_on(world: World, meanwhile: Any) -> None:
    """Without time passing: the recheck is a day away."""
    east = world.place(
        _night("before"), _night("a", ["parent", "plain"]), _night("b"),
    )  # fmt: skip
    world.place(spec("parent"), location="parents")
    east.assets.made["plain"] = world.clock.now
    world.made("parent")
    east.submit("before")
    east.tick()
    (first,), _ = east.submit("a"), east.submit("b")
    _waiting(world, east)
    assert world.again(first).reason == "1 tasks of batch night run, and 1 may"
    meanwhile(world, east, first)
    assert east.make_all()[0] == "before"
    east.tick()
    assert _began(east) == ["b"]


def test_who_waits_for_a_slot_learns_of_a_success_of_its_task_at_once(world: World) -> None:
    """The last in line, while another one gets the slot."""
    night = [_night(name) for name in ("before", "a", "b")]
    east, west = (world.place(*night, cluster=name) for name in ("east", "west"))
    west.submit("before")
    west.tick()
    east.submit("b")
    (last,) = east.submit("a")
    west.submit("a")
    _waiting(world, east)
    west.make_all()
    west.tick()
    assert west.make_all() == ["a"]
    east.tick()
    assert _began(east) == ["b"]
    assert world.state_of(last) is SubmissionState.FRESH


def test_a_slot_is_used_by_whoever_may_use_it(world: World) -> None:
    """The older submission may run only alone."""
    east = world.place(
        _night("one", concurrency=2), _night("two", concurrency=2), _night("alone"),
        _night("more", concurrency=2),
    )  # fmt: skip
    east.submit("one", "two")
    east.tick()
    east.submit("alone")
    east.submit("more")
    _waiting(world, east)
    east.make(east.waiting_runs()[0])
    assert east.tick().counts["waits_for_place"] == 0
    assert _began(east) == ["two", "more"]


def test_a_wait_of_an_earlier_version_is_woken(world: World) -> None:
    """It has no number of slots."""
    east = world.place(_night("a"), _night("b"))
    east.submit("a", "b")
    _waiting(world, east)
    with world.state.begin() as tx:
        tx.execute(sa.update(task_waits).values(slots=None))
    east.make_all()
    east.tick()
    assert _began(east) == ["b"]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_check_counts_by_the_index_of_the_batch(state: Database) -> None:
    """Not by all live submissions of all clusters; Postgres scans a small table in any case."""
    with state.begin() as tx:
        plans = []

        def explain(_: Any, cursor: Any, statement: str, values: Any, *__: Any) -> None:
            plans.append(cursor.execute(f"explain query plan {statement}", values).fetchall())

        sa.event.listen(tx, "before_cursor_execute", explain)
        slots.running(tx, "night", datetime.now().astimezone(), besides="flights")
    assert "ix_arctic_task_submissions_batch (batch=? AND state=?)" in str(plans[-1])


@pytest.mark.parametrize("seed", range(4))
def test_no_slot_is_free_while_a_task_could_use_it(world: World, seed: int) -> None:
    """Whatever happens, in any order, with a location that stops to tick."""
    chance = random.Random(seed)
    numbers = (1, 2, 2, 3) if seed % 2 else (2,)
    names = [f"{cluster}{number}" for cluster in ("east", "west") for number in range(6)]
    world.place(spec("parent"), cluster="north")
    for cluster in ("east", "west"):
        declared = [
            _night(name, ["parent"] if number % 3 == 0 else (),
                   concurrency=chance.choice(numbers), retries=1, retry_delay="5s")
            for number, name in enumerate(names) if name.startswith(cluster)
        ]  # fmt: skip
        world.place(*declared, cluster=cluster)
    places = list(world.places)
    for _ in range(60):
        event = chance.choice(["submit", "submit", "make", "make", "fail", "stale", "made", "away"])
        runs = [(place, run) for place in world.places for run in place.waiting_runs()]
        if event == "submit":
            name = chance.choice(names)
            place = next(one for one in world.places if one.cluster == name[:4])
            place.submit(name, location="lake", force=chance.random() < 0.7)
        elif event in ("make", "fail") and runs:
            place, run = chance.choice(runs)
            if event == "make":
                place.make(run)
            else:
                with ExitStack() as stack:
                    place.begin(run, stack)
                place.runs.becomes(run.run_id, RunStatus.FAILURE)
        elif event == "stale":
            _forget_success(world, "parent")
        elif event == "made":
            world.made("parent")
        elif event == "away":
            places = chance.choice([world.places, world.places[:2], world.places[::2]])
        world.clock.passes(seconds=chance.choice([0, 0, 1, 12]))
        _tick_until_still(world, places)
        _check_slots(world, places)


def _tick_until_still(world: World, places: Sequence[Place]) -> None:
    here = task_submissions.c
    due = sa.select(here.id).where(
        is_live, here.next_check_at <= world.clock.now,
        here.state.in_(["submitted", "waiting", "sharing", "retrying"]),
        here.cluster.in_([place.cluster for place in places]),
    )  # fmt: skip
    for _ in range(10):
        for place in places:
            place.tick()
        with world.state.read() as tx:
            if tx.execute(due).first() is None:
                return
    raise AssertionError("some are due again and again")


def _check_slots(world: World, places: Sequence[Place]) -> None:
    here = {(place.cluster, place.location) for place in places}
    with world.state.read() as tx:
        rows = tx.execute(
            sa.select(task_submissions, task_waits.c.slots)
            .join(task_waits, task_waits.c.submission == task_submissions.c.id)
            .where(task_waits.c.kind == "batch")
        ).mappings()
        for row in rows:
            submission = Submission.from_row(row)
            assert submission.state is SubmissionState.WAITING
            if (submission.cluster, submission.location) in here:
                taken = slots.running(tx, "night", world.clock.now)
                assert taken >= row["slots"], (submission.task, submission.reason)


def test_no_end_is_missed_by_clusters_that_tick_at_once(world: World) -> None:
    """The clock stands: a slot for which no submission was woken would stay free."""
    places = []
    for cluster in ("east", "west"):
        names = [f"{cluster}{number:02}" for number in range(15)]
        places.append(world.place(*(_night(name, concurrency=2) for name in names),
                                  cluster=cluster))  # fmt: skip
        places[-1].submit(*names)
    _waiting(world, *places)
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    made: list[str] = []

    def work(place: Place) -> None:
        while len(made) < 30 and time.monotonic() < give_up_at:
            made.extend(place.make_all())
            place.tick()

    with ThreadPoolExecutor(len(places)) as threads:
        list(threads.map(work, places))
    assert len(made) == 30
