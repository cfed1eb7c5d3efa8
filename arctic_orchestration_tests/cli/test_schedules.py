"""``arctic schedules``: list, show, enable, suspend, delete, next."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views import listing
from arctic_orchestration.state.tables import schedules
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, schedule

Command = Callable[..., Outcome]


def statuses(world: World) -> dict[str, str]:
    with world.database.read() as tx:
        return {row.name: row.status for row in tx.execute(sa.select(schedules))}


def test_the_list_shows_each_schedule_with_its_jobs(world: MakeWorld, arctic: Command) -> None:
    """One waits, one runs, one is suspended; as a table and as JSON."""
    here = world(
        [
            schedule("waits", trigger=on.partitions("raw/a", count=2)),
            schedule("runs", target="other"),
            schedule("asleep", trigger=on.cron("0 4 * * *"), enabled=False),
            schedule("clock", trigger=on.cron("0 4 * * *")),
        ]
    )
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    result = arctic("schedules", "list")
    assert (result.code, result.err) == (0, "")
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == ["4", "schedules", "of", "here"]
    assert lines[2][:2] == ["asleep", "suspended"]
    assert lines[3][-2:] == ["2026-01-01", "04:00:00Z"]
    document = json.loads(arctic("schedules", "list", "--json").out)
    found = {listed["name"]: listed for listed in document["schedules"]}
    assert document["location"] == "here"
    assert (found["waits"]["jobs_waiting"], found["waits"]["jobs_active"]) == (1, 0)
    assert (found["runs"]["jobs_waiting"], found["runs"]["jobs_active"]) == (0, 1)
    assert found["clock"]["next_tick_at"] == "2026-01-01T04:00:00Z"
    assert found["asleep"]["definition"]["trigger"] == {"cron": {"expression": "0 4 * * *"}}


def test_a_schedule_is_shown_with_its_definition_and_history(
    world: MakeWorld, arctic: Command
) -> None:
    """The definition is YAML that could be applied."""
    texts = {"batch": "1e5", "at": "-.5", "code": "007"}
    made = schedule(constraints=[only.delay("5m")], properties=texts)
    world([made])
    arctic("schedules", "suspend", "s")
    result = arctic("schedules", "show", "s")
    assert result.code == 0
    shown = result.out[result.out.index("schedules:") : result.out.index("history")]
    assert read_schedules(shown, name="x") == [made]
    assert "declared in the code" in result.out
    document = json.loads(arctic("schedules", "show", "s", "--json").out)
    assert document["status"] == "suspended"
    assert [(line["at"], line["action"], line["reason"]) for line in document["history"]] == [
        ("2026-01-01T00:00:00Z", "created", "deployed"),
        ("2026-01-01T00:10:00Z", "suspended", "manually"),
    ]


def test_several_are_enabled_and_suspended_together_or_not_at_all(
    world: MakeWorld, arctic: Command
) -> None:
    """A name that is unknown stops the others, too."""
    here = world([schedule("a", enabled=False), schedule("b")])
    refused = arctic("schedules", "enable", "a", "c")
    assert (refused.code, refused.out) == (2, "")
    assert "no schedule c; it has: a, b" in refused.err
    assert statuses(here) == {"a": "suspended", "b": "enabled"}
    result = arctic("schedules", "enable", "a", "b")
    assert (result.code, result.out) == (0, "a is enabled\nb is enabled already\n")
    as_json = json.loads(arctic("schedules", "suspend", "a", "--json").out)
    assert as_json == {"status": "suspended", "changed": {"a": True}}
    assert statuses(here) == {"a": "suspended", "b": "enabled"}


def test_a_delete_requires_a_confirmation_and_yes_from_a_program(
    world: MakeWorld, arctic: Command, typed: Callable[[str], None]
) -> None:
    """Exit code 1 when the person does not agree, 2 when nobody can be asked."""
    here = world([schedule("a"), schedule("b")])
    refused = arctic("schedules", "delete", "a")
    assert refused.code == 2
    assert "confirmation: got 'no terminal', expected --yes" in refused.err
    typed("n\n")
    declined = arctic("schedules", "delete", "a")
    assert declined.code == 1
    assert "nothing was changed" in declined.out
    assert set(statuses(here)) == {"a", "b"}
    typed("y\n")
    agreed = arctic("schedules", "delete", "a")
    assert agreed.code == 0
    assert "declared in the code" in agreed.out
    assert json.loads(arctic("schedules", "delete", "b", "-y", "--json").out) == {"deleted": ["b"]}
    assert statuses(here) == {}


def test_next_lists_what_time_alone_will_do(world: MakeWorld, arctic: Command) -> None:
    """Of all schedules or one; a suspended one says that it is."""
    world(
        [
            schedule("clock", trigger=on.cron("*/20 * * * *")),
            schedule("asleep", trigger=on.cron("* * * * *"), enabled=False),
        ]
    )
    result = arctic("schedules", "next", "-n", "2")
    rows = [line.split() for line in result.out.splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        ["2026-01-01", "00:20:00Z", "10m", "clock", "tick"],
        ["2026-01-01", "00:40:00Z", "30m", "clock", "tick"],
    ]
    document = json.loads(arctic("schedules", "next", "clock", "-n", "1", "--json").out)
    assert document["next"] == [
        {
            "at": "2026-01-01T00:20:00Z",
            "schedule": "clock",
            "moment": "tick",
            "what": "cron expression */20 * * * *",
            "job": None,
        }
    ]
    assert arctic("schedules", "next", "asleep").out == "nothing is due: it is suspended\n"
    assert arctic("schedules", "next", "nope").code == 2


def test_the_location_is_required_where_there_are_several(
    world: MakeWorld, arctic: Command
) -> None:
    """The message lists them."""
    here = world([schedule("a")])
    with here.database.begin() as tx:
        locations.locked(tx, "default", "there")
    refused = arctic("schedules", "list")
    assert refused.code == 2
    assert "--location: got None, expected one of here, there" in refused.err
    assert json.loads(arctic("schedules", "list", "-l", "there", "--json").out) == {
        "location": "there",
        "schedules": [],
        "next_after": None,
    }
    assert arctic("schedules", "list", "--location", "nowhere").code == 2


def test_looking_makes_no_database_where_there_is_none(
    arctic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command in the wrong folder leaves no file behind."""
    path = tmp_path / "nothing" / "arctic.db"
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{path}")
    refused = arctic("schedules", "list")
    assert refused.code == 2
    assert "There is no state database" in refused.err
    assert not path.parent.exists()


def test_a_schedule_that_cannot_be_read_is_listed_with_its_problem(
    world: MakeWorld, arctic: Command
) -> None:
    """It does not hide the others, and can be deleted."""
    here = world([schedule("a"), schedule("b")])
    with here.database.begin() as tx:
        tx.execute(sa.update(schedules).where(schedules.c.name == "a").values(spec="{}"))
    result = arctic("schedules", "list")
    assert "cannot be read" in result.out
    assert "another version of the package" in arctic("schedules", "show", "a").out
    assert arctic("schedules", "enable", "a").code == 2
    assert arctic("schedules", "delete", "a", "-y").code == 0
    assert set(statuses(here)) == {"b"}


@pytest.fixture
def many(world: MakeWorld) -> World:
    """Five schedules of different kinds, two of them suspended."""
    arrival, clock = on.partitions("raw/a", count=2), on.cron("0 4 * * *")
    return world(
        [
            schedule("a_arrival", trigger=arrival),
            schedule("b_both", trigger=arrival & on.any_of(clock, on.run("rollup")), target="x"),
            schedule("c_clock", trigger=clock, target={"assets": ["b", "raw/b"]}, enabled=False),
            schedule("d_run", trigger=on.run("rollup"), target="x", enabled=False),
            schedule("e_data", trigger=on.data("raw/a", "1GB"), target="rollup_of_cron"),
        ]
    )


def listed(arctic: Command, *options: str) -> list[str]:
    document = json.loads(arctic("schedules", "list", "--json", *options).out)
    return [one["name"] for one in document["schedules"]]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--status", "suspended"], ["c_clock", "d_run"]),
        (["--trigger", "cron"], ["b_both", "c_clock"]),
        (["--trigger", "any_of"], ["b_both"]),
        (["--trigger", "partitions"], ["a_arrival", "b_both"]),
        (["--target", "x"], ["b_both", "d_run"]),
        (["--target", "raw/b"], ["c_clock"]),
        (["--target", "rollup"], ["a_arrival"]),
        (["--listens-to", "raw/a"], ["a_arrival", "b_both", "e_data"]),
        (["--listens-to", "rollup"], ["b_both", "d_run"]),
        (["--listens-to", "raw"], []),
        (["--listens-to", "raw/a", "--trigger", "data"], ["e_data"]),
        (["--target", "x", "--status", "enabled"], ["b_both"]),
    ],
)
def test_a_list_shows_what_was_requested(
    many: World, arctic: Command, options: list[str], names: list[str]
) -> None:
    """By status, target, kind of trigger anywhere in it, and who listens to an asset or job."""
    assert listed(arctic, *options) == names


def test_a_list_comes_in_pages(many: World, arctic: Command, monkeypatch: Any) -> None:
    """Each ends with where the next begins; also where a filter passes over many."""
    document = json.loads(arctic("schedules", "list", "--json", "--limit", "2").out)
    assert document["next_after"] == "b_both"
    assert listed(arctic, "--limit", "2", "--after", "b_both") == ["c_clock", "d_run"]
    last = json.loads(arctic("schedules", "list", "--json", "--after", "c_clock").out)
    assert (last["next_after"], len(last["schedules"])) == (None, 2)
    output = arctic("schedules", "list", "--limit", "2").out
    assert "more: --after b_both, or --limit" in output
    monkeypatch.setattr(listing, "_READ_AT_ONCE", 1)
    assert listed(arctic, "--trigger", "cron", "--limit", "1") == ["b_both"]
    assert listed(arctic, "--trigger", "cron", "--limit", "1", "--after", "b_both") == ["c_clock"]
    assert listed(arctic, "--trigger", "cron", "--after", "c_clock") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--status", "asleep"], "--status: got 'asleep', expected one of enabled, suspended"),
        (["--trigger", "corn"], "--trigger: got 'corn', expected one of cron, partitions"),
    ],
)
def test_a_filter_of_what_there_never_is_is_refused(
    many: World, arctic: Command, options: list[str], message: str
) -> None:
    """An empty list would say that no schedule is so."""
    refused = arctic("schedules", "list", *options)
    assert refused.code == 2
    assert message in refused.err


def test_a_page_costs_the_same_however_many_there_are(
    world: MakeWorld, arctic: Command, monkeypatch: Any
) -> None:
    """No more schedules are parsed than are shown; what a filter reads is read in batches."""
    world([schedule(f"s{number:03}") for number in range(120)])
    parsed: list[Any] = []
    parse = Schedule.stored

    def counted(form: Any) -> Schedule:
        parsed.append(form)
        return parse(form)

    monkeypatch.setattr(Schedule, "stored", counted)
    assert len(listed(arctic)) == 50
    assert len(parsed) == 50
    parsed.clear()
    assert listed(arctic, "--target", "rollup", "--limit", "3") == ["s000", "s001", "s002"]
    assert len(parsed) == 3


def test_the_history_names_who_did_it_and_outlives_the_schedule(
    world: MakeWorld, arctic: Command, monkeypatch: Any
) -> None:
    """The user of the system; a deployment is the code location's."""
    monkeypatch.setenv("LOGNAME", "anna")
    here = world([schedule("s"), schedule("t")])
    for command in ("suspend", "enable"):
        arctic("schedules", command, "s")
    arctic("schedules", "delete", "s", "--yes")
    assert here.engine.owner is None
    document = json.loads(arctic("schedules", "history", "s", "--json").out)
    assert [(line["action"], line["actor"]) for line in document["history"]] == [
        ("created", ""),
        ("suspended", "anna"),
        ("enabled", "anna"),
        ("deleted", "anna"),
    ]
    newest = json.loads(arctic("schedules", "history", "--limit", "2", "--json").out)["history"]
    assert [(line["name"], line["action"]) for line in newest] == [
        ("s", "enabled"),
        ("s", "deleted"),
    ]
    output = arctic("schedules", "history").out
    assert "anna" in output
    gone = arctic("schedules", "show", "s")
    assert gone.code == 2
    assert "arctic schedules history s" in gone.err
    assert arctic("schedules", "history", "nobody").code == 2


@pytest.mark.parametrize("by", [["jobs", "cancel", "JOB"], ["schedules", "suspend", "s"]])
def test_a_job_that_a_person_cancels_says_who(
    world: MakeWorld, arctic: Command, monkeypatch: Any, by: list[str]
) -> None:
    """In its history; what the scheduler did has no name."""
    monkeypatch.setenv("LOGNAME", "anna")
    here = world([schedule("s", constraints=[only.delay("1h")])])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    job = json.loads(arctic("jobs", "list", "--json").out)["jobs"][0]["id"]
    assert arctic(*(job if word == "JOB" else word for word in by)).code == 0
    history = json.loads(arctic("jobs", "show", job, "--json").out)["history"]
    assert [(line["state"], line["actor"]) for line in history] == [
        ("waiting_constraints", ""),
        ("discarded", "anna"),
    ]


def test_a_database_that_cannot_be_reached_is_refused(
    arctic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a right for its folder, or, as here for every user, with a name that is too long."""
    file = tmp_path / ("long" * 100) / "arctic.db"
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{file}")
    refused = arctic("schedules", "list")
    assert refused.code == 2
    assert "cannot be reached: File name too long" in " ".join(refused.err.split())
