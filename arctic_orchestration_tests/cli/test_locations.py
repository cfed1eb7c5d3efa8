"""``arctic locations``: what a person does with code locations that were renamed or are gone."""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest
import sqlalchemy as sa

from arctic_orchestration.cli.doctor import state_checks
from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.schedules import location_state
from arctic_orchestration.schedules.cli import locations as command
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.location_control import OF_LOCATION
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import (
    holders,
    jobs,
    launches,
    locations,
    metadata,
    schedules,
)
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.simulated import World, at

Arctic = Callable[..., Outcome]
MakeWorld = Callable[..., World]


@pytest.fixture
def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    """Makes a location of a name; for the commands it is ten minutes later."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    for module in (command, location_state):
        monkeypatch.setattr(module, "utc_now", lambda: at(600))
    database = Database(database_url)

    def make(name: str, declared: Sequence[Schedule], *, ticked: float = 0) -> World:
        made = World(database, declared, location=name)
        made.engine.owner = f"{name}/__repository__"
        made.tick(ticked)
        return made

    yield make
    database.close()


def daily(name: str = "daily") -> Schedule:
    constraints = [only.concurrency(1), only.rate(1, per="1h")]
    trigger = on.partitions("raw/a") | on.run(job="rollup", status="failure")
    return Schedule(
        name=name, target="rollup", trigger=trigger, constraints=constraints, enabled=True
    )


def rows(here: World, table: sa.Table, *columns: str) -> list[tuple[object, ...]]:
    with here.database.read() as tx:
        found = tx.execute(sa.select(*(table.c[name] for name in columns))).all()
    return sorted(tuple(row) for row in found)


def test_each_is_listed_with_who_deploys_there_and_whether_it_ticks(
    world: MakeWorld, arctic: Arctic
) -> None:
    """A quarter of an hour without a tick is silence."""
    world("old", [daily()], ticked=-301)
    world("new", [daily("a"), daily("b")])
    found = json.loads(arctic("locations", "list", "--json").out)
    assert found["cluster"] == "default"
    kept = ("name", "owner", "alive", "schedules", "jobs_waiting")
    assert [tuple(one[key] for key in kept) for one in found["locations"]] == [
        ("new", "new/__repository__", True, 2, 0),
        ("old", "old/__repository__", False, 1, 0),
    ]
    output = arctic("locations", "list").out
    assert "2 locations of cluster default" in output
    assert "silent" in output


def test_a_command_takes_the_only_location_that_ticks(world: MakeWorld, arctic: Arctic) -> None:
    """One that is gone is not asked about; of two that tick, the person says which."""
    world("old", [daily()], ticked=-301)
    world("new", [daily("a")])
    found = json.loads(arctic("schedules", "list", "--json").out)
    assert found["location"] == "new"
    world("third", [])
    refused = arctic("schedules", "list")
    assert refused.code == 2
    assert "--location: got None, expected one of new, old, third" in refused.err


def test_unbinding_lets_another_code_location_deploy(world: MakeWorld, arctic: Arctic) -> None:
    """It asks first, and says that the old one still ticks."""
    here = world("lake", [daily()])
    refused = arctic("locations", "unbind", "lake")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert arctic("locations", "unbind", "lake", "--yes").code == 0
    other = here.new_engine()
    other.owner = "other/__repository__"
    other.tick(at(1))
    assert rows(here, locations, "owner") == [("other/__repository__",)]
    with pytest.raises(ConfigurationError, match="arctic locations unbind lake"):
        here.tick(2)


def test_a_renamed_location_goes_on_where_it_was(world: MakeWorld, arctic: Arctic) -> None:
    """Its waiting job, position, places and launches stay; nothing is delivered twice."""
    here = world("old", [daily()])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    here.feed.arrive("raw/a", "2")
    assert here.tick(2) == []
    assert arctic("locations", "rename", "old", "new", "--yes").code == 0
    here.location = "new"
    here.engine = here.new_engine()
    here.engine.owner = "new/__repository__"
    assert here.tick(3) == []
    resources = {resource for (resource,) in rows(here, holders, "resource")}
    assert resources == {"job:default/new/rollup"}
    assert {name for (name,) in rows(here, launches, "resource")} == {"job:default/new/rollup"}
    here.dagster.end("run-1")
    assert here.tick(60) == []
    assert here.tick(3602) == ["run-2"]
    assert rows(here, schedules, "name", "version") == [("daily", 1)]


@pytest.mark.parametrize(
    ("old", "new"), [("lake", "Lake"), ("lake", "lake/prod"), ("lake/prod", "lake")]
)
def test_a_rename_to_a_similar_name_keeps_places_and_launches(
    world: MakeWorld, arctic: Arctic, old: str, new: str
) -> None:
    """SQLite's LIKE ignores case, and one name may begin with the other."""
    here = world(old, [daily()])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    assert arctic("locations", "rename", old, new, "--yes").code == 0
    for table in (holders, launches):
        assert rows(here, table, "resource") == [(f"job:default/{new}/rollup",)]


@pytest.mark.parametrize("other", ["Lake", "lake/prod"])
@pytest.mark.parametrize("deed", [("rename", "lake", "pond"), ("delete", "lake")])
def test_a_location_of_a_similar_name_keeps_its_places_and_launches(
    world: MakeWorld, arctic: Arctic, other: str, deed: tuple[str, ...]
) -> None:
    """What is done to one location concerns no other one."""
    world("lake", [daily()])
    there = world(other, [daily()])
    there.feed.arrive("raw/a", "1")
    assert there.tick(1) == ["run-1"]
    assert arctic("locations", *deed, "--yes").code == 0
    for table in (holders, launches):
        assert rows(there, table, "resource") == [(f"job:default/{other}/rollup",)]


def test_runs_that_began_under_the_old_name_are_its_own(world: MakeWorld, arctic: Arctic) -> None:
    """Until another code location has that name: then they are the other one's."""
    after = Schedule(name="after", target="publish", trigger=on.run(job="rollup"), enabled=True)
    here = world("old", [daily(), after])
    here.dagster.location = "old"
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    assert arctic("locations", "rename", "old", "new", "--yes").code == 0
    here.location = "new"
    here.engine = here.new_engine()
    here.engine.owner = "new/__repository__"
    here.dagster.end("run-1")
    assert here.tick(60) == ["run-2"]
    assert here.dagster.runs["run-2"].job == "publish"
    here.dagster.end("run-2")
    here.dagster.start("rollup", "later")
    assert here.tick(61) == []
    world("old", [], ticked=62)
    here.dagster.end("later")
    assert here.tick(63) == []


@pytest.mark.parametrize("readable", [True, False])
def test_a_rename_moves_what_listens_to_its_own_runs(
    world: MakeWorld, arctic: Arctic, readable: bool
) -> None:
    """The event key holds the location's name; who listens from elsewhere is named."""
    here = world("old", [daily()])
    if not readable:
        with here.database.begin() as tx:
            tx.execute(sa.update(schedules).values(spec="{}"))
    listener = on.run(job="rollup", location="old")
    world("elsewhere", [Schedule(name="after", target="x", trigger=listener, enabled=True)])
    result = arctic("locations", "rename", "old", "new", "--yes")
    assert "after of elsewhere still listens to runs of old" in result.out
    with here.database.read() as tx:
        keys = tx.execute(sa.text("select event_key from arctic_schedule_keys")).scalars().all()
    assert sorted(keys) == [
        "partition:raw/a",
        "run:new:job:rollup:failure",
        "run:old:job:rollup:success",
    ]


def test_a_rename_replaces_what_has_launched_nothing(world: MakeWorld, arctic: Arctic) -> None:
    """The dispatcher of the renamed code location is usually there first."""
    old = world("old", [daily()], ticked=-301)
    old.feed.arrive("raw/a", "1")
    new = world("new", [daily()])
    new.feed = old.feed
    assert arctic("locations", "rename", "old", "new", "--yes").code == 0
    assert rows(new, locations, "name") == [("new",)]
    new.engine = new.new_engine()
    assert len(new.tick(5)) == 1


def test_a_rename_replaces_nothing_that_has_adopted(world: MakeWorld, arctic: Arctic) -> None:
    """With the journal, nobody could hand back what is stopped in Dagster."""
    world("old", [daily()], ticked=-301)
    new = world("new", [daily()])
    with new.database.begin() as tx:
        where = locations.c.name == "new"
        adopted = {"name": "hourly", "step": "adopted", "schedule": "daily", "was": "running",
                   "created": True, "at": at(0)}  # fmt: skip
        id = tx.execute(sa.select(locations.c.id).where(where)).scalar()
        tx.execute(sa.insert(adoptions).values(location_id=id, **adopted))
    refused = arctic("locations", "rename", "old", "new", "--yes")
    assert refused.code == 2
    assert "hourly of new would run twice, or never again" in " ".join(refused.err.split())
    assert rows(new, locations, "name") == [("new",), ("old",)]
    assert arctic("locations", "rename", "old", "new", "--yes", "--force").code == 0


def test_a_rename_is_refused_where_events_would_run_twice(world: MakeWorld, arctic: Arctic) -> None:
    """What the other one launched would be launched again from the older position."""
    world("old", [daily()], ticked=-301)
    new = world("new", [daily()])
    new.feed.arrive("raw/a", "1")
    new.tick(1)
    refused = arctic("locations", "rename", "old", "new", "--yes")
    assert refused.code == 2
    assert "arctic locations delete old" in refused.err
    assert rows(new, locations, "name") == [("new",), ("old",)]


def test_a_deleted_location_leaves_nothing(world: MakeWorld, arctic: Arctic) -> None:
    """Also with jobs that wait and run; what others have stays."""
    here = world("gone", [daily()])
    for partition in ("1", "2"):
        here.feed.arrive("raw/a", partition)
        here.tick(float(partition))
    world("stays", [daily()])
    refused = arctic("locations", "delete", "gone")
    assert refused.code == 2
    result = arctic("locations", "delete", "gone", "--yes")
    assert result.out == "deleted gone with 1 schedule and their jobs\n"
    assert rows(here, locations, "name") == [("stays",)]
    assert rows(here, holders, "resource") == []
    assert rows(here, launches, "resource") == []


def test_a_dispatcher_that_ticks_again_starts_again(world: MakeWorld, arctic: Arctic) -> None:
    """Its schedules are deployed again, though the code server was not restarted."""
    here = world("lake", [daily()])
    arctic("locations", "delete", "lake", "--yes")
    here.tick(1)
    here.feed.arrive("raw/a", "1")
    assert len(here.tick(2)) == 1


def test_the_doctor_names_what_is_silent_and_what_to_do(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ticks has no line; the commands can be pasted, whatever the name."""
    monkeypatch.setattr(state_checks, "utc_now", lambda: at(600))
    world("old lake", [daily()], ticked=-301)
    world("new", [daily()])
    (found,) = state_checks.locations()
    assert (found.check, found.status) == ("location old lake", "warning")
    assert found.found == "last tick 2025-12-31 23:54:59Z; 1 schedule, 0 jobs waiting"
    assert "arctic locations rename 'old lake' NEW" in found.advice
    assert "arctic locations delete 'old lake'" in found.advice


def test_every_table_of_a_location_is_emptied_with_it() -> None:
    """A new one is named there; jobs go with their schedules, and what is held is released."""
    of_location = {
        table
        for table in metadata.sorted_tables
        for key in table.foreign_keys
        if key.column.table is locations
    }
    assert of_location == {*OF_LOCATION, jobs, holders}
