"""``/jobs``: what waits, why, and what a person does about it, over REST."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views import listing
from arctic_orchestration.service import job_actions
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, schedules
from arctic_orchestration_tests.schedules.lake_of_partitions import DAY, HOUR, daily, lake, runs
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token
from arctic_orchestration_tests.statements import statements_of

__all__ = ["lake"]

MakeWorld = Callable[..., World]


def held(name: str, asset: str = "raw/a", **fields: Any) -> Schedule:
    """A schedule that waits for a second partition."""
    trigger = on.partitions(asset, count=2)
    return Schedule(name=name, target="rollup", trigger=trigger, enabled=True, **fields)


@pytest.fixture
def waiting(world: MakeWorld) -> World:
    """Jobs of three schedules: two wait for a partition, one is launched."""
    ready = Schedule(name="c", target="rollup", trigger=on.partitions("raw/c"), enabled=True)
    here = world([held("a", constraints=[only.concurrency(1)]), held("b", "raw/b"), ready])
    for asset in ("raw/a", "raw/b", "raw/c"):
        here.feed.arrive(asset, "1")
    here.tick(1)
    return here


def listed(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 200, answer.text
    return sorted((one["schedule"], one["state"]) for one in answer.json()["jobs"])


def test_jobs_are_listed_by_state_schedule_and_text(api: MakeApi, waiting: World) -> None:
    """Groups of states, too; an unknown state is refused by name."""
    client = api()
    a, b, c = ("a", "waiting_trigger"), ("b", "waiting_trigger"), ("c", "launching")
    for query, expected in {
        "": [a, b, c],
        "state=waiting": [a, b],
        "state=waiting&state=launching": [a, b, c],
        "schedule=b": [b],
        "text=RAW/B": [b],
        "text=%25": [],
        "partition=1": [],
        "held_by=nobody": [],
    }.items():
        assert listed(client.get(f"/jobs?{query}")) == expected, query
    refused = client.get("/jobs?state=asleep")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "state")
    assert refused.json()["detail"].startswith("state: got 'asleep', expected ")


def test_pages_of_jobs_go_from_new_to_old(api: MakeApi, waiting: World) -> None:
    """Each job once, also where several were made at one moment."""
    client, found, cursor = api(), [], ""
    while True:
        page = client.get(f"/jobs?limit=1{cursor}").json()
        found += [one["id"] for one in page["jobs"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(found) == 3
    assert found == [one["id"] for one in client.get("/jobs").json()["jobs"]]


def test_pages_of_a_limited_scope_read_no_jobs_of_others(
    api: MakeApi, database: Database, world: MakeWorld
) -> None:
    """Among 3,000 newer jobs of another schedule; the case of letters counts."""
    names = ("a_1", "a_2", "b.x", "d-x", "ab1", "A_1", "bxx", "e-x", "D-x")
    here = world([held(name) for name in (*names, "many")])
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    with database.begin() as tx:
        many = sa.select(schedules.c.id).where(schedules.c.name == "many").scalar_subquery()
        (row,) = tx.execute(sa.select(jobs).where(jobs.c.schedule_id == many)).mappings()
        ended = {**row, "state": "succeeded", "created_at": at(9), "ended_at": at(10)}
        tx.execute(sa.insert(jobs), [{**ended, "id": f"z{n:025}"} for n in range(3_000)])
    limits = [f"jobs:read@schedule={glob}" for glob in ("a_*", "b.?", "[cd]-x")]
    client = api(token=token(database, *limits))
    whole = client.get("/jobs")
    assert [name for name, _ in listed(whole)] == ["a_1", "a_2", "b.x", "d-x"]
    found, cursor = [], ""
    with statements_of(database.engine) as executed:
        while cursor is not None:
            page = client.get(f"/jobs?limit=2{cursor and '&cursor='}{cursor}").json()
            found.append(page["jobs"])
            cursor = page["next_cursor"]
    assert [len(page) for page in found] == [2, 2]
    assert [job for page in found for job in page] == whole.json()["jobs"]
    assert sum("FROM arctic_jobs" in statement for statement in executed) == 2, executed
    assert listed(client.get("/jobs?schedule=many")) == []


def test_a_job_explains_itself(api: MakeApi, waiting: World) -> None:
    """Its trigger is a tree, which says what is missing."""
    client = api()
    (job,) = client.get("/jobs?schedule=a").json()["jobs"]
    explained = client.get(f"/jobs/{job['id']}/explanation").json()
    assert explained["trigger"]["reason"] == "1 of 2 partitions of raw/a have arrived"
    assert explained["trigger"]["satisfied"] is False
    assert [one["form"] for one in explained["constraints"]] == [{"concurrency": {"limit": 1}}]
    assert client.get("/schedules/a/explanation").json() == explained
    details = client.get(f"/jobs/{job['id']}").json()
    assert [event["partition"] for event in details["events"]] == ["1"]
    assert details["job"] == job
    history = client.get(f"/jobs/{job['id']}/history").json()["history"]
    assert history == details["history"]
    for path in ("", "/history", "/explanation"):
        assert client.get(f"/jobs/nobody{path}").status_code == 404


def test_a_job_is_launched_and_canceled(api: MakeApi, waiting: World) -> None:
    """Neither twice; one that has a run belongs to Dagster."""
    client = api()
    ids = {one["schedule"]: one["id"] for one in client.get("/jobs").json()["jobs"]}
    etag = client.get(f"/jobs/{ids['a']}").headers["etag"]
    launched = client.post(f"/jobs/{ids['a']}/launch", headers={"If-Match": etag})
    assert (launched.status_code, launched.json()["forced"]) == (202, "launched manually")
    stale = client.post(f"/jobs/{ids['a']}/cancel", headers={"If-Match": etag})
    assert stale.status_code == 412
    assert client.post(f"/jobs/{ids['b']}/cancel").json()["state"] == "discarded"
    refused = client.post(f"/jobs/{ids['b']}/cancel")
    assert refused.status_code == 409
    assert refused.json()["detail"].endswith("discarded: canceled manually")
    waiting.tick(2)
    waiting.tick(3)
    assert client.post(f"/jobs/{ids['c']}/cancel").status_code == 409


def test_all_jobs_of_a_filter_are_canceled_after_a_count(api: MakeApi, waiting: World) -> None:
    """Those that have ended are not counted, and neither are those of others."""
    client = api()
    action = "/job-actions/cancel"
    assert client.post(action, params={"state": "waiting"}).json()["matched"] == 2
    assert client.post(action, params={"state": "ended"}).json()["matched"] == 0
    real = {"schedule": "b", "dry_run": "false"}
    assert client.post(action, params={**real, "at_most": "0"}).status_code == 409
    done = client.post(action, params={**real, "at_most": "9"}).json()
    assert (done["matched"], done["changed"], done["refused"]) == (1, 1, [])
    states = [("a", "waiting_trigger"), ("b", "discarded"), ("c", "launching")]
    assert listed(client.get("/jobs")) == states
    launch = {"dry_run": "false", "at_most": "1"}
    assert client.post("/job-actions/launch", params=launch).json()["changed"] == 1
    assert client.post("/job-actions/stop").status_code == 422


def test_the_job_that_keeps_common_events_is_not_canceled_with_all_others(
    api: MakeApi, lake: Callable[..., World]
) -> None:
    """A partition that begins later gets what it keeps: it waits for no other configuration."""
    trigger = on.partitions("raw/payments") & on.partitions("config")
    here = lake(daily(trigger=trigger, constraints=[only.delay("1h")]))
    here.feed.arrive("config")
    here.feed.arrive("raw/payments", "2026-01-01")
    here.tick(2 * DAY)
    real = {"state": "waiting", "dry_run": "false", "at_most": "9"}
    done = api().post("/job-actions/cancel", params=real).json()
    assert (done["matched"], done["changed"]) == (1, 1)
    here.feed.arrive("raw/payments", "2026-01-02")
    here.tick(2 * DAY + 1)
    here.tick(2 * DAY + 1 + HOUR)
    assert runs(here) == ["2026-01-02"]


def test_the_jobs_of_many_locations_are_counted_in_one_reading(
    api: MakeApi, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page would read those of all locations: with 200 of them, a count took half a minute."""
    for location in ("one", "two", "three"):
        here = world([held("a"), held("b")], location=location)
        here.feed.arrive("raw/a", "1")
        here.tick(1)
    read: list[str] = []
    list_jobs = listing.list_jobs

    def noted(*given: Any, **named: Any) -> Any:
        found = list_jobs(*given, **named)
        read.extend(one.job.id for one in found)
        return found

    monkeypatch.setattr(listing, "list_jobs", noted)
    monkeypatch.setattr(job_actions, "_PAGE", 1)
    found = api().post("/job-actions/cancel").json()
    assert (found["matched"], found["first"]) == (6, sorted(set(read), reverse=True))
    # The second job of each location is read with the first page, too: it tells of a next one.
    assert len(read) == 6 + 3
