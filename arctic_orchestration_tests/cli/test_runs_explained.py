"""``arctic runs explain``: why a run waits, and what will happen to it."""

import json
from collections.abc import Callable
from typing import Any

from dagster import DagsterRun
from dagster import DagsterRunStatus as Status

from arctic_orchestration.console.actor import person
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.cli.conftest import Clock, Outcome
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue
from arctic_orchestration_tests.schedules.simulated import World

Command = Callable[..., Outcome]
MakeQueue = Callable[..., RunQueue]

NIGHT = {"start": "22:00", "end": "06:00", "match": {"job": "load"}}


def explained(arctic: Command, run: DagsterRun) -> dict[str, Any]:
    """What ``arctic runs explain`` says to programs."""
    document: dict[str, Any] = json.loads(arctic("runs", "explain", run.run_id, "--json").out)
    return document


def ids_in_order(arctic: Command) -> list[str]:
    """The ids of queued runs, in the order in which they can start."""
    return [run["run_id"] for run in json.loads(arctic("runs", "list", "--json").out)["runs"]]


WHY = f"group many is paused since 2026-03-02 12:00:00Z by {person()} (moving house)"


def test_all_gates_of_a_run_are_explained(ruled: MakeQueue, arctic: Command, clock: Clock) -> None:
    """Open and shut, in the order in which they are judged, whichever holds it."""
    every = {"match": {"job": "load"}}
    queue = ruled(
        max_concurrent_runs=5,
        seconds_per_level=600,
        groups={
            "few": {"limit": 2, "limit_per_program": 1, **every},
            "many": {"limit": 9, **every},
        },
        windows={"night": NIGHT, "day": {"start": "06:00", "end": "18:00", **every}},
        rates={"api": {"limit": 3, "per": "1m", **every}},
        intervals={"calm": {"duration": "10m", **every}},
        tag_concurrency_limits=[{"key": "team", "value": "ops", "limit": 4}],
    )
    arctic("queues", "pause", "many", "--group", "--reason", "moving house")
    queue.submit("load", status=Status.STARTED)
    run = queue.submit("load", tags={"team": "ops"})
    queue.iterate()
    found = explained(arctic, run)
    assert [(gate["kind"], gate["open"], gate["text"]) for gate in found["queued"]["gates"]] == [
        ("paused", False, WHY),
        ("window", True, "window day is open until 2026-03-02 18:00:00Z (06:00-18:00 UTC)"),
        ("window", False, "window night opens at 2026-03-02 22:00:00Z (22:00-06:00 UTC)"),
        ("interval", False, "interval calm (10m between runs) of lake: load: a run is in progress"),
        ("rate", True, "rate api: 1 of 3 starts within 1m"),
        ("group", True, "group few: 1 of 2 runs are in progress"),
        ("group", True, "group many: 1 of 9 runs are in progress"),
        ("program", False, "group few, program lake: load: 1 of 1 runs are in progress"),
        ("tag", True, "tag team=ops: 0 of 4 runs are in progress"),
    ]
    assert found["paused"] == [
        {
            "kind": "group",
            "name": "many",
            "reason": "moving house",
            "since": "2026-03-02T12:00:00Z",
            "by": person(),
        }
    ]
    assert found["summary"] == (f"waits: {WHY}")
    assert found["queued"]["slots"] == {"in_use": 1, "ahead": 0, "limit": 5, "open": True}
    assert found["reported"]["since"] == "2026-03-02T12:00:00Z"
    clock.pass_(minutes=3)
    lines = [line.strip("│├└─ ") for line in arctic("runs", "explain", run.run_id).out.splitlines()]
    assert "reported since 2026-03-02 12:00:00Z" in lines
    assert "queued 2026-03-02 12:00:00Z, 3m ago; number 1 of 1" in lines
    place = lines.index("judged in this order")
    assert lines[place + 1 : place + 3] == [
        f"… {WHY}",
        "✓ window day is open until 2026-03-02 18:00:00Z (06:00-18:00 UTC)",
    ]
    assert lines[place + 10] == "✓ slots: 1 of 5 are in use"


def test_what_can_start_before_a_run_counts_for_it(ruled: MakeQueue, arctic: Command) -> None:
    """Two places in the group, three runs: the third finds it full, before anything has begun."""
    queue = ruled(max_concurrent_runs=3, groups={"few": {"limit": 2, "match": {"job": "*"}}})
    runs = [queue.submit("load") for _ in range(3)]
    gates = [explained(arctic, run)["queued"]["gates"][0] for run in runs]
    assert [(gate["open"], gate["text"]) for gate in gates] == [
        (True, "group few: 0 of 2 runs are in progress"),
        (True, "group few: 1 of 2 runs are in progress, counting 1 that can start before it"),
        (False, "group few: 2 of 2 runs are in progress, counting 2 that can start before it"),
    ]
    assert explained(arctic, runs[0])["summary"] == (
        "no rule holds it: it starts with the next pass"
    )
    assert queue.iterate() == [run.run_id for run in runs[:2]]


def test_a_share_is_explained_with_the_slots_that_it_is_worth(
    ruled: MakeQueue, arctic: Command
) -> None:
    """Three slots, shares 2 to 1: two for one queue, one for the other."""
    queue = ruled(max_concurrent_runs=3, queues={"big": {"share": 2, "match": {"job": "load"}}})
    big = [queue.submit("load") for _ in range(3)]
    small = [queue.submit("bill") for _ in range(2)]
    third, second = explained(arctic, big[2])["queued"], explained(arctic, small[1])["queued"]
    assert third["share"] == {
        "queue": "big",
        "share": 2,
        "in_progress": 0,
        "ahead": 2,
        "may_use": 2,
        "open": False,
    }
    assert (second["share"]["may_use"], second["share"]["open"]) == (1, False)
    result = arctic("runs", "explain", big[2].run_id).out
    expected = "… share 2 of queue big: 0 of the 2 slots that it may use are in use"
    assert f"{expected}, counting 2 that can start before it" in result
    assert queue.iterate() == [big[0].run_id, big[1].run_id, small[0].run_id]
    # Now that all slots are in use, there is nothing to divide.
    result = arctic("runs", "explain", big[2].run_id).out
    assert "share 2 of queue big: it has 2 in use, and the next free one is divided" in result


def test_ageing_is_explained_by_the_moment_until_which_others_go_before(
    ruled: MakeQueue, arctic: Command, clock: Clock
) -> None:
    """Two levels of 600 s above it: at 12:20 it is over."""
    queue = ruled(queues={"urgent": {"level": 2, "match": {"job": "bill"}}})
    low, high = queue.submit("load"), queue.submit("bill")
    found = explained(arctic, low)["queued"]
    # Noon of 2026-03-02 is 1,772,452,800 s after 1970.
    assert (found["priority"], found["level"], found["highest_level"]) == (-1772452800, 0, 2)
    assert found["overtaken_until"] == "2026-03-02T12:20:00Z"
    lines = arctic("runs", "explain", low.run_id).out
    assert (
        "level 0: 10m of waiting count as one level; a run of level 2, the highest in use, is "
        "before it if it is queued until 2026-03-02 12:20:00Z"
    ) in lines
    assert "no higher level is in use" in arctic("runs", "explain", high.run_id).out
    clock.pass_(minutes=19)
    overtaking = queue.submit("bill")
    clock.pass_(minutes=2)
    too_late = queue.submit("bill")
    assert "nothing queued since 2026-03-02 12:20:00Z is before it" in (
        arctic("runs", "explain", low.run_id).out
    )
    assert ids_in_order(arctic) == [
        high.run_id,
        overtaking.run_id,
        low.run_id,
        too_late.run_id,
    ]


def test_pools_of_dagster_are_explained(ruled: MakeQueue, arctic: Command) -> None:
    """They hold runs that no rule holds; a run that begins without one is not held."""
    queue = ruled(groups={"few": {"limit": 5, "match": {"job": "*"}}})
    storage = queue.instance.event_log_storage
    storage.set_concurrency_slots("ice", 1)
    taker = queue.submit("needs_ice", status=Status.STARTED)
    storage.claim_concurrency_slot("ice", taker.run_id, "icy")
    held, free = queue.submit("needs_ice"), queue.submit("ice_or_anything")
    found = explained(arctic, held)
    assert found["summary"] == "waits: no rule holds it, but Dagster's pools are full"
    assert found["dagster_pools"]["hold"] is True
    assert found["dagster_pools"]["pools"][0]["text"].startswith("ice: 1 of 1 slots are taken")
    assert explained(arctic, free)["dagster_pools"]["hold"] is False
    assert queue.iterate() == [free.run_id]
    queue.iterate()
    queue.iterate()
    result = arctic("runs", "explain", held.run_id).out
    assert "Dagster's pools hold it: no step that it begins with would get a slot" in result
    assert explained(arctic, held)["queued"]["held_by"]["gate"] == "dagster"
    assert explained(arctic, queue.submit("load"))["dagster_pools"] is None


def test_a_run_that_does_not_wait_says_what_it_is(ruled: MakeQueue, arctic: Command) -> None:
    """In progress, ended, ended without a start; none of them has gates."""
    queue = ruled(seconds_per_level=600)
    begun, ended, canceled = (queue.submit("load") for _ in range(3))
    queue.report(canceled, Status.CANCELED)
    queue.iterate()
    assert explained(arctic, begun)["summary"].startswith("is being started, since 20")
    for run in (begun, ended):
        queue.report(run, Status.STARTED)
    queue.report(ended, Status.FAILURE)
    found = explained(arctic, begun)
    assert found["summary"].startswith("in progress since 20")
    assert (found["status"], found["queued"], found["reported"]) == ("STARTED", None, None)
    assert found["queued_at"] == "2026-03-02T12:00:00Z"
    summary = explained(arctic, ended)["summary"]
    assert summary.startswith("ended at 20")
    assert "Z: failure, after " in summary
    assert explained(arctic, canceled)["summary"].endswith("Z: canceled; it was never started")
    result = arctic("runs", "explain", ended.run_id[:13])
    assert result.code == 0
    assert "judged" not in result.out


def test_the_schedule_behind_a_run_is_named(
    ruled: MakeQueue, arctic: Command, world: Callable[..., World]
) -> None:
    """By the tag that the dispatcher gives its runs; a job that is gone is left out."""
    queue = ruled(groups={"few": {"limit": 0, "match": {"job": "*"}}})
    here = world(
        [
            Schedule(
                name="held",
                target="load",
                trigger=on.partitions("raw/a"),
                constraints=[only.delay("1h")],
                enabled=True,
            )
        ]
    )
    here.feed.arrive("raw/a", "1")
    here.tick(1)
    (job,) = json.loads(arctic("jobs", "list", "--json").out)["jobs"]
    run = queue.submit("load", tags={"arctic/job": job["id"]})
    found = explained(arctic, run)["scheduling_job"]
    assert (found["id"], found["schedule"], found["state"]) == (
        job["id"],
        "held",
        "waiting_constraints",
    )
    assert f"schedule held of {found['location']}, job {job['id']}" in (
        arctic("runs", "explain", run.run_id).out
    )
    gone = queue.submit("load", tags={"arctic/job": "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
    assert explained(arctic, gone)["scheduling_job"] is None
