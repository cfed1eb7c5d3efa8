"""What a simulation does with time, crashes, deployments and runs, by the second."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator import Timeline, simulate

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def schedule(name: str = "s", **fields: Any) -> Schedule:
    fields = {"target": name, "trigger": {"partitions": {"asset": "a"}}, "enabled": True, **fields}
    return Schedule.parse({"name": name, **fields})


def happens(*lines: tuple[float, dict[str, Any]], folder: Path | None = None) -> Timeline:
    """Lines at seconds after the beginning."""
    rows = [
        json.dumps({"at": (BEGIN + timedelta(seconds=seconds)).isoformat(), **line})
        for seconds, line in lines
    ]
    return Timeline.parse(rows, folder=folder)


def arrives(partition: str, asset: str = "a", size: int = 0) -> dict[str, Any]:
    return {"event": "partition", "asset": asset, "partition": partition, "bytes": size}


def simulated(
    schedules: list[Schedule], timeline: Timeline, **options: Any
) -> list[tuple[Any, ...]]:
    """Each decision but deployments, as seconds, schedule, decision."""
    return [
        ((found.at - BEGIN).total_seconds(), found.schedule, found.decision)
        for found in simulate(schedules, timeline, **options)
        if found.decision != "deployed"
    ]


def test_what_happens_at_a_tick_is_seen_by_it_and_between_two_by_the_later() -> None:
    """Ticks of 10 s: an arrival at 20 is seen at 20, one at 20.5 and one at 29 at 30."""
    decisions = simulate(
        [schedule()],
        happens(
            (0, {"do": "advance"}), (20, arrives("1")), (20.5, arrives("2")), (29, arrives("3"))
        ),
        tick=timedelta(seconds=10),
    )
    launched = [found for found in decisions if found.decision == "launched"]
    assert [
        ((found.at - BEGIN).total_seconds(), found.details["partitions"]) for found in launched
    ] == [(20, ["1"]), (30, ["2", "3"])]


def test_a_line_of_output_has_the_fields_of_the_design() -> None:
    """Two partitions at once make one run of a minute; what is deployed is reported first."""
    lines = [
        found.to_json()
        for found in simulate(
            [schedule(trigger={"partitions": {"asset": "a", "count": 2}})],
            happens((0, arrives("x")), (5, arrives("y"))),
        )
    ]
    assert [(line["at"], line["decision"], line["schedule"]) for line in lines] == [
        ("2026-01-01T00:00:00Z", "deployed", "s"),
        ("2026-01-01T00:00:05Z", "fired", "s"),
        ("2026-01-01T00:00:05Z", "launched", "s"),
        ("2026-01-01T00:01:05Z", "ended", "s"),
    ]
    assert all(list(line)[:5] == ["at", "schedule", "job", "decision", "reason"] for line in lines)
    assert all(line["reason"] for line in lines)
    assert {key: lines[2][key] for key in ("job", "partitions", "events", "trigger", "run_id")} == {
        "job": "job-1",
        "partitions": ["x", "y"],
        "events": 2,
        "trigger": "partitions",
        "run_id": "run-1",
    }
    assert (lines[3]["status"], lines[3]["run_id"]) == ("success", "run-1")


def test_the_same_input_gives_the_same_lines_to_the_letter() -> None:
    """Jobs are named by their order, though their ids in the database are random."""
    timeline = happens(*[(number * 7, arrives(str(number))) for number in range(20)])
    schedules = [schedule(), schedule("t", constraints=[{"concurrency": {"limit": 1}}])]
    first = [json.dumps(found.to_json()) for found in simulate(schedules, timeline)]
    assert first == [json.dumps(found.to_json()) for found in simulate(schedules, timeline)]


def test_a_hold_is_reported_when_its_reason_changes_and_not_at_each_tick() -> None:
    """Held by a delay of 90 s, then by the slot that another run has taken meanwhile."""
    decisions = simulated(
        [
            schedule(constraints=[{"delay": {"duration": "90s"}}, {"concurrency": {"limit": 1}}]),
        ],
        happens((0, arrives("1")), (60, {"do": "start_run", "job": "s", "run_id": "r"}),
                (200, {"do": "end_run", "run_id": "r"})),
    )  # fmt: skip
    assert decisions == [
        (0, "s", "fired"),
        (0, "s", "held"),
        (90, "s", "held"),
        (200, "s", "launched"),
        (260, "s", "ended"),
    ]


def test_a_run_ends_as_a_line_says_or_succeeds_after_its_duration() -> None:
    """Three runs of 100 s: one is ended as failed, one by its id, the last by its time."""
    decisions = list(
        simulate(
            [schedule()],
            happens(
                (0, arrives("1")),
                (30, {"do": "end_run", "schedule": "s", "status": "failure"}),
                (50, arrives("2")),
                (150, {"do": "end_run", "run_id": "run-2", "status": "canceled"}),
                (200, arrives("3")),
            ),
            run_duration=timedelta(seconds=100),
        )
    )
    ended = [found for found in decisions if found.decision == "ended"]
    # The second is ended by its line in the very second in which it would have succeeded.
    assert [((found.at - BEGIN).total_seconds(), found.details["status"]) for found in ended] == [
        (30, "failure"),
        (150, "canceled"),
        (300, "success"),
    ]


def test_a_run_that_never_started_is_requested_again() -> None:
    """Its request failed before it ran: the job launches a second run, and both are reported."""
    decisions = simulated(
        [schedule()],
        happens(
            (0, arrives("1")),
            (5, {"do": "end_run", "schedule": "s", "status": "failure", "started": False}),
        ),
    )
    assert decisions == [
        (0, "s", "fired"),
        (0, "s", "launched"),
        (5, "s", "launched"),
        (65, "s", "ended"),
    ]


def test_after_a_crash_nothing_is_decided_until_the_restart_and_nothing_is_lost() -> None:
    """Down from 10 to 500: the arrival at 20 and the end of the run at 60 are seen at 500."""
    decisions = simulated(
        [schedule()],
        happens(
            (0, arrives("1")), (10, {"do": "crash"}), (20, arrives("2")), (500, {"do": "restart"})
        ),
    )
    assert decisions == [
        (0, "s", "fired"),
        (0, "s", "launched"),
        (500, "s", "ended"),
        (500, "s", "fired"),
        (500, "s", "launched"),
        (560, "s", "ended"),
    ]


def test_a_simulation_that_stays_crashed_ends_with_its_timeline() -> None:
    """Whatever waits: nobody will decide about it any more."""
    decisions = simulated(
        [schedule(trigger={"partitions": {"asset": "a", "count": 2}})],
        happens((0, arrives("1")), (10, {"do": "crash"}), (20, arrives("2"))),
    )
    assert decisions == []


def test_people_suspend_resume_and_delete() -> None:
    """Suspending and deleting discard what waits; while suspended, arrivals are ignored."""
    waits = {"partitions": {"asset": "a", "count": 2}}
    decisions = simulated(
        [schedule(trigger=waits)],
        happens(
            (0, arrives("1")),
            (10, {"do": "suspend", "schedule": "s"}),
            (20, arrives("2")),
            (30, {"do": "resume", "schedule": "s"}),
            (40, arrives("3")),
            (50, {"do": "delete", "schedule": "s"}),
            (60, arrives("4")),
        ),
    )
    assert decisions == [
        (10, "s", "suspended"),
        (10, "s", "discarded"),
        (30, "s", "resumed"),
        (50, "s", "discarded"),
    ]


def test_an_update_discards_what_waits_and_requires_the_new_count() -> None:
    """One of five has arrived; after the update to two, it takes two more."""
    new = {"target": "s", "trigger": {"partitions": {"asset": "a", "count": 2}}, "enabled": True}
    decisions = simulated(
        [schedule(trigger={"partitions": {"asset": "a", "count": 5}})],
        happens(
            (0, arrives("1")),
            (10, {"do": "update", "schedule": "s", "schedule_spec": new}),
            (20, arrives("2")),
            (30, arrives("3")),
        ),
    )
    assert decisions == [
        (10, "s", "discarded"),
        (30, "s", "fired"),
        (30, "s", "launched"),
        (90, "s", "ended"),
    ]


def test_a_deployment_reports_what_it_did_to_each_schedule(tmp_path: Path) -> None:
    """The file has t and no s; without updates, only what has no target any more is deleted."""
    new = schedule("t").to_form()
    (tmp_path / "new.yaml").write_text(json.dumps({"schedules": [new]}))
    kept = {"do": "deploy", "file": "new.yaml", "update_schedules": False}
    timeline = happens(
        (10, kept),
        (20, {"do": "deploy", "file": "new.yaml"}),
        (30, {**kept, "gone": ["t"]}),
        folder=tmp_path,
    )
    deployed = [
        ((found.at - BEGIN).total_seconds(), found.schedule, found.details.get("action"))
        for found in simulate([schedule()], timeline)
    ]
    assert deployed[:2] == [(10, "s", "created"), (10, None, None)]
    assert {name: action for _, name, action in deployed[2:4]} == {"s": "deleted", "t": "created"}
    assert deployed[4:] == [(30, "t", "deleted")]


def test_an_event_without_listener_is_not_given_to_a_later_schedule(
    tmp_path: Path,
) -> None:
    """It was read by the tick of its moment, also where no tick was needed."""
    (tmp_path / "new.yaml").write_text(json.dumps({"schedules": [schedule("t").to_form()]}))
    timeline = happens(
        (0, {"do": "advance"}),
        (5, arrives("1")),
        (5.5, {"do": "deploy", "file": "new.yaml"}),
        (20, arrives("2")),
        folder=tmp_path,
    )
    launched = [found for found in simulate([], timeline) if found.decision == "launched"]
    assert [found.details["partitions"] for found in launched] == [["2"]]


def test_it_goes_on_until_nothing_waits() -> None:
    """One of two partitions: the job waits for its timeout of an hour, and that is the end."""
    waits = schedule(trigger={"partitions": {"asset": "a", "count": 2}}, timeout="1h")
    assert simulated([waits], happens((0, arrives("1")))) == [(3600, "s", "discarded")]


def test_cron_to_come_is_not_waiting_unless_an_end_is_given() -> None:
    """Each full hour: nothing after a line at half past, unless one says until when to go on."""
    hourly = schedule(trigger={"cron": {"expression": "0 * * * *"}})
    timeline = happens((0, {"do": "advance"}), (1800, {"do": "advance"}))
    assert simulated([hourly], timeline) == []
    launched = simulated([hourly], timeline, until=BEGIN + timedelta(hours=2))
    assert [found for found in launched if found[2] == "launched"] == [
        (3600, "s", "launched"),
        (7200, "s", "launched"),
    ]


def test_it_stops_at_the_end_that_was_given_whatever_waits_and_whatever_lines_come() -> None:
    """The hold is reported at 0; the launch at 90 and the line at 100 lie behind the end."""
    held = schedule(constraints=[{"delay": {"duration": "90s"}}])
    timeline = happens((0, arrives("1")), (100, arrives("2")))
    assert simulated([held], timeline, until=BEGIN + timedelta(seconds=89)) == [
        (0, "s", "fired"),
        (0, "s", "held"),
    ]


def test_schedules_that_always_keep_something_waiting_come_to_an_end() -> None:
    """a starts b and b starts a, for ever: it ends the longest timeout, 10 m, and a run later.

    Runs of 60 s begin at 0, 60, ..., the last before 600 + 60 s and two ticks.
    """
    ring = [
        schedule(
            "a",
            trigger={"any_of": [{"partitions": {"asset": "a"}}, {"run": {"job": "b"}}]},
            timeout="10m",
        ),
        schedule("b", trigger={"run": {"job": "a"}}, timeout="10m"),
    ]
    launched = [
        found for found in simulated(ring, happens((0, arrives("1")))) if found[2] == "launched"
    ]
    assert [seconds for seconds, _, _ in launched] == [60 * number for number in range(12)]


def test_a_load_of_the_timeline_and_freshness_of_what_arrived_are_facts() -> None:
    """Idle is 0. The parent arrives at 100: found fresh at the recheck 120 s after 0."""
    decisions = simulated(
        [
            schedule("busy", constraints=[{"load": {"below": 0.5}}]),
            schedule("child", constraints=[{"fresh": {"parents": {"parent": 1}}}]),
        ],
        happens(
            (0, {"do": "load", "value": 0.7}),
            (0, arrives("1")),
            (45, {"do": "load", "value": 0.1}),
            (100, arrives("1", asset="parent")),
        ),
    )
    assert [found for found in decisions if found[2] == "launched"] == [
        (60, "busy", "launched"),
        (120, "child", "launched"),
    ]


def test_a_run_line_of_another_location_starts_who_listens_there() -> None:
    """The same job name of the own location does not."""
    other = {"event": "run", "job": "x", "status": "success"}
    decisions = simulated(
        [schedule(trigger={"run": {"job": "x", "location": "there"}})],
        happens((0, other), (10, {**other, "location": "there"})),
    )
    assert decisions[:2] == [(10, "s", "fired"), (10, "s", "launched")]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({"do": "end_run", "schedule": "s"}, "schedule"),
        ({"do": "end_run", "run_id": "r"}, "run_id"),
    ],
)
def test_a_line_that_ends_a_run_which_is_not_there_is_named(
    line: dict[str, Any], field: str
) -> None:
    """At the moment at which it would have ended it."""
    with pytest.raises(InvalidInput) as caught:
        list(simulate([schedule()], happens((0, {"do": "advance"}), (10, line))))
    assert caught.value.field == f"timeline:2.{field}"


def test_a_run_that_ended_by_itself_cannot_be_ended_again() -> None:
    """The message says when it ended, and how to keep it longer."""
    timeline = happens((0, arrives("1")), (600, {"do": "end_run", "schedule": "s"}))
    with pytest.raises(InvalidInput, match="ended at 2026-01-01T00:01:00Z.*--run-duration"):
        list(simulate([schedule()], timeline))


def test_an_id_of_a_run_is_taken_once() -> None:
    """Two runs of one id could not be distinguished."""
    run = {"do": "start_run", "job": "x", "run_id": "r"}
    with pytest.raises(InvalidInput, match="timeline:2.run_id"):
        list(simulate([schedule()], happens((0, run), (1, run))))


def test_names_are_checked_before_the_first_decision() -> None:
    """A line that names no schedule is found though it comes last."""
    timeline = happens((0, arrives("1")), (10, {"do": "suspend", "schedule": "other"}))
    with pytest.raises(InvalidDefinition, match="timeline:2.schedule"):
        next(simulate([schedule()], timeline))


@pytest.mark.parametrize("arrivals", [20_000, 21_000])
def test_a_tick_sees_all_that_happened_before_it(arrivals: int) -> None:
    """However much that is: so many arrivals in the first second fire at its end."""
    trigger = {"partitions": {"asset": "a", "count": arrivals}}
    timeline = happens(*[(n / arrivals, arrives(str(n), "a")) for n in range(arrivals)])
    fired = [
        found.at
        for found in simulate([schedule("s", trigger=trigger)], timeline)
        if found.decision == "fired"
    ]
    assert fired == [BEGIN + timedelta(seconds=1)]
