"""Code locations that were renamed, or are gone: who is asked instead, and how they end."""

import pytest

from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.freshness import definitions
from arctic_orchestration.freshness.location_removal import forget
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.audit import Actor
from arctic_orchestration_tests.freshness.imagined import World, spec

ANN = Actor(name="ann", cluster="west")


def test_a_location_that_was_not_seen_for_a_day_is_not_chosen(world: World) -> None:
    """It was renamed; until then nobody knows, and the message has both names."""
    old = world.place(spec("flights"), location="old")
    world.places.remove(old)
    world.clock.passes(hours=23)
    new = world.place(spec("flights"), location="new")
    both = "got None, expected .* new of cluster east, old of cluster east"
    with pytest.raises(InvalidInput, match=both):
        new.submit("flights")
    world.clock.passes(hours=2)
    new.tick()
    (submission,) = new.submit("flights")
    assert submission.location == "new"
    assert world.run_all() == ["flights"]
    # Whoever names it gets it, as it may come back.
    (named,) = new.submit("flights", location="old")
    assert named.location == "old"


def test_a_location_of_another_cluster_is_chosen_if_the_own_one_is_gone(
    world: World,
) -> None:
    """And the own one, while it is there."""
    east = world.place(spec("flights"), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("flights")
    assert submission.cluster == "east"
    world.clock.passes(hours=25)
    west.tick()
    (submission,) = east.submit("flights")
    assert submission.cluster == "west"


def test_a_parent_of_the_batch_is_submitted_where_a_sensor_was_seen_lately(world: World) -> None:
    """Its first place by name is gone."""
    gone = world.place(spec("flights", batch="night"), cluster="west", location="a")
    world.places.remove(gone)
    world.clock.passes(hours=25)
    east = world.place(spec("delays", ["flights"], batch="night"), cluster="east")
    world.place(spec("flights", batch="night"), cluster="west", location="b")
    east.submit("delays")
    assert world.run_all() == ["flights", "delays"]


def test_the_location_of_the_same_name_in_another_cluster_is_not_forgotten(world: World) -> None:
    """Neither its tasks nor what was submitted there; nor the location beside the gone one."""
    gone = world.place(spec("flights"), cluster="west")
    kept = [
        world.place(spec("delays"), cluster="east"),
        world.place(spec("weather"), cluster="west", location="other"),
    ]
    gone.submit("flights")
    submitted = [*kept[0].submit("delays"), *kept[1].submit("weather")]
    world.clock.passes(minutes=3)
    done = forget(world.state, "lake", cluster="west", by=ANN, time=world.clock)
    assert (done.tasks, done.submissions) == (1, 1)
    assert {world.state_of(one) for one in submitted} == {SubmissionState.SUBMITTED}
    with world.state.read() as tx:
        known = [one.spec.name for one in definitions.definitions(tx)]
    assert known == ["delays", "weather"]


def test_a_location_is_forgotten_with_all_that_waits_for_its_ticks(world: World) -> None:
    """Its tasks can be acquired by others, and who waits for them learns it at once."""
    old = world.place(spec("flights"), spec("fleet"), cluster="west", location="old")
    east = world.place(spec("delays", ["flights"]), cluster="east")
    child, _ = east.submit("delays", with_parents=True)
    old.tick()
    east.tick()
    (late,) = old.submit("fleet")
    assert world.row("flights").owner is not None
    with pytest.raises(InvalidInput, match="expected one whose sensor arctic_tasks does not tick"):
        forget(world.state, "old", cluster="west", by=ANN, time=world.clock)
    assert world.row("flights").owner is not None

    world.clock.passes(minutes=2, seconds=1)
    done = forget(world.state, "old", cluster="west", by=ANN, time=world.clock)
    assert (done.tasks, done.submissions) == (2, 2)
    ended = world.again(late)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == "location old of cluster west was forgotten by ann"
    assert world.row("flights").owner is None
    east.tick()
    assert "flights, which does not exist yet" in world.again(child).reason
    with world.state.read() as tx:
        assert [one.location for one in definitions.locations(tx)] == ["lake"]
    with pytest.raises(NotFound, match="old of cluster west has no tasks; there is lake of clus"):
        forget(world.state, "old", cluster="west", by=ANN, time=world.clock)


def test_who_shared_a_run_of_a_location_that_is_forgotten_makes_the_task_instead(
    world: World,
) -> None:
    """It was renamed, and its successor has waited for what the old one had begun."""
    old = world.place(spec("flights"), location="old")
    new = world.place(spec("flights"), location="new")
    (first,) = old.submit("flights", location="old")
    old.tick()
    (second,) = new.submit("flights", location="new")
    new.tick()
    assert world.state_of(second) is SubmissionState.SHARING
    world.places.remove(old)
    world.clock.passes(minutes=2, seconds=1)
    forget(world.state, "old", cluster="east", by=ANN, time=world.clock)
    assert world.again(first).reason == "location old of cluster east was forgotten by ann"
    assert world.run_all() == ["flights"]
    assert world.state_of(second) is SubmissionState.SUCCEEDED


def test_a_forgotten_location_that_goes_on_is_there_again(world: World) -> None:
    """Also with another Dagster storage than before."""
    east = world.place(spec("flights"))
    world.clock.passes(minutes=2, seconds=1)
    forget(world.state, "lake", cluster="east", by=ANN, time=world.clock)
    east.storage_id = "a new one"
    east.deployed([spec("flights")])
    east.tick()
    east.submit("flights")
    assert world.run_all() == ["flights"]
