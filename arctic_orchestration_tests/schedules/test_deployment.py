"""Deployment in both modes, and who owns a schedule."""

import sqlalchemy as sa

from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_history import history_of
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import notices, schedules
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at, schedule


def deploy(here: World, seconds: float, *declared: Schedule, update: bool = True) -> None:
    """A new code server with other definitions has its first tick."""
    here.schedules = declared
    here.engine = here.new_engine()
    here.engine.update_schedules = update
    here.tick(seconds)


def stored(here: World) -> dict[str, tuple[str, int, str]]:
    """Description, version and origin of each schedule."""
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        found = here.engine.store.in_location(tx, location.id)
        return {s.name: (s.schedule.description, s.version, s.origin.value) for s in found}


def set_manually(here: World, seconds: float, made: Schedule) -> None:
    """A person makes a schedule, or changes it, over the command."""
    store = here.engine.store
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        old = {s.name: s for s in store.in_location(tx, location.id)}.get(made.name)
        if old is None:
            store.add(tx, location, [made], Origin.API, at(seconds), reason="by hand")
        else:
            store.replace_all(tx, location, [(old, made)], at(seconds), reason="by hand")


def test_true_creates_updates_and_deletes_what_differs(world: MakeWorld) -> None:
    """What is the same keeps its version: it was left alone."""
    here = world([schedule("same"), schedule("changed"), schedule("gone")])
    deploy(here, 1, schedule("same"), schedule("changed", description="new"), schedule("added"))
    assert stored(here) == {
        "same": ("", 1, "code"),
        "changed": ("new", 2, "code"),
        "added": ("", 1, "code"),
    }


def test_a_property_that_becomes_true_where_it_was_one_is_a_change(world: MakeWorld) -> None:
    """Python takes 1 and True for equal; what a run is given is not."""
    here = world([schedule("s", properties={"full": 1})])
    deploy(here, 1, schedule("s", properties={"full": True}))
    assert stored(here)["s"][1] == 2


def test_false_changes_nothing(world: MakeWorld) -> None:
    """Neither what was removed from the code, nor what was changed, nor what was added."""
    here = world([schedule("same"), schedule("changed"), schedule("removed")])
    deploy(
        here,
        1,
        schedule("same"),
        schedule("changed", description="new"),
        schedule("added"),
        update=False,
    )
    assert stored(here) == {
        "same": ("", 1, "code"),
        "changed": ("", 1, "code"),
        "removed": ("", 1, "code"),
    }


def test_false_deletes_schedules_whose_target_is_gone(world: MakeWorld) -> None:
    """Those of the code alone; also when what is declared did not change."""
    here = world([schedule("kept"), schedule("lost", target="gone")])
    set_manually(here, 1, schedule("made", target="gone"))
    deploy(here, 2, schedule("kept"), schedule("lost", target="gone"), update=False)
    assert stored(here) == {"kept": ("", 1, "code"), "made": ("", 1, "api")}


def test_what_a_person_made_belongs_to_no_deployment(world: MakeWorld) -> None:
    """It is neither deleted for not being declared, nor changed by one of its name."""
    here = world([schedule("declared")])
    set_manually(here, 1, schedule("made", description="by hand"))
    deploy(here, 2, schedule("made", description="declared"))
    assert stored(here) == {"made": ("by hand", 1, "api")}


def test_a_declaration_that_is_left_out_for_a_manual_one_is_named(world: MakeWorld) -> None:
    """Once a deployment. When that was deleted, the next one creates what is declared."""
    here = world([])
    set_manually(here, 1, schedule("made", description="by hand"))
    here.schedules = [schedule("made", description="declared"), schedule("other")]
    here.engine = here.new_engine()
    assert list(here.engine.tick(at(2)).remarks) == [
        "schedule made: it was created manually, and stays as it is: what the code declares under "
        "the name is left out"
    ]
    assert list(here.engine.tick(at(3)).remarks) == []
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        control.delete(tx, here.engine.store, location, "made", at(4))
    deploy(here, 5, schedule("made", description="declared"))
    assert stored(here) == {"made": ("declared", 1, "code")}


def test_a_manual_change_is_set_back_by_true_and_kept_by_false(world: MakeWorld) -> None:
    """It is the next deployment that sets it back, not the next tick."""
    here = world([schedule("s")])
    set_manually(here, 1, schedule("s", description="by hand"))
    here.tick(2)
    assert stored(here)["s"] == ("by hand", 2, "code")
    deploy(here, 3, schedule("s", description="declared"), update=False)
    assert stored(here)["s"] == ("by hand", 2, "code")
    deploy(here, 4, schedule("s", description="declared"), update=True)
    assert stored(here)["s"] == ("declared", 3, "code")


def test_a_restart_with_the_same_definitions_is_no_deployment(world: MakeWorld) -> None:
    """What a person changed stays when the code server is started again."""
    here = world([schedule("s")])
    set_manually(here, 1, schedule("s", description="by hand"))
    deploy(here, 2, schedule("s"))
    assert stored(here)["s"] == ("by hand", 2, "code")


def test_two_code_servers_of_one_location_do_not_undo_each_other(world: MakeWorld) -> None:
    """While a new version is rolled out the old one ticks on: the newer deployment stays."""
    here = world([schedule("s", description="old")])
    old = here.engine
    deploy(here, 1, schedule("s", description="new"))
    old.tick(at(2))
    here.tick(3)
    assert stored(here)["s"] == ("new", 2, "code")


def test_each_deployment_is_history(world: MakeWorld) -> None:
    """Also that of a schedule which is gone."""
    here = world([schedule("s")])
    deploy(here, 1, schedule("s", description="new"))
    deploy(here, 2)
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        history = history_of(tx, location, "s")
        assert tx.execute(sa.select(schedules.c.name)).all() == []
    assert [(row["action"], row["version"], row["reason"]) for row in history] == [
        ("created", 1, "deployed"),
        ("updated", 2, "deployed"),
        ("deleted", 2, "no longer declared"),
    ]


def lines(here: World, name: str) -> list[tuple[str, str]]:
    """Action and reason of each line of a schedule's history."""
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        return [(row["action"], row["reason"]) for row in history_of(tx, location, name)]


def test_what_a_deployment_discards_is_reported_with_counts(world: MakeWorld) -> None:
    """Three of five partitions, and one of two, were there: log, history and a notice say so."""
    five, two = on.partitions("raw/a", count=5), on.partitions("raw/a", count=2)
    updated = schedule("updated", trigger=five, tags={"team": "ops"})
    here = world([updated, schedule("gone", trigger=two), schedule("same", trigger=five)])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    here.schedules = [
        updated.model_copy(update={"description": "new"}),
        schedule("same", trigger=five),
    ]
    here.feed.arrive("raw/a", "1")
    here.feed.arrive("raw/a", "2")
    here.tick(2)
    # Two different partitions fired "gone"; another one arrives for it.
    here.feed.arrive("raw/a", "3")
    here.tick(3)
    here.engine = here.new_engine()
    result = here.engine.tick(at(4))
    assert list(result.remarks) == [
        "schedule gone: the code location was deployed: 1 waiting job with 1 event was discarded",
        "schedule updated: the code location was deployed: "
        "1 waiting job with 4 events was discarded",
    ]
    assert lines(here, "updated")[-1] == (
        "updated",
        "deployed; 1 waiting job with 4 events was discarded",
    )
    assert lines(here, "gone")[-1] == (
        "deleted",
        "no longer declared; 1 waiting job with 1 event was discarded",
    )
    with here.database.read() as tx:
        columns = (notices.c.event, notices.c.schedule, notices.c.reason, notices.c.tags)
        written = tx.execute(sa.select(*columns).order_by(notices.c.schedule)).all()
    assert [tuple(row) for row in written] == [
        (
            "job_discarded",
            "gone",
            "the code location was deployed: 1 waiting job with 1 event was discarded",
            "{}",
        ),
        (
            "job_discarded",
            "updated",
            "the code location was deployed: 1 waiting job with 4 events was discarded",
            '{"team": "ops"}',
        ),
    ]
    assert list(here.engine.tick(at(5)).remarks) == []


def test_a_deployment_that_discards_nothing_says_nothing(world: MakeWorld) -> None:
    """No notice, and no remark."""
    here = world([schedule("s")])
    here.schedules = [schedule("s", description="new")]
    here.engine = here.new_engine()
    assert list(here.engine.tick(at(1)).remarks) == []
    with here.database.read() as tx:
        assert tx.execute(sa.select(notices.c.id)).all() == []
    assert lines(here, "s")[-1] == ("updated", "deployed")


def test_a_manual_change_reports_what_it_discards(world: MakeWorld) -> None:
    """An update, a suspension that drops, and a deletion."""
    made = [schedule(name, trigger=on.partitions("raw/a", count=5)) for name in ("a", "b", "c")]
    here = world(made)
    here.feed.arrive("raw/a", "1")
    here.feed.arrive("raw/a", "2")
    here.tick(1)
    store = here.engine.store
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        changed = made[0].model_copy(update={"description": "new"})
        control.update(tx, store, location, changed, at(2))
        control.suspend(tx, store, location, "b", at(2))
        control.delete(tx, store, location, "c", at(2))
    for name in ("a", "b", "c"):
        assert lines(here, name)[-1][1] == "manually; 1 waiting job with 2 events was discarded"


def test_admitted_jobs_that_no_tick_has_requested_are_counted_as_lost(world: MakeWorld) -> None:
    """A tick requests a hundred runs; then the schedule is renamed in the code."""
    here = world([schedule("s", coalesce=False)])
    for key in range(103):
        here.feed.arrive("raw/a", str(key))
    assert len(here.tick(1)) == 100
    deploy(here, 2, schedule("t", coalesce=False))
    _, reason = lines(here, "s")[-1]
    assert reason == "no longer declared; 3 waiting jobs with 3 events were discarded"


def delete_manually(here: World, seconds: float, name: str) -> None:
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        control.delete(tx, here.engine.store, location, name, at(seconds))


def test_what_a_person_deleted_stays_deleted(world: MakeWorld) -> None:
    """While other schedules change, and also where it had been changed manually before."""
    here = world([schedule("s"), schedule("t")])
    set_manually(here, 1, schedule("s", description="by hand"))
    delete_manually(here, 1, "s")
    delete_manually(here, 1, "t")
    deploy(here, 2, schedule("s"), schedule("t"), schedule("other"))
    assert stored(here) == {"other": ("", 1, "code")}
    deploy(here, 3, schedule("s"), schedule("t", description="new"), schedule("other"))
    assert stored(here) == {"other": ("", 1, "code"), "t": ("new", 1, "code")}
    deploy(here, 4, schedule("s"), schedule("t"), schedule("other"))
    assert set(stored(here)) == {"other", "t"}


def test_a_definition_that_left_the_code_and_came_back_is_a_change(world: MakeWorld) -> None:
    """Nobody remembers for ever."""
    here = world([schedule("s")])
    delete_manually(here, 1, "s")
    deploy(here, 2)
    deploy(here, 3, schedule("s"))
    assert set(stored(here)) == {"s"}


def test_what_is_created_manually_again_is_the_codes(world: MakeWorld) -> None:
    """The deployments that follow update it as before."""
    here = world([schedule("s")])
    delete_manually(here, 1, "s")
    with here.database.begin() as tx:
        location = locked(tx, "default", here.location)
        control.apply(tx, here.engine.store, location, [schedule("s")], at(2))
    assert stored(here) == {"s": ("", 1, "code")}
    deploy(here, 3, schedule("s", description="new"))
    assert stored(here) == {"s": ("new", 2, "code")}


def test_what_was_deployed_before_this_was_noted_stays_deleted_too(world: MakeWorld) -> None:
    """What is stored is taken for what the code declares."""
    here = world([schedule("s")])
    with here.database.begin() as tx:
        tx.execute(sa.update(schedules).values(declared_digest=None))
    delete_manually(here, 1, "s")
    deploy(here, 2, schedule("s"), schedule("other"))
    assert set(stored(here)) == {"other"}
