"""``GET /events``: what schedules took, page by page, and what each event set off."""

import json
from collections.abc import Callable, Sequence

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state import tables
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.service.test_problems import problem
from arctic_orchestration_tests.statements import statements_of


def test_an_event_is_listed_with_its_jobs(
    api: MakeApi, database: Database, world: Callable[..., World]
) -> None:
    """Of a span, an asset or a partition; newest first, page by page."""
    both = [
        Schedule(name="pair", target="x", trigger=on.partitions("raw/a", count=2), enabled=True),
        Schedule(name="each", target="y", trigger=on.partitions("raw/a"), enabled=True),
        Schedule(name="b", target="z", trigger=on.partitions("raw/b", count=9), enabled=True),
    ]
    here = world(both)
    for second, (asset, partition) in enumerate((("raw/a", "1"), ("raw/b", "1"), ("raw/a", "2"))):
        here.feed.arrive(asset, partition)
        here.tick(second + 1)
    here.tick(5)
    client = api()
    listed = client.get("/events?kind=partition").json()
    assert [(one["subject"], one["partition"]) for one in listed["events"]] == [
        ("raw/a", "2"), ("raw/b", "1"), ("raw/a", "1"),
    ]  # fmt: skip
    oldest = listed["events"][-1]
    assert sorted((one["schedule"], one["state"]) for one in oldest["jobs"]) == [
        ("each", "launched"),
        ("pair", "launched"),
    ]
    assert {one["run_id"] for one in oldest["jobs"]} <= set(here.dagster.runs)
    page = client.get("/events?kind=partition&limit=2").json()
    rest = client.get(f"/events?kind=partition&limit=2&cursor={page['next_cursor']}").json()
    assert page["events"] + rest["events"] == listed["events"]
    assert rest["next_cursor"] is None
    span = {"taken_from": at(2).isoformat(), "taken_until": at(3).isoformat()}
    (only,) = client.get("/events", params=span).json()["events"]
    assert (only["subject"], [one["schedule"] for one in only["jobs"]]) == ("raw/b", ["b"])
    found = client.get("/events?subject=raw/a&partition=2").json()["events"]
    assert [one["number"] for one in found] == [listed["events"][0]["number"]]
    for query in ("taken_from=today", "kind=x", "cursor=WyJ4Il0", "day=1"):
        problem(client.get(f"/events?{query}"), 422)
    limited = api(token=token(database, "events:read@asset=raw/b"))
    assert [one["subject"] for one in limited.get("/events").json()["events"]] == ["raw/b"]


def test_what_an_event_set_off_ends_where_the_scope_does(
    api: MakeApi, database: Database, world: Callable[..., World]
) -> None:
    """An arrival, its job, the end of that run, the job of this; a run is of no asset."""
    lake = world(
        [
            Schedule(name="load", target="load", trigger=on.partitions("raw/a"), enabled=True),
            Schedule(name="sums", target="sums", trigger=on.run("load"), enabled=True),
        ]
    )
    lake.feed.arrive("raw/a", "1")
    (run,) = lake.tick(1)
    lake.dagster.end(run)
    lake.tick(2)
    client = api()
    listed = client.get("/events").json()["events"]
    assert [(event["subject"], event["taken_in"]) for event in listed] == [
        ("load", "here"),
        ("raw/a", "here"),
    ]
    path = f"/events/{listed[1]['number']}"
    answer = client.get(path).json()
    assert {name: answer[name] for name in ("kind", "partition", "taken_in")} == {
        "kind": "partition", "partition": "1", "taken_in": "here",
    }  # fmt: skip
    (job,) = answer["jobs"]
    assert (job["schedule"], job["run_id"]) == ("load", run)
    (ended,) = job["events"]
    assert [event["schedule"] for event in ended["jobs"]] == ["sums"]
    assert job["more"] is False
    problem(client.get("/events/999"), 404)
    limited = api(token=token(database, "events:read@asset=raw/*"))
    assert limited.get(path).json()["jobs"] == [{**job, "events": []}]
    assert limited.get(f"/events/{listed[0]['number']}").status_code == 403


def plant_events(database: Database, taken: Sequence[tuple[EventKind, str]]) -> None:
    """Events that schedules of the only location took, event a second."""
    with database.begin() as tx:
        place = location_by_name(tx, "default", None)
        rows = [
            {
                "location_id": place.id, "number": 10_000 + second, "kind": kind,
                "subject": subject, "at": at(second), "taken_at": at(second),
                "details": json.dumps(Event(kind=kind, subject=subject, at=at(second)).to_json()),
            }
            for second, (kind, subject) in enumerate(taken)
        ]  # fmt: skip
        tx.execute(sa.insert(tables.events), rows)


def test_a_page_of_few_assets_passes_over_all_others_at_once(
    api: MakeApi, database: Database, world: Callable[..., World]
) -> None:
    """Among 5,000 events of another asset; a scope is no pattern of SQL."""
    world()
    scopes = ("a_*", "50%", "[!x]\\", "é?")
    subjects = ("a_1", "a_2", "50%", "y\\", "éé", "ab1", "50x", "x\\", "Éé", "éée", "a")
    expected = {"a_1", "a_2", "50%", "y\\", "éé"}
    taken = [(kind, event) for kind in (EventKind.PARTITION, EventKind.RUN) for event in subjects]
    plant_events(database, [*taken, *[(EventKind.PARTITION, "many")] * 5_000])
    limits = [f"events:read@asset={scope}" for scope in scopes]
    client = api(token=token(database, *limits))
    client.get("/events?limit=1")
    with statements_of(database.engine) as executed:
        answer = client.get("/events").json()
    assert {event["subject"] for event in answer["events"]} == expected
    assert {event["kind"] for event in answer["events"]} == {"partition"}
    assert answer["next_cursor"] is None
    assert len(executed) <= 12, executed


def test_what_a_query_cannot_pass_over_is_the_next_page(
    api: MakeApi, database: Database, world: Callable[..., World]
) -> None:
    """A set of letters is any letter there: a page reads on ten times, and then ends early."""
    world()
    plant_events(database, [(EventKind.PARTITION, event) for event in ("a", *["b"] * 50)])
    client = api(token=token(database, "events:read@asset=[a]"))
    pages, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/events?limit=1{cursor and '&cursor='}{cursor}").json()
        pages.append([event["subject"] for event in page["events"]])
        cursor = page["next_cursor"]
    assert pages == [[], [], ["a"]]


def test_events_of_several_locations_are_one_list(
    api: MakeApi, database: Database, world: Callable[..., World]
) -> None:
    """Newest first, whoever took them; a scope that is limited to a location has its own."""
    both = [Schedule(name="b", target="z", trigger=on.partitions("raw/b", count=9), enabled=True)]
    for number, place in enumerate(("east", "west")):
        lake = world(both, place)
        lake.feed.arrive("raw/b", place)
        lake.tick(number + 1)
    client = api()
    pages, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/events?limit=1{cursor and '&cursor='}{cursor}").json()
        pages += page["events"]
        cursor = page["next_cursor"]
    assert [event["taken_in"] for event in pages] == ["west", "east"]
    east = api(token=token(database, "events:read@location=east"))
    assert [event["partition"] for event in east.get("/events").json()["events"]] == ["east"]
    assert east.get("/events?location=west").status_code == 403
