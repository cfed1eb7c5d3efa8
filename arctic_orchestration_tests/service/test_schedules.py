"""``/schedules``: what a person does to schedules over REST."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service import schedule_actions
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, locations, schedules
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi

MakeWorld = Callable[..., World]

NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "target": {"job": "rollup"},
    "trigger": {"cron": {"expression": "0 4 * * *"}},
    "enabled": True,
}


def schedule(name: str, trigger: Any = None, **fields: Any) -> Schedule:
    fields = {"target": "rollup", "enabled": True, **fields}
    return Schedule(name=name, trigger=trigger or on.partitions("raw/a"), **fields)


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["schedules"]]


def test_a_schedule_is_created_shown_and_deleted(api: MakeApi, world: MakeWorld) -> None:
    """201 with its address and ETag; a second one of the name is 409; a deleted one is 404."""
    world()
    client = api()
    made = client.post("/schedules", json=NIGHTLY)
    assert made.status_code == 201
    assert made.headers["location"] == "/api/v1/schedules/nightly"
    shown = client.get("/schedules/nightly")
    assert shown.json() == made.json()
    assert shown.headers["etag"] == made.headers["etag"]
    assert shown.json()["definition"]["trigger"] == NIGHTLY["trigger"]
    assert (shown.json()["origin"], shown.json()["status"]) == ("api", "enabled")
    assert client.post("/schedules", json=NIGHTLY).status_code == 409
    assert client.delete("/schedules/nightly").status_code == 204
    assert client.get("/schedules/nightly").status_code == 404
    history = client.get("/schedules/nightly/history").json()["history"]
    assert [line["action"] for line in history] == ["created", "deleted"]


@pytest.mark.parametrize(
    "run", [{"assets": ["a", "a"]}, {"job": "j", "status": ["failure", "failure"]}]
)
def test_what_a_trigger_names_twice_counts_once(
    api: MakeApi, world: MakeWorld, run: dict[str, Any]
) -> None:
    """It is listened to once, and the definition stays as it was written."""
    world()
    made = api().post("/schedules", json={**NIGHTLY, "trigger": {"run": run}})
    assert made.status_code == 201, made.text
    shown = made.json()["definition"]["trigger"]["run"]
    assert {field: shown[field] for field in run} == run


def test_a_replacement_needs_the_etag_that_was_read(api: MakeApi, world: MakeWorld) -> None:
    """428 without it, 412 with a stale one; nothing is changed by either."""
    world()
    client = api()
    first = client.post("/schedules", json=NIGHTLY).headers["etag"]
    changed = {**NIGHTLY, "priority": 3}
    assert client.put("/schedules/nightly", json=changed).status_code == 428
    done = client.put("/schedules/nightly", json=changed, headers={"If-Match": first})
    assert (done.status_code, done.json()["version"]) == (200, 2)
    assert done.headers["etag"] != first
    again = {**NIGHTLY, "priority": 4}
    stale = client.put("/schedules/nightly", json=again, headers={"If-Match": first})
    assert stale.status_code == 412
    assert done.headers["etag"] in stale.json()["detail"]
    for refused in (client.delete, client.patch):
        options: Any = {} if refused == client.delete else {"json": {"priority": 5}}
        answer = refused("/schedules/nightly", headers={"If-Match": first}, **options)
        assert answer.status_code == 412
    assert client.get("/schedules/nightly").json()["definition"]["priority"] == 3


def test_of_many_replacements_at_once_one_succeeds(
    api: MakeApi, world: MakeWorld, database: Database
) -> None:
    """The others read what is not there any more."""
    world()
    client = api()
    etag = client.post("/schedules", json=NIGHTLY).headers["etag"]

    def replace(priority: int) -> int:
        form = {**NIGHTLY, "priority": priority}
        return client.put("/schedules/nightly", json=form, headers={"If-Match": etag}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(replace, range(1, 9))) == [200, *[412] * 7]
    assert client.get("/schedules/nightly").json()["version"] == 2


def test_a_merge_patch_changes_some_fields(api: MakeApi, world: MakeWorld) -> None:
    """Null gives a field its default; the name is kept, and the status."""
    world()
    client = api()
    client.post("/schedules", json={**NIGHTLY, "priority": 3, "tags": {"a": "1", "b": "2"}})
    patch = {"priority": None, "tags": {"a": None, "c": "3"}, "enabled": False}
    answer = client.patch("/schedules/nightly", json=patch)
    definition = answer.json()["definition"]
    assert (definition["priority"], definition["tags"]) == (0, {"b": "2", "c": "3"})
    assert (answer.json()["status"], answer.json()["version"]) == ("enabled", 2)
    other_name = client.patch("/schedules/nightly", json={"name": "daily"})
    assert other_name.status_code == 422
    assert other_name.json()["errors"][0]["field"] == "name"


def test_all_problems_of_a_definition_come_at_once(api: MakeApi, world: MakeWorld) -> None:
    """Each with the path of its field, its value and what was expected."""
    world()
    bad = {"name": "a b", "trigger": {"partitions": {"asset": "x", "count": 0}}, "colour": "red"}
    answer = api().post("/schedules", json=bad)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problems = {one["field"]: (one["value"], one["expected"]) for one in answer.json()["errors"]}
    assert problems == {
        "name": ("a b", "1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _"),
        "target": (None, "a value: the field is required"),
        "trigger.partitions.count": (0, "at least 1"),
        "colour": ("red", "no such field"),
    }
    assert names(api().get("/schedules")) == []


def test_enabling_twice_is_a_conflict(api: MakeApi, world: MakeWorld) -> None:
    """So is suspending twice; the ETag changes with the status."""
    world([schedule("a")])
    client = api()
    assert client.post("/schedules/a/enable").status_code == 409
    before = client.get("/schedules/a").headers["etag"]
    done = client.post("/schedules/a/suspend", headers={"If-Match": before})
    assert (done.status_code, done.json()["status"]) == (200, "suspended")
    assert client.post("/schedules/a/suspend").status_code == 409
    assert client.post("/schedules/a/enable", headers={"If-Match": before}).status_code == 412
    assert client.post("/schedules/a/enable").json()["status"] == "enabled"


def test_the_list_is_filtered(api: MakeApi, world: MakeWorld) -> None:
    """By name, status, target, kind of trigger, and in composites by what sets a schedule off."""
    world(
        [
            schedule("both", on.partitions("raw/a") | on.cron("0 4 * * *")),
            schedule("clock", on.cron("0 4 * * *"), enabled=False),
            schedule("failed", on.run("rollup", status="failure")),
            schedule("january", on.partitions("raw/a", where="2026-01-*")),
            schedule("other", on.partitions("raw/b"), target="load"),
        ]
    )
    client = api()
    for query, expected in {
        "": ["both", "clock", "failed", "january", "other"],
        "name=*o*": ["both", "clock", "other"],
        "status=suspended": ["clock"],
        "target=load": ["other"],
        "trigger=cron": ["both", "clock"],
        "listens_to=raw/a": ["both", "january"],
        "asset=raw/a": ["both", "january"],
        "asset=raw/a&partition=2026-01-31": ["both", "january"],
        "asset=raw/a&partition=2026-02-01": ["both"],
        "run_of_job=rollup": ["failed"],
        "run_of_job=rollup&run_status=success": [],
        "run_of_job=rollup&run_status=failure": ["failed"],
        "run_of_job=rollup&run_status=success&run_status=failure": ["failed"],
        "run_of_job=rollup&run_status=failure&run_location=there": [],
    }.items():
        assert names(client.get(f"/schedules?{query}")) == expected, query
    for bad, field in {
        "status=on": "status",
        "trigger=clock": "trigger",
        "partition=1": "partition",
        "stauts=enabled": "stauts",
        "limit=0": "limit",
        "cursor=x": "cursor",
        "location=there": None,
    }.items():
        answer = client.get(f"/schedules?{bad}")
        errors = answer.json()["errors"]
        assert (answer.status_code, errors[0]["field"] if errors else None) == (
            422 if field else 404,
            field,
        ), bad


def test_what_a_filter_cannot_say_of_an_event_excludes_no_schedule(
    api: MakeApi, world: MakeWorld
) -> None:
    """Runs have tags and arrivals metadata; a run of an asset may be of any job."""
    paid = on.partitions("raw/a", where="2026-*", metadata={"source": "ftp"})
    world(
        [
            schedule("by_hand", on.run("load", tags={"by": "hand"})),
            schedule("of_asset", on.run("load", assets=["raw/b"], location="*", status="failure")),
            schedule("paid", paid),
            schedule("since", on.elapsed("1h", since=on.run("load", tags={"by": "hand"}))),
        ]
    )
    client = api()
    for query, expected in {
        "run_of_job=load": ["by_hand", "since"],
        "run_of_job=load&run_status=failure": [],
        "run_of_asset=raw/b": ["of_asset"],
        "run_of_asset=raw/b&run_of_job=load": ["by_hand", "of_asset", "since"],
        "run_of_asset=raw/b&run_of_job=other": [],
        "run_of_asset=raw/b&run_location=there": ["of_asset"],
        "run_of_asset=raw/b&run_status=success": [],
        "asset=raw/a&partition=2026-01-31": ["paid"],
        "asset=raw/a&partition=2025-01-31": [],
    }.items():
        assert names(client.get(f"/schedules?{query}")) == expected, query


def test_pages_go_on_over_locations(api: MakeApi, world: MakeWorld) -> None:
    """By location and name; each schedule once."""
    world([schedule("a"), schedule("b"), schedule("c")], location="east")
    world([schedule("a"), schedule("b")], location="west")
    client, found, cursor = api(), [], ""
    while True:
        page = client.get(f"/schedules?limit=2{cursor}").json()
        found += [(one["location"], one["name"]) for one in page["schedules"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    east, west = [("east", name) for name in "abc"], [("west", name) for name in "ab"]
    assert found == [*east, *west]
    assert client.get("/schedules/a").status_code == 422
    assert client.get("/schedules/a?location=west").json()["location"] == "west"


def test_a_schedule_is_launched_without_events(
    api: MakeApi, world: MakeWorld, database: Database
) -> None:
    """The next tick requests its run; a second launch before that takes the same job."""
    here = world([schedule("a", on.partitions("raw/a", count=3))])
    client = api()
    launched = client.post("/schedules/a/launch")
    assert launched.status_code == 202
    assert launched.json()["forced"] == "launched manually"
    assert client.post("/schedules/a/launch").json()["id"] == launched.json()["id"]
    assert here.tick(400 * 86_400) == ["run-1"]
    with database.read() as tx:
        assert tx.execute(sa.select(jobs.c.state)).scalars().all() == ["launching"]


def test_a_schedule_of_partitions_is_not_launched_without_one(
    api: MakeApi, world: MakeWorld
) -> None:
    """There would be nothing to run for."""
    world([schedule("a", partitions="each")])
    answer = api().post("/schedules/a/launch")
    assert answer.status_code == 409
    assert "no partition waits" in answer.json()["detail"]


def test_ticks_before_and_after_now(api: MakeApi, world: MakeWorld, database: Database) -> None:
    """Of one schedule, and of all of a filter; the earlier ones since it was created."""
    world([schedule("daily", on.cron("0 4 * * *")), schedule("data")])
    created = utc_now().replace(hour=3, minute=0, second=0, microsecond=0) - timedelta(days=2)
    with database.begin() as tx:
        tx.execute(sa.update(schedules).values(created_at=created))
    client = api()
    shown = client.get("/schedules/daily/ticks?next=0&previous=9").json()
    four = [created + timedelta(days=days, hours=1) for days in (2, 1, 0)]
    assert shown["previous"] == [iso(at) for at in four if at <= utc_now()]
    assert client.get("/schedules/data/ticks").json()["previous"] == []
    many = client.get("/ticks?target=rollup&next=2").json()["schedules"]
    assert [(one["schedule"], len(one["next"])) for one in many] == [("daily", 2), ("data", 0)]


def test_ticks_end_with_the_calendar(api: MakeApi, world: MakeWorld) -> None:
    """A hundred spans of nearly a hundred years would go on beyond the year 9999."""
    rare = on.elapsed("36499d", since=on.partitions("raw/a"))
    world([schedule("rare", rare, timeout=timedelta(days=36_500))])
    (listed,) = api().get("/ticks?next=100").json()["schedules"]
    # (9001 - 2026) * 365.2425 / 36499 is 69.8: the 70th is the first one after the year 9000.
    assert len(listed["next"]) == 70


def test_all_suspended_in_a_span_are_enabled_again(api: MakeApi, world: MakeWorld) -> None:
    """First a count; then, if no more match than that, the change. A new one was not suspended."""
    world([schedule("a"), schedule("b"), schedule("c"), schedule("never", enabled=False)])
    client = api()
    client.post("/schedules/c/suspend")
    begin = iso(utc_now())
    for name in "ab":
        client.post(f"/schedules/{name}/suspend")
    span = {"suspended_from": begin, "suspended_until": iso(utc_now() + timedelta(hours=1))}
    action = "/schedule-actions/enable"
    counted = client.post(action, params=span).json()
    assert (counted["matched"], counted["first"], counted["changed"]) == (2, ["a", "b"], 0)
    unconfirmed = client.post(action, params={**span, "dry_run": "false"})
    assert unconfirmed.json()["errors"][0]["field"] == "at_most"
    real = {**span, "dry_run": "false"}
    assert client.post(action, params={**real, "at_most": "1"}).status_code == 409
    assert names(client.get("/schedules?status=enabled")) == []
    assert client.post(action, params={**real, "at_most": "2"}).json()["changed"] == 2
    assert names(client.get("/schedules?status=enabled")) == ["a", "b"]


def test_many_are_changed_a_few_at_a_time(
    api: MakeApi, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of thousands would keep the dispatcher and all others waiting."""
    world([schedule(name) for name in "abcde"])
    sizes: list[int] = []
    change_all = schedule_actions._change_all

    def noted(*arguments: Any) -> None:
        sizes.append(len(arguments[4]))
        change_all(*arguments)

    monkeypatch.setattr(schedule_actions, "_change_all", noted)
    monkeypatch.setattr(schedule_actions, "_AT_ONCE", 2)
    client = api()
    params = {"dry_run": "false", "at_most": "5"}
    assert client.post("/schedule-actions/suspend", params=params).json()["changed"] == 5
    assert sizes == [2, 2, 1]
    assert names(client.get("/schedules?status=enabled")) == []


@pytest.mark.parametrize("media_type", ["application/json", "application/yaml", "text/yaml"])
def test_a_file_is_compared_then_applied(api: MakeApi, world: MakeWorld, media_type: str) -> None:
    """All or none; a dry run is the default."""
    world()
    client = api()
    client.post("/schedules", json=NIGHTLY)
    trigger = '{"cron": {"expression": "0 5 * * *"}}'
    text = (
        '{"schedules": [{"name": "nightly", "target": {"job": "rollup"}, "enabled": true, '
        f'"trigger": {trigger}}}]}}'
    )
    headers = {"Content-Type": media_type}
    for query, applied, version in (("", False, 1), ("?dry_run=false", True, 2)):
        answer = client.post(f"/schedule-files{query}", content=text, headers=headers).json()
        (change,) = answer["difference"]["updated"]
        assert change["fields"] == [
            {"path": "trigger.cron.expression", "old": "0 4 * * *", "new": "0 5 * * *"}
        ]
        assert answer["applied"] is applied
        assert client.get("/schedules/nightly").json()["version"] == version
    bad = text.replace("0 5 * * *", "0 5").replace('"rollup"', "3")
    refused = client.post("/schedule-files?dry_run=false", content=bad, headers=headers)
    assert {one["field"] for one in refused.json()["errors"]} == {
        "schedules[0].target.job",
        "schedules[0].trigger.cron.expression",
    }


def test_a_specification_names_what_differs_from_the_code(api: MakeApi, world: MakeWorld) -> None:
    """A declared schedule that was changed by hand, one that was deleted, one made by hand."""
    world([schedule("changed"), schedule("deleted"), schedule("same")])
    client = api()
    client.patch("/schedules/changed", json={"priority": 7})
    client.delete("/schedules/deleted")
    client.post("/schedules", json=NIGHTLY)
    shown = client.get("/locations/here").json()
    assert shown["deleted"] == ["deleted"]
    by_name = {one["name"]: one for one in shown["schedules"]}
    assert by_name["changed"]["differences"] == [{"path": "priority", "old": 0, "new": 7}]
    assert by_name["changed"]["declared"]["priority"] == 0
    assert by_name["nightly"]["declared"] is None
    assert by_name["same"]["differences"] == []
    (location,) = client.get("/locations").json()["locations"]
    assert (location["name"], location["schedules"]) == ("here", 3)


@pytest.mark.parametrize("name", ["team/lake", "/lake", "lake/", "a b/../c?d"])
def test_a_location_is_found_whatever_its_name_is(
    api: MakeApi, world: MakeWorld, name: str
) -> None:
    """Also with slashes that a server has decoded."""
    here = world([schedule("nightly")])
    with here.database.begin() as tx:
        tx.execute(sa.update(locations).values(name=name))
    client = api()
    shown = client.get(f"/locations/{quote(name, safe='')}").json()
    assert shown["location"]["name"] == name
    assert [one["name"] for one in shown["schedules"]] == ["nightly"]
