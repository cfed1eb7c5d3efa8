"""What locations declare, as rows: whole, or not at all."""

import threading
from contextlib import ExitStack

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.definitions import definitions, register
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.freshness_tables import task_definitions
from arctic_orchestration_tests.freshness.imagined import Place, World, spec
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


def registered(world: World) -> dict[str, list[str]]:
    """The tasks by the cluster that has registered them."""
    found: dict[str, list[str]] = {}
    with world.state.read() as tx:
        for one in definitions(tx):
            found.setdefault(one.cluster, []).append(one.spec.name)
    return found


def test_a_cycle_across_clusters_is_reported_and_nothing_of_the_new_definition_is_registered(
    world: World,
) -> None:
    """What the location has registered before stays, until the cycle is gone."""
    world.place(spec("a", ["b"]), cluster="east")
    west = world.place(spec("b"), spec("x"), cluster="west")
    west.deployed([spec("b", ["a"]), spec("y")])
    for _ in range(2):
        result = west.tick()
        assert result.trouble == (
            "tasks: got 'b needs a needs b', expected tasks that do not need themselves"
        )
    assert registered(world) == {"east": ["a"], "west": ["b", "x"]}
    (submission,) = west.submit("b")
    assert world.run_all() == ["b"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    west.deployed([spec("b"), spec("y")])
    assert west.tick().trouble is None
    assert registered(world) == {"east": ["a"], "west": ["b", "y"]}


def test_only_what_changed_is_written(world: World) -> None:
    """A restart with the same definitions writes nothing."""
    east = world.place(spec("a"), spec("b"), spec("c"))
    east.deployed([spec("c"), spec("b"), spec("a")])
    assert east.tick().counts["registered"] == 0
    east.deployed([spec("a"), spec("b", ["a"]), spec("d")])
    counts = east.tick().counts
    assert (counts["registered"], counts["unregistered"]) == (2, 1)


def test_a_task_that_is_declared_no_more_fails_what_waits_for_it(world: World) -> None:
    """One that is to be looked at, and one whose run is requested."""
    east = world.place(spec("a"), spec("b"))
    (submission,) = east.submit("a")
    east.tick()
    (other,) = east.submit("b")
    east.runs.known.clear()
    east.deployed([spec("c")])
    east.tick()
    gone = "Dagster refuses its run: its location does not declare it any more"
    assert world.again(submission).reason == gone
    assert world.row("a").owner is None
    assert world.again(other).reason == (
        "location lake of cluster east does not declare it any more"
    )


def test_two_dagster_instances_of_one_cluster_name_do_not_make_a_task_twice(world: World) -> None:
    """The location is the first one's; the other one learns what to set, and requests nothing."""
    first = world.place(spec("report", kind="job"))
    second = Place(world, "east", "lake", [spec("report", kind="job")])
    second.storage_id = "storage of another instance"
    second.deployed([spec("report", kind="job")])
    first.submit("report")
    first.tick()
    for _ in range(3):
        with pytest.raises(ConfigurationError, match="need different names in ARCTIC_CLUSTER"):
            second.tick()
        world.clock.passes(seconds=31)
        first.tick()
    assert (len(first.runs.known), len(second.runs.known)) == (1, 0)


def test_of_two_instances_that_begin_at_once_one_is_refused(world: World) -> None:
    """Neither saw the other one before it wrote."""
    places = [Place(world, "east", "lake", [spec("report")]) for _ in range(2)]
    for number, place in enumerate(places):
        place.storage_id = f"storage {number}"
        place.deployed([spec("report")])
    together = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    refused: list[Exception] = []

    def tick(place: Place) -> None:
        together.wait()
        try:
            place.tick()
        except ConfigurationError as error:
            refused.append(error)

    threads = [threading.Thread(target=tick, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1


def test_two_locations_cannot_each_bring_half_of_a_cycle_at_once(world: World) -> None:
    """Registrations take turns: one of the two is registered, the other one is refused."""
    east = world.place(spec("x"), cluster="east")
    west = world.place(spec("y"), cluster="west")
    for number in range(5):
        first, second = f"a{number}", f"b{number}"
        east.deployed([spec(first, [second])])
        west.deployed([spec(second, [first])])
        together = threading.Barrier(2, timeout=PATIENCE_SECONDS)
        troubles: list[str | None] = []

        def tick(place: Place, together: threading.Barrier = together) -> None:
            together.wait()
            troubles.append(place.tick().trouble)  # noqa: B023

        threads = [threading.Thread(target=tick, args=(place,)) for place in (east, west)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(trouble is None for trouble in troubles) == 1


def test_a_definition_of_another_version_does_not_keep_others_from_registering(
    world: World,
) -> None:
    """It is passed over, and its task is as if nobody declared it."""
    world.place(spec("a"), cluster="west")
    with world.state.begin() as tx:
        tx.execute(sa.update(task_definitions).values(spec='{"name": "a", "novel": 1}'))
    east = world.place(spec("b"), spec("c", ["a"]), cluster="east")
    assert registered(world) == {"east": ["b", "c"]}
    (submission,) = east.submit("b")
    assert world.run_all() == ["b"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


@pytest.mark.parametrize("dies", [False, True], ids=["", "the process dies after registering"])
def test_a_batch_that_is_renamed_keeps_its_limit(world: World, *, dies: bool) -> None:
    """Two of its six tasks run at once: those that began under the former name count."""
    names = ["a", "b", "c", "d", "e", "f"]

    def batch(name: str) -> list[TaskSpec]:
        return [spec(task, batch=name, concurrency=2) for task in names]

    east = world.place(*batch("night"))
    east.submit("night")
    for _ in range(2):
        east.tick()
        world.clock.passes(seconds=11)
    if dies:
        with world.state.begin() as tx:
            register(tx, east.cluster, east.location, batch("evening"), world.clock.now)
    east.deployed(batch("evening"))
    for _ in range(2):
        east.tick()
        world.clock.passes(minutes=2)
    assert [run.request.task for run in east.waiting_runs()] == ["a", "b"]
    east.make(east.waiting_runs()[0])
    east.tick()
    assert [run.request.task for run in east.waiting_runs()] == ["b", "c"]


def test_what_waits_is_checked_when_its_definition_changes(world: World) -> None:
    """Else it would wait for ten minutes: its parent is its own location's, whose end wakes it."""
    east = world.place(spec("parent"), spec("child", ["parent"]), spec("gone", ["parent"]))
    (child,), (gone,) = east.submit("child"), east.submit("gone")
    for _ in range(2):
        east.tick()
        world.clock.passes(seconds=11)
    assert world.state_of(child) is SubmissionState.WAITING
    east.deployed([spec("parent"), spec("child")])
    east.tick()
    assert world.state_of(child) is SubmissionState.ACQUIRED
    assert world.state_of(gone) is SubmissionState.FAILED


def test_a_run_that_began_under_the_former_name_of_its_batch_frees_its_slot(world: World) -> None:
    """At once: the next check would be a day later."""

    def batch(name: str) -> list[TaskSpec]:
        return [spec(task, batch=name, concurrency=1, recheck="1d") for task in ("a", "b")]

    east = world.place(*batch("night"))
    east.submit("night")
    east.tick()
    with ExitStack() as stack:
        (run,) = east.waiting_runs()
        running = east.begin(run, stack)
        east.deployed(batch("evening"))
        for _ in range(2):
            east.tick()
            world.clock.passes(seconds=11)
        running.publish()
    east.tick()
    assert [run.request.task for run in east.waiting_runs()] == ["b"]
