"""The places of a batch: so many of its tasks run at once, in all clusters together."""

import threading

from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration_tests.freshness.imagined import Place, World, spec
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


def test_tasks_of_a_batch_wait_for_a_place(world: World) -> None:
    """Two of three run at once; the third waits without holding anything."""
    east = world.place(*(spec(name, batch="night", concurrency=2) for name in ("a", "b", "c")))
    east.submit("a", "b", "c")
    assert [request.task for request in east.tick().requests] == ["a", "b"]
    (third,) = [one for one in _live(world) if one.task == "c"]
    assert third.reason == "2 tasks of batch night run, and 2 may"
    assert world.row("c").owner is None
    east.make(east.waiting_runs()[0])
    east.tick()
    assert [run.request.task for run in east.waiting_runs()] == ["b", "c"]


def test_the_places_of_a_batch_are_those_of_all_clusters(world: World) -> None:
    """The other cluster waits, and is woken when the place is free."""
    night = [spec(name, batch="night", concurrency=1) for name in ("a", "b")]
    east, west = (world.place(*night, cluster=name) for name in ("east", "west"))
    east.submit("a")
    (second,) = west.submit("b")
    east.tick()
    west.tick()
    assert world.again(second).reason == "1 tasks of batch night run, and 1 may"
    world.clock.passes(seconds=11)
    assert world.run_all() == ["a", "b"]


def test_the_places_of_a_cluster_that_is_gone_are_free_in_the_end(world: World) -> None:
    """Five minutes after its leases are over; until then it may only have been started again."""
    night = [spec(name, batch="night", concurrency=1) for name in ("a", "b")]
    east, west = (world.place(*night, cluster=name) for name in ("east", "west"))
    (first,) = east.submit("a")
    (second,) = west.submit("b")
    east.tick()
    # Its lease is over after a minute; west looks at 0 and 1, and every two minutes from then.
    for minutes in range(8):
        west.tick()
        state = world.state_of(second)
        waits = minutes < 7
        assert state is (SubmissionState.WAITING if waits else SubmissionState.ACQUIRED), minutes
        world.clock.passes(minutes=1)
    assert world.state_of(first) is SubmissionState.ACQUIRED


def test_the_last_place_of_a_batch_is_given_once(world: World) -> None:
    """Both clusters look at the same moment; and again for each of some batches."""
    night = [
        spec(f"{name}{number}", batch=f"night{number}", concurrency=1)
        for name in ("a", "b")
        for number in range(5)
    ]
    places = {
        one: world.place(*night, cluster=name) for one, name in (("a", "east"), ("b", "west"))
    }
    for number in range(5):
        for one, place in places.items():
            place.submit(f"{one}{number}")
    together = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def tick(place: Place) -> None:
        together.wait()
        place.tick()

    threads = [threading.Thread(target=tick, args=(place,)) for place in places.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(5):
        owners = [world.row(f"{one}{number}").owner for one in places]
        assert sum(owner is not None for owner in owners) == 1


def _live(world: World) -> list:  # type: ignore[type-arg]
    from arctic_orchestration.freshness.submissions import live_of

    with world.state.read() as tx:
        return [one for found in live_of(tx, ["a", "b", "c"]).values() for one in found]
