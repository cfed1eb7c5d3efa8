"""``/simulations`` and ``/replays``: what schedules would decide, within bounds."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic_core import to_json

from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views import recorded_span
from arctic_orchestration.service import simulation, simulations
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_problems import problem

PAIR = Schedule(name="pair", target="x", trigger=on.partitions("raw/a", count=2), enabled=True)
FILE = {"schedules": [PAIR.to_form()]}


def arrival(second: int, partition: str) -> dict[str, Any]:
    moment = at(second).isoformat()
    return {"at": moment, "event": "partition", "asset": "raw/a", "partition": partition}


def decided(answer: Any) -> list[tuple[str, str]]:
    return [(one["at"], one["decision"]) for one in answer["decisions"]]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_timeline_is_simulated(api: MakeApi, database: Database) -> None:
    """Two partitions fire at the fifth second; the run takes the ten seconds that are asked for."""
    body = {"file": FILE, "timeline": [arrival(0, "1"), arrival(5, "2")], "run_duration": "10s"}
    done = api().post("/simulations", json=body)
    assert done.status_code == 200, done.text
    assert decided(done.json()) == [
        ("2026-01-01T00:00:00Z", "deployed"),
        ("2026-01-01T00:00:05Z", "fired"),
        ("2026-01-01T00:00:05Z", "launched"),
        ("2026-01-01T00:00:15Z", "ended"),
    ]
    launched = done.json()["decisions"][2]
    assert launched["details"]["partitions"] == ["1", "2"]
    assert (done.json()["launches"], done.json()["more"]) == (1, False)


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_bad_questions_name_each_value(api: MakeApi, database: Database) -> None:
    """Of the file and of the timeline; no line reads a file of this machine."""
    line = arrival(0, "1")
    deploy = {"at": line["at"], "do": "deploy", "file": "/etc/passwd"}
    year = [line, {"at": "2027-02-01T00:00:00Z", "do": "advance"}]
    bodies: list[tuple[dict[str, Any], str]] = [
        ({}, "file"),
        ({"file": FILE, "timeline": []}, "timeline"),
        ({"file": {}, "timeline": [line]}, "schedules"),
        ({"file": FILE, "timeline": [deploy]}, "timeline:1.do"),
        ({"file": FILE, "timeline": [{**line, "at": "now"}]}, "timeline:1.at"),
        ({"file": FILE, "timeline": year}, "timeline"),
        ({"file": FILE, "timeline": [line], "tick": "soon"}, "tick"),
        ({"file": FILE, "timeline": [line], "tick": "0s"}, "tick"),
        ({"file": FILE, "timeline": [line], "until": "2025-01-01T00:00:00Z"}, "until"),
        ({"file": FILE, "timeline": [line], "until": "2030-01-01T00:00:00Z"}, "timeline"),
    ]
    client = api()
    for body, field in bodies:
        errors = problem(client.post("/simulations", json=body), 422)["errors"]
        assert errors[0]["field"] == field, body


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_no_simulation_occupies_the_service(
    api: MakeApi, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes too long is ended; while others run, the next is refused."""
    monkeypatch.setattr(simulation, "SECONDS", 0.05)
    body = {"file": FILE, "timeline": [arrival(0, "1")]}
    client = api()
    assert "at most" in problem(client.post("/simulations", json=body), 422)["detail"]
    monkeypatch.setattr(simulation, "_AT_ONCE", threading.BoundedSemaphore(1))
    with simulation._AT_ONCE:
        answer = client.post("/simulations", json=body)
        assert answer.headers["retry-after"] == "5"
        problem(answer, 429)
    # Its place is free again.
    problem(client.post("/simulations", json=body), 422)


def test_a_change_is_tried_on_what_happened(
    api: MakeApi,
    database: Database,
    world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four partitions make two launches of pairs, and would make one of four; of b none is stored.

    They arrived at seconds 10, 20, 30, 40.
    """
    here = world([PAIR])
    for second in (10, 20, 30, 40):
        here.feed.arrive("raw/a", str(second))
        here.tick(second)
    monkeypatch.setattr(simulations, "utc_now", lambda: at(3600))
    client = api()
    form = {**PAIR.to_form(), "trigger": {"partitions": {"asset": "raw/a", "count": 4}}}
    done = client.post("/replays", json={"schedule": form, "hours": 2})
    assert done.status_code == 200, done.text
    found = done.json()
    assert (found["events"], found["not_recorded"]) == (4, [])
    assert (found["before"]["launches"], found["after"]["launches"]) == (2, 1)
    (launched,) = [one for one in found["after"]["decisions"] if one["decision"] == "launched"]
    assert launched["details"]["partitions"] == ["10", "20", "30", "40"]
    assert (found["end"], found["location"]) == ("2026-01-01T01:00:00Z", "here")
    other = {**form, "name": "other", "trigger": {"partitions": {"asset": "raw/b"}}}
    found = client.post("/replays", json={"schedule": other}).json()
    assert (found["before"], found["events"]) == (None, 0)
    assert found["not_recorded"] == ["partition:raw/b"]
    minute = timedelta(minutes=59, seconds=35) / timedelta(hours=1)
    found = client.post("/replays", json={"schedule": form, "hours": minute}).json()
    assert found["events"] == 2
    for body, field in (
        ({}, "schedule"),
        ({"schedule": {}}, "schedule.name"),
        ({"schedule": form, "hours": 0}, "hours"),
        ({"schedule": form, "hours": 169}, "hours"),
        ({"schedule": form, "hours": "1"}, "hours"),
        ({"schedule": form, "run_duration": "x"}, "run_duration"),
    ):
        errors = problem(client.post("/replays", json=body), 422)["errors"]
        assert errors[0]["field"] == field, body
    narrow = api(token=token(database, "schedules:read@schedule=pair"))
    assert narrow.post("/replays", json={"schedule": form}).status_code == 403
    assert (
        narrow.get("/schedules/pair").json()["definition"]["trigger"] == PAIR.to_form()["trigger"]
    )


def plant(database: Database, taken: list[tuple[EventKind, str, dict[str, Any]]]) -> None:
    """Events that schedules of the only location took, one each second."""
    with database.begin() as tx:
        place = location_by_name(tx, "default", None)
        rows = []
        for second, (kind, subject, fields) in enumerate(taken):
            event = Event(kind=kind, subject=subject, at=at(second), **fields)
            rows.append(
                {
                    "location_id": place.id, "number": 10_000 + second, "kind": kind,
                    "subject": subject, "at": at(second), "taken_at": at(second),
                    "details": to_json(event.to_json()).decode(),
                }
            )  # fmt: skip
        tx.execute(sa.insert(events), rows)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four events are read, and three simulated, of the hour before second 3,600."""
    monkeypatch.setattr(recorded_span, "_MOST_READ", 4)
    monkeypatch.setattr(recorded_span, "_MOST", 3)
    monkeypatch.setattr(simulations, "utc_now", lambda: at(3600))


@pytest.mark.parametrize("place", ["here", "a:job:load:asset:b"])
@pytest.mark.parametrize(
    ("trigger", "count"),
    [
        ({"partitions": {"asset": "raw/é"}}, 1),
        (
            {"any_of": [{"quiet": {"asset": "raw/é", "duration": "1s"}}, {"run": {"job": "load"}}]},
            3,
        ),
        ({"run": {"assets": ["raw/é", 'a"b:asset:out']}}, 2),
        ({"check": {"asset": "raw/é"}}, 1),
        ({"cron": {"expression": "0 * * * *"}}, 0),
    ],
)
def test_events_of_others_count_for_no_replay(
    database: Database,
    world: Callable[..., World],
    few: None,
    place: str,
    trigger: dict[str, Any],
    count: int,
) -> None:
    """Five arrivals, checks and runs of others, though four events are read at most."""
    world((), place)
    run = {"status": RunStatus.SUCCESS, "location": place, "run_id": "1"}
    one_run = (EventKind.RUN, "load", {**run, "assets": ("raw/é",)})
    other = (EventKind.RUN, "adhoc", {**run, "assets": ("x", 'a"b:asset:out')})
    others = [
        *((kind, "raw/b", {}) for kind in (EventKind.PARTITION, EventKind.CHECK)),
        (EventKind.PARTITION, "load", {}),
        (EventKind.RUN, "adhoc", {**run, "assets": ("raw/b",)}),
    ]
    passed = {"check": "c", "passed": True}
    mine = [(EventKind.PARTITION, "raw/é", {}), (EventKind.CHECK, "raw/é", passed)]
    plant(database, [*mine, *others * 5, one_run, other, (EventKind.RUN, "load", run)])
    form = {"name": "new", "target": {"job": "x"}, "trigger": trigger, "enabled": True}
    with database.read() as tx:
        here = location_by_name(tx, "default", None)
        span = recorded_span.recorded_span(tx, here, [Schedule.parse(form)], 2, at(3600))
    assert span.events == count


def test_a_replay_that_is_too_long_names_its_hours_and_the_limit(
    api: MakeApi, database: Database, world: Callable[..., World], few: None
) -> None:
    """Of events that the schedule listens to, or that are read to know that: runs that failed."""
    world()
    failed = {"status": RunStatus.FAILURE, "location": "here"}
    plant(database, [(EventKind.PARTITION, "raw/a", {})] * 4 + [(EventKind.RUN, "x", failed)] * 5)
    many = [f"n/{number}" for number in range(1_500)]
    for trigger, limit in (
        ({"partitions": {"asset": "raw/a", "count": 2}}, "3 events that the schedule listens to"),
        ({"run": {"job": "x"}}, "4 events of what the schedule listens to"),
        ({"run": {"assets": many}}, "4 events of what the schedule listens to"),
    ):
        form = {"name": "new", "target": {"job": "y"}, "trigger": trigger}
        refused = problem(api().post("/replays", json={"schedule": form, "hours": 2.5}), 422)
        assert refused["errors"][0]["field"] == "hours"
        assert refused["detail"] == f"hours: got 2.5, expected a span with at most {limit}"
