"""``arctic queues``, beside Dagster's own daemon that goes through the queue."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status

from arctic_orchestration.console.actor import person
from arctic_orchestration.quantities import format_moment
from arctic_orchestration_tests.cli.conftest import Clock, Outcome
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import STOCK, RunQueue

Command = Callable[..., Outcome]
MakeQueue = Callable[..., RunQueue]


def listed(arctic: Command) -> dict[str, Any]:
    """What ``arctic queues list`` says to programs."""
    document: dict[str, Any] = json.loads(arctic("queues", "list", "--json").out)
    return document


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_paused_queue_holds_its_runs_from_the_next_pass_on(
    ruled: MakeQueue, arctic: Command, clock: Clock
) -> None:
    """What is in progress goes on, other queues too, until it is resumed."""
    queue = ruled(max_concurrent_runs=9, queues={"low": {"match": {"job": "load"}}})
    running = queue.submit("load")
    assert queue.iterate() == [running.run_id]
    held = [queue.submit("load") for _ in range(2)]
    result = arctic("queues", "pause", "low", "--reason", "moving house")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "queue low is paused: from the next pass on no run of it starts",
        "2 runs wait in it, 1 run is in progress and goes on",
    ]
    other = queue.submit("bill")
    assert queue.iterate() == [other.run_id]
    assert queue.iterate() == []
    (line, _) = json.loads(arctic("runs", "list", "--json").out)["runs"]
    assert line["held_by"]["reason"] == (
        f"queue low is paused since 2026-03-02 12:00:00Z by {person()} (moving house)"
    )
    clock.pass_(seconds=5)
    result = arctic("queues", "resume", "low")
    assert result.out.splitlines() == [
        "queue low is not paused any more: its runs start from the next pass on",
        "2 runs wait in it, 1 run is in progress",
    ]
    assert queue.iterate() == [run.run_id for run in held]


def test_a_paused_group_holds_its_runs_from_the_next_pass_on(
    ruled: MakeQueue, arctic: Command
) -> None:
    """Also a group without a limit on all its runs."""
    queue = ruled(groups={"ops": {"limit_per_program": 5, "match": {"job": "load"}}})
    found = json.loads(arctic("queues", "pause", "ops", "--group", "--json").out)
    assert found == {
        "group": "ops",
        "paused": {"since": "2026-03-02T12:00:00Z", "reason": "", "by": person()},
        "changed": True,
        "waiting": 0,
        "in_progress": 0,
    }
    held, free = queue.submit("load"), queue.submit("bill")
    assert queue.iterate() == [free.run_id]
    found = json.loads(arctic("queues", "resume", "ops", "--group", "--json").out)
    assert (found["paused"], found["changed"], found["waiting"]) == (None, True, 1)
    assert queue.iterate() == [held.run_id]


def test_what_is_so_already_is_not_changed(ruled: MakeQueue, arctic: Command, clock: Clock) -> None:
    """The first reason and its moment stay."""
    ruled(queues={"low": {}})
    assert "queue low is not paused; nothing was changed" in arctic("queues", "resume", "low").out
    arctic("queues", "pause", "low", "--reason", "moving house")
    clock.pass_(seconds=30)
    again = arctic("queues", "pause", "low", "--reason", "another")
    assert again.code == 0
    assert again.out.splitlines()[0] == (
        f"queue low is paused since 2026-03-02 12:00:00Z by {person()} (moving house) already; "
        "nothing was changed"
    )
    found = json.loads(arctic("queues", "pause", "low", "--json").out)
    assert (found["changed"], found["paused"]["reason"]) == (False, "moving house")


def paused_of(name: str, arctic: Command) -> object:
    """The pause of a queue, as it is listed."""
    return next(line["paused"] for line in listed(arctic)["queues"] if line["queue"] == name)


def test_a_queue_that_is_configured_as_paused_can_be_resumed(
    ruled: MakeQueue, arctic: Command
) -> None:
    """What a person said last stands over dagster.yaml."""
    queue = ruled(queues={"low": {"paused": True, "match": {"job": "load"}}})
    run = queue.submit("load")
    assert queue.iterate() == []
    assert paused_of("low", arctic) == {"since": None, "reason": "", "by": ""}
    again = arctic("queues", "pause", "low").out.splitlines()[0]
    assert again == "queue low is paused in dagster.yaml already; nothing was changed"
    assert arctic("queues", "resume", "low").code == 0
    assert paused_of("low", arctic) is None
    assert queue.iterate() == [run.run_id]


def test_queues_and_groups_are_listed(ruled: MakeQueue, arctic: Command) -> None:
    """With what is in progress in them and what waits; a run that nobody queued counts, too."""
    queue = ruled(
        max_concurrent_runs=4,
        queues={"low": {"level": -1, "share": 0.5, "match": {"job": "load"}}},
        groups={
            "few": {"limit": 2, "match": {"job": "load"}},
            "each": {"limit": 9, "limit_per_program": 1, "match": {"job": "*"}},
        },
    )
    queue.submit("load", status=Status.STARTED)
    for job in ("load", "load", "bill"):
        queue.submit(job)
    arctic("queues", "pause", "few", "--group", "--reason", "disk [full]")
    found = listed(arctic)
    assert (found["waiting"], found["in_progress"], found["max_concurrent_runs"]) == (3, 1, 4)
    assert [
        (line["queue"], line["level"], line["share"], line["in_progress"], line["waiting"])
        for line in found["queues"]
    ] == [("default", 0, 1, 0, 1), ("low", -1, 0.5, 1, 2)]
    assert [
        (line["group"], line["limit"], line["limit_per_program"], line["in_progress"])
        for line in found["groups"]
    ] == [("each", 9, 1, 1), ("few", 2, None, 1)]
    result = arctic("queues", "list")
    assert result.code == 0
    lines = [cells(line) for line in result.out.splitlines()]
    assert ["2 queues, 1 of 4 slots in use"] in lines
    assert ["low", "-1", "0.5", "1", "2"] in lines
    assert [
        "few",
        "2 at once",
        "1",
        "2",
        f"since 2026-03-02 12:00:00Z by {person()}: disk [full]",
    ] in lines
    assert ["each", "9 at once, 1 a program", "1", "3"] in lines


def test_runs_of_a_queue_that_is_gone_are_counted_apart(
    ruled: MakeQueue, make_queue: MakeQueue, backend: str, arctic: Command
) -> None:
    """They are in no queue of today."""
    ruled(queues={"gone": {"match": {"job": "load"}}}).submit("load")
    ruled(queues={"low": {"match": {"job": "load"}}})
    found = listed(arctic)
    assert ([line["waiting"] for line in found["queues"]], found["in_no_queue"]) == ([0, 0], 1)
    assert "or their queue was removed" in " ".join(arctic("queues", "list").out.split())


def test_runs_from_before_there_were_queues_are_counted_apart(
    ruled: MakeQueue, make_queue: MakeQueue, backend: str, arctic: Command
) -> None:
    """No pause of a queue holds them, which people should know."""
    make_queue(backend, STOCK).submit("load")
    ruled(queues={"low": {"match": {"job": "load"}}})
    found = listed(arctic)
    assert (found["queues"][0]["waiting"], found["in_no_queue"]) == (0, 1)
    expected = "1 run waits in no queue: they were queued before there were queues"
    assert expected in arctic("queues", "list").out


def test_windows_are_listed_with_the_moment_at_which_they_change(
    ruled: MakeQueue, arctic: Command, clock: Clock
) -> None:
    """Open until, or closed until."""
    queue = ruled(windows={"night": {"start": "22:00", "end": "06:00", "match": {"job": "load"}}})
    queue.submit("load")
    (night,) = listed(arctic)["rules"]
    assert night == {
        "kind": "window",
        "name": "night",
        "rule": "22:00-06:00 UTC",
        "open": False,
        "state": "closed until 2026-03-02 22:00:00Z",
        "until": "2026-03-02T22:00:00Z",
        "waiting": 1,
    }
    clock.pass_(hours=10)
    (night,) = listed(arctic)["rules"]
    assert (night["open"], night["state"]) == (True, "open until 2026-03-03 06:00:00Z")
    lines = [cells(line) for line in arctic("queues", "list").out.splitlines()]
    assert ["window", "night", "22:00-06:00 UTC", "1", "open until 2026-03-03 06:00:00Z"] in lines


def test_rates_and_intervals_are_listed_as_they_are_now(
    ruled: MakeQueue, arctic: Command, clock: Clock
) -> None:
    """By the starts and ends that Dagster stored, until the last of them is long ago."""
    queue = ruled(
        rates={"api": {"limit": 1, "per": "1m", "match": {"job": "load"}}},
        intervals={"calm": {"duration": "10m", "match": {"job": "*"}}},
    )
    clock.now = datetime.now(UTC)
    run = queue.submit("load")
    assert [rule["state"] for rule in listed(arctic)["rules"]] == [
        "0 of 1 were started",
        "no program is in progress or has just ended",
    ]
    assert queue.iterate() == [run.run_id]
    queue.report(run, Status.STARTED)
    _, calm = listed(arctic)["rules"]
    assert (calm["state"], calm["open"]) == ("1 program in progress", None)
    queue.report(run, Status.SUCCESS)
    (record,) = queue.instance.get_run_records()
    started, ended = (datetime.fromtimestamp(at, UTC) for at in (record.start_time or 0,
                                                                 record.end_time or 0))  # fmt: skip
    clock.now = ended + timedelta(seconds=1)
    api, calm = listed(arctic)["rules"]
    free_at, rests_until = started + timedelta(minutes=1), ended + timedelta(minutes=10)
    assert api["state"] == f"1 of 1 were started, the next may start at {format_moment(free_at)}"
    assert api["open"] is False
    assert calm["state"] == f"1 program rests until {format_moment(rests_until)}"
    clock.pass_(minutes=11)
    assert [rule["state"] for rule in listed(arctic)["rules"]] == [
        "0 of 1 were started",
        "no program is in progress or has just ended",
    ]


def test_no_rules_are_no_error(ruled: MakeQueue, arctic: Command) -> None:
    """The class of ours is there, and has nothing to show."""
    ruled()
    result = arctic("queues", "list")
    assert (result.code, result.out) == (
        0,
        "dagster.yaml has no queues, groups or other rules for runs\n",
    )


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_names_that_no_rule_has_are_refused(ruled: MakeQueue, arctic: Command) -> None:
    """With those there are; a group is no queue, and nothing is kept."""
    ruled(queues={"low": {}}, groups={"few": {"limit": 1}})
    for command, wrong in (
        (("queues", "pause", "lwo"), "has no queue lwo in run_coordinator.config.queues; it has: "
                                     "default, low"),
        (("queues", "resume", "few"), "has no queue few"),
        (("queues", "pause", "low", "--group"), "has no group low in "
                                                "run_coordinator.config.groups; it has: few"),
    ):  # fmt: skip
        refused = arctic(*command)
        assert refused.code == 2
        assert wrong in " ".join(refused.err.split())
    found = listed(arctic)
    assert all(line["paused"] is None for line in (*found["queues"], *found["groups"]))
