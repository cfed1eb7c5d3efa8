"""The questions of operators over the Model Context Protocol, asked by its own client."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from mcp.client import Client
from sqlalchemy import event

from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.explanation import explain_schedule
from arctic_orchestration.service import mcp_server, simulation
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.waiting.reader import waiting_by_cause
from arctic_orchestration_tests.waiting.planted import NOW, plant

Ask = Callable[..., Any]

SCHEDULES = """
schedules:
- name: pair
  target: {job: rollup}
  trigger: {partitions: {asset: raw/a, count: 2}}
  enabled: true
"""
TIMELINE = """
{"at": "2026-01-01T00:00:00Z", "event": "partition", "asset": "raw/a", "partition": "1"}
{"at": "2026-01-01T00:00:10Z", "event": "partition", "asset": "raw/a", "partition": "2"}
"""


@pytest.fixture
def planted(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Something waits for each planted cause."""
    plant(database)
    monkeypatch.setattr(mcp_server, "utc_now", lambda: NOW)
    return database


@pytest.fixture
def ask(database: Database) -> Ask:
    """Asks a question: its answer, or the text of its refusal."""

    async def asked(name: str, values: dict[str, Any]) -> Any:
        server = mcp_server.create_server(Settings.from_environment(), database)
        async with Client(server) as client:
            result = await client.call_tool(name, values)
        if result.is_error:
            return result.content[0].text  # type: ignore[union-attr]
        return result.structured_content

    return lambda name, **values: asyncio.run(asked(name, values))


def test_what_waits_is_what_the_command_shows(ask: Ask, planted: Database) -> None:
    """By cause, and one by one."""
    with planted.read() as tx:
        expected = waiting_by_cause(tx, "default", NOW).to_json()
    assert ask("what_waits") == json.loads(json.dumps(expected))
    found = ask("what_waits", by_cause=False, cause="window", kind="job")
    assert [wait["name"] for wait in found["waits"]] == ["at_night"]


def test_a_schedule_a_job_and_a_missed_launch_are_explained(ask: Ask, planted: Database) -> None:
    """With the summary of the explanation itself, and the window that was shut."""
    with planted.read() as tx:
        place = location_by_name(tx, "default", "here")
        expected = explain_schedule(tx, ScheduleStore(), place, "at_night", NOW)
    found = ask("explain_schedule", schedule="at_night")
    assert (found["location"], found["summary"]) == ("here", expected.summary)
    assert expected.job is not None
    assert ask("explain_job", job=expected.job.id)["summary"] == expected.summary
    missed = ask("why_not", schedule="at_night", at="2026-01-01T00:00:30Z")
    assert missed["cause"] == "window"


def test_a_simulation_returns_its_decisions(ask: Ask, database: Database) -> None:
    """Two partitions fire at the tenth second; the run ends a minute later."""
    found = ask("simulate", schedules=SCHEDULES, timeline=TIMELINE)
    decisions = [(one["at"], one["decision"]) for one in found["decisions"]]
    assert decisions == [
        ("2026-01-01T00:00:00Z", "deployed"),
        ("2026-01-01T00:00:10Z", "fired"),
        ("2026-01-01T00:00:10Z", "launched"),
        ("2026-01-01T00:01:10Z", "ended"),
    ]
    assert found["more"] is False


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_simulation_that_takes_too_long_is_ended(
    ask: Ask, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over REST: the server has other questions to answer."""
    monkeypatch.setattr(simulation, "SECONDS", 0.05)
    refusal = ask("simulate", schedules=SCHEDULES, timeline=TIMELINE)
    assert "expected a simulation that takes at most" in refusal


@pytest.mark.parametrize(
    ("question", "values", "text"),
    [
        ("what_waits", {"kind": "sloth"}, "kind: got 'sloth', expected one of job"),
        ("explain_schedule", {"schedule": "nowhere"}, "nowhere"),
        ("explain_job", {"job": "' or 1=1"}, "has no job"),
        ("why_not", {"schedule": "half", "at": "soon"}, "at: got 'soon', expected"),
        ("explain_job", {"job": "a\0"}, "job: got 'a\\x00', expected text in UTF-8"),
        ("explain_schedule", {"schedule": "a\0"}, "schedule: got 'a\\x00', expected text"),
        ("explain_schedule", {"schedule": "half", "partition": "\0"}, "partition: got"),
        ("why_not", {"schedule": "\0", "at": "2026-01-01T00:00:30Z"}, "schedule: got"),
        ("simulate", {"schedules": "schedules: 3", "timeline": TIMELINE}, "schedules"),
        ("simulate", {"schedules": SCHEDULES, "timeline": "{"}, "timeline:1"),
        (
            "simulate",
            {
                "schedules": SCHEDULES,
                "timeline": '{"at": "2026-01-01T00:00:00Z", "do": "deploy", "file": "/etc/passwd"}',
            },
            "timeline:1.do: got 'deploy', expected a line that reads no file",
        ),
    ],
)
def test_a_bad_question_is_refused_with_the_reason(
    ask: Ask, planted: Database, question: str, values: dict[str, str], text: str
) -> None:
    assert text in ask(question, **values)


def test_no_question_writes(ask: Ask, planted: Database) -> None:
    """Each tool says so, and no statement of any changes a row."""
    written: list[str] = []

    @event.listens_for(planted.engine, "before_cursor_execute")
    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        if not statement.lstrip().lower().startswith(("select", "with", "begin", "savepoint")):
            written.append(statement)

    ask("what_waits", by_cause=False)
    ask("explain_schedule", schedule="half")
    ask("why_not", schedule="half", at="2026-01-01T00:00:30Z")
    assert [one for one in written if "savepoint" not in one.lower()] == []

    async def hints() -> list[bool | None]:
        server = mcp_server.create_server(Settings.from_environment(), planted)
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
        return [getattr(tool.annotations, "read_only_hint", None) for tool in tools]

    assert asyncio.run(hints()) == [True] * 5
