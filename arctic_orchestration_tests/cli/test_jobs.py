"""``arctic jobs`` and ``arctic events``."""

import json
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules.cli import events
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, schedule

Command = Callable[..., Outcome]


def ids(world: World) -> list[str]:
    with world.database.read() as tx:
        return list(
            tx.execute(sa.select(jobs.c.id).order_by(jobs.c.created_at, jobs.c.id)).scalars()
        )


@pytest.fixture
def here(world: MakeWorld) -> World:
    """A job that ended, one that waits for its trigger and one that is held."""
    made = world(
        [
            schedule("done"),
            schedule("counts", trigger=on.partitions("raw/a", count=3) | on.cron("0 4 * * *")),
            schedule("held", target="x", constraints=[only.delay("1h"), only.concurrency(2)]),
        ]
    )
    made.feed.arrive("raw/a", "[red]", size=1500)
    made.tick(1)
    made.tick(2)
    made.dagster.end("run-1")
    made.tick(3)
    return made


def test_jobs_are_listed_by_schedule_and_state(here: World, arctic: Command) -> None:
    """Newest first; waiting, active and ended stand for several states."""
    found = json.loads(arctic("jobs", "list", "--json").out)
    assert {job["schedule"]: job["state"] for job in found["jobs"]} == {
        "done": "succeeded",
        "counts": "waiting_trigger",
        "held": "waiting_constraints",
    }
    waiting = json.loads(arctic("jobs", "list", "--state", "waiting", "--json").out)
    assert {job["schedule"] for job in waiting["jobs"]} == {"counts", "held"}
    of_one = json.loads(arctic("jobs", "list", "--schedule", "held", "--json").out)
    assert [job["next_check_at"] for job in of_one["jobs"]] == ["2026-01-01T01:00:01Z"]
    assert len(json.loads(arctic("jobs", "list", "-n", "1", "--json").out)["jobs"]) == 1
    table = arctic("jobs", "list", "--state", "succeeded")
    assert "run run-1 ended: success" in table.out
    assert arctic("jobs", "list", "--state", "launching").out == "no such jobs\n"
    refused = arctic("jobs", "list", "--state", "asleep")
    assert refused.code == 2
    assert "--state: got 'asleep', expected one of waiting_trigger" in refused.err
    assert arctic("jobs", "list", "--schedule", "nope").code == 2


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_in_a_narrow_terminal_reasons_stand_below_their_lines(
    here: World, arctic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than in a column of three letters."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = arctic("jobs", "list", "--schedule", "held").out.splitlines()
    assert lines[0].split()[1:3] == ["held", "waiting_constraints"]
    assert lines[1].rstrip() == "    1h after the trigger, at 2026-01-01 01:00:01Z"


def test_explain_prints_the_tree_of_what_a_schedule_waits_for(here: World, arctic: Command) -> None:
    """Each child of the trigger with what has arrived and what is missing."""
    result = arctic("jobs", "explain", "counts")
    assert result.code == 0
    lines = [line.strip("│├└─ ") for line in result.out.splitlines()]
    assert lines[0] == "counts  enabled, version 1"
    for expected in (
        "trigger … any_of",
        "… partitions asset raw/a, count 3",
        "1 of 3 partitions of raw/a have arrived",
        "1 event, 1.5 KB at 2026-01-01 00:00:01Z",
        "… cron expression 0 4 * * *",
        "next tick 2026-01-01 04:00:00Z",
        "constraints none",
        "timeout at 2026-01-02 00:00:01Z it is discarded",
        "partitions [red]",
    ):
        assert expected in lines


def test_explain_prints_each_constraint_with_its_verdict(here: World, arctic: Command) -> None:
    """By the schedule's name or by a part of the job's id."""
    (held,) = [job for job in json.loads(arctic("jobs", "list", "--json").out)["jobs"]
               if job["schedule"] == "held"]  # fmt: skip
    by_name = arctic("jobs", "explain", "held").out
    assert arctic("jobs", "explain", held["id"][-8:]).out == by_name
    lines = [line.strip("│├└─ ") for line in by_name.splitlines()]
    place = lines.index("… delay duration 1h")
    assert lines[place : place + 5] == [
        "… delay duration 1h",
        "hold: 1h after the trigger, at 2026-01-01 01:00:01Z",
        "next check 2026-01-01 01:00:01Z",
        "✓ concurrency limit 2",
        "admit: 0 of 2 runs of this target are active",
    ]
    document = json.loads(arctic("jobs", "explain", "held", "--json").out)
    assert [node["decision"] for node in document["constraints"]] == ["hold", "admit"]
    assert document["job"]["id"] == held["id"]


def test_a_name_that_is_neither_job_nor_schedule_is_refused(here: World, arctic: Command) -> None:
    """With names that are near; a part of several ids with those ids."""
    refused = arctic("jobs", "explain", "heldd")
    assert refused.code == 2
    assert "no schedule heldd; did you mean held?" in refused.err
    several = arctic("jobs", "explain", ids(here)[0][:8])
    assert several.code == 2
    assert "several have it" in several.err
    assert arctic("jobs", "show", "xy").code == 2


def test_a_job_is_shown_with_what_it_had_and_was_launched_with(
    here: World, arctic: Command
) -> None:
    """Its events, its target and its history."""
    found = json.loads(arctic("jobs", "list", "--schedule", "done", "--json").out)["jobs"]
    document = json.loads(arctic("jobs", "show", found[0]["id"], "--json").out)
    assert document["launch"]["target"] == {"job": "rollup"}
    (event,) = document["events"]
    assert (event["subject"], event["partition"], event["bytes"]) == ("raw/a", "[red]", 1500)
    assert [move["state"] for move in document["history"]] == [
        "waiting_constraints",
        "launching",
        "launched",
        "succeeded",
    ]
    result = arctic("jobs", "show", found[0]["id"])
    assert result.code == 0
    assert "[red]" in result.out
    assert "run-1" in result.out


def test_a_held_job_is_launched_manually(here: World, arctic: Command) -> None:
    """With the next tick, past its delay."""
    found = json.loads(arctic("jobs", "list", "--schedule", "held", "--json").out)["jobs"]
    result = arctic("jobs", "launch", found[0]["id"])
    assert (result.code, result.out) == (
        0,
        f"job {found[0]['id']} of held is launched by the next tick\n",
    )
    assert here.tick(601) == ["run-2"]
    again = arctic("jobs", "launch", found[0]["id"])
    assert again.code == 2
    assert "Terminate the run in Dagster" in again.err


def test_a_waiting_job_is_canceled(here: World, arctic: Command) -> None:
    """One that has ended is not, and the message says how it ended."""
    found = json.loads(arctic("jobs", "list", "--schedule", "counts", "--json").out)["jobs"]
    document = json.loads(arctic("jobs", "cancel", found[0]["id"], "--json").out)
    assert (document["job"]["state"], document["job"]["ended_at"]) == (
        "discarded",
        "2026-01-01T00:10:00Z",
    )
    again = arctic("jobs", "cancel", found[0]["id"])
    assert again.code == 2
    assert "it has ended at 2026-01-01 00:10:00Z, discarded: canceled manually" in again.err


def test_a_launching_job_is_canceled(here: World, arctic: Command) -> None:
    """Its request is out, which is reported."""
    here.feed.arrive("raw/a", "7")
    here.tick_without_submitting(5)
    listed = arctic("jobs", "list", "--state", "launching", "--json").out
    job = json.loads(listed)["jobs"][0]
    result = arctic("jobs", "cancel", job["id"])
    assert result.code == 0
    assert result.out.splitlines() == [
        f"job {job['id']} of {job['schedule']} is canceled",
        "a run that its request still makes is terminated",
    ]


def test_the_newest_events_are_listed_last(here: World, arctic: Command) -> None:
    """Only those that some schedule took, with what they say."""
    here.feed.arrive("raw/nobody", "1")
    here.feed.arrive("raw/a", "2")
    here.tick(4)
    document = json.loads(arctic("events", "tail", "--json").out)
    assert [event["partition"] for event in document["events"]] == ["[red]", "2"]
    assert document["events"][0]["taken_at"] == "2026-01-01T00:00:01Z"
    (last,) = json.loads(arctic("events", "tail", "-n", "1", "--json").out)["events"]
    assert last["number"] == 2
    assert "1.5 KB" in arctic("events", "tail").out


def test_following_goes_on_with_events_to_come(
    here: World, arctic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, as a line of JSON, until Ctrl-C."""
    pauses = []

    class Time:
        @staticmethod
        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                raise KeyboardInterrupt
            here.feed.arrive("raw/a", f"later-{len(pauses)}")
            here.tick(10 + len(pauses))

    monkeypatch.setattr(events, "time", Time)
    result = arctic("events", "tail", "-n", "0", "--follow", "--json")
    assert result.code == 0
    assert [json.loads(line)["partition"] for line in result.out.splitlines()] == [
        "later-1",
        "later-2",
    ]
