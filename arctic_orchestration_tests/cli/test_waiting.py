"""``arctic waiting``: what people and programs see of what waits."""

import json
import shlex
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.waiting.planted import ODD, plant

Arctic = Callable[..., Outcome]


@pytest.fixture
def planted(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state database of the environment; something waits in it for each planted cause."""
    database = Database(database_url)
    plant(database)
    database.close()
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


@pytest.mark.usefixtures("planted")
def test_causes_and_single_waits_are_shown_to_people_and_programs(
    arctic: Arctic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd names move no cursor in a terminal, and stay what they are in JSON."""
    table = arctic("waiting", "--group-by", "cause")
    assert (table.code, table.err) == (0, "")
    # The planted moments are long ago, and the rest of the table is over.
    assert "13 waiting" in table.out
    assert "paused:queue:low" in table.out
    assert "location here: no dispatcher ticks since 2026-01-01 00:00:00Z" in table.out

    found = json.loads(arctic("waiting", "--group-by", "cause", "--json").out)
    assert found["count"] == 13
    kinds = {group["kind"] for group in found["groups"]}
    assert kinds == {"job", "merge_task", "partition", "run", "task"}

    monkeypatch.setenv("COLUMNS", "80")
    odd = arctic("waiting", "--kind", "partition")
    assert "\x1b[2J" not in odd.out
    assert "\u202e" not in odd.out
    assert "\\x1b[2J\\u202e" in odd.out
    assert max(map(len, odd.out.splitlines())) <= 120
    (given_up, leased) = json.loads(arctic("waiting", "--kind", "partition", "--json").out)["waits"]
    assert given_up["id"] == ODD
    assert set(leased) == {
        "kind", "id", "name", "location", "since", "cause", "reason", "held_by", "until", "actions",
    }  # fmt: skip

    first = json.loads(arctic("waiting", "-n", "5", "--json").out)
    rest = json.loads(arctic("waiting", "--after", first["next_after"], "--json").out)
    assert len(first["waits"]) + len(rest["waits"]) == 13
    assert rest["next_after"] is None
    none = "nothing waits that these options select"
    assert none in arctic("waiting", "--cause", "rate").out
    assert none in arctic("waiting", "--group-by", "cause", "--location", "lkae").out


@pytest.mark.usefixtures("planted")
def test_commands_about_jobs_work_where_several_locations_tick(
    arctic: Arctic, database_url: str
) -> None:
    """Whatever the name of the location is."""
    database = Database(database_url)
    with database.begin() as tx:
        tx.execute(sa.update(locations).values(name="it's here"))
        other = {"cluster": "default", "name": "other", "ticked_at": utc_now()}
        tx.execute(sa.insert(locations).values(other))
    database.close()
    waits = json.loads(arctic("waiting", "--kind", "job", "--json").out)["waits"]
    actions = sorted(
        {action for wait in waits for action in wait["actions"]}, key=lambda one: "cancel" in one
    )
    assert {" ".join(action.split()[1:3]) for action in actions} == {
        "jobs explain", "jobs launch", "jobs cancel", "schedules enable",
    }  # fmt: skip
    for action in actions:
        done = arctic(*shlex.split(action)[1:])
        assert done.code == 0, (action, done)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--group-by", "name"), "--group-by: got 'name', expected cause"),
        (("--kind", "jobs"), "kind: got 'jobs', expected one of job"),
        (("--after", "x"), "after: got 'x', expected the cursor of an earlier page"),
    ],
)
def test_bad_arguments_are_refused(
    arctic: Arctic, arguments: tuple[str, ...], message: str
) -> None:
    refused = arctic("waiting", *arguments)
    assert refused.code == 2
    assert message in refused.err


@pytest.mark.usefixtures("planted")
def test_why_not_answers_people_and_programs(arctic: Arctic) -> None:
    """A minute after midnight its window in Tokyo was closed; a day is no moment."""
    question = ("schedules", "why-not", "at_night", "--at", "2026-01-01T00:05:00Z")
    shown = arctic(*question, "--location", "here")
    assert (shown.code, shown.err) == (0, "")
    held = "the window 22:00-06:00 (Asia/Tokyo) opens at 2026-01-01 13:00:00Z"
    assert f"at_night at 2026-01-01 00:05:00Z: its constraints held it: {held}" in shown.out
    found = json.loads(arctic(*question, "--json").out)
    assert (found["cause"], found["source"]) == ("window", "simulation")
    refused = arctic("schedules", "why-not", "at_night", "--at", "2026-01-01")
    assert refused.code == 2
    assert "--at: got '2026-01-01', expected a moment of ISO 8601 with its zone" in refused.err
