"""What people want of a scheduler, as stories; each is an example of ``arctic simulate`` too.

A story is two files under ``stories/``: the schedules, and what happens. Runs last a minute and
the engine ticks every second, unless a story says otherwise. A tick sees what happens at its
moment, so what can be decided at once is decided at the second of its cause.
"""

from pathlib import Path

from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.simulator import Decision, read_timeline, simulate

STORIES = Path(__file__).parent / "stories"


def decisions_of(name: str) -> list[Decision]:
    """All decisions of a story."""
    text = (STORIES / f"{name}.yaml").read_text()
    schedules = read_schedules(text, name=f"{name}.yaml")
    return list(simulate(schedules, read_timeline(STORIES / f"{name}.jsonl")))


def moments(decisions: list[Decision], decision: str, schedule: str) -> list[str]:
    """When a schedule was decided about in that way, as ``01 06:00:00``: day, time."""
    return [
        f"{found.at:%d %H:%M:%S}"
        for found in decisions
        if (found.decision, found.schedule) == (decision, schedule)
    ]


def launches(decisions: list[Decision], schedule: str) -> list[tuple[str, list[str]]]:
    """The launches of a schedule: when, and for which partitions."""
    return [
        (f"{found.at:%d %H:%M:%S}", found.details["partitions"])
        for found in decisions
        if (found.decision, found.schedule) == ("launched", schedule)
    ]


def test_a_feed_that_arrives_once_a_day_at_unknown_times_runs_on_arrival() -> None:
    """Three arrivals at odd seconds, three runs at exactly these seconds, one partition each.

    Nothing is polled: the whole story has no decision but at an arrival and, 60 s later, at the
    end of its run.
    """
    decisions = decisions_of("feed_on_arrival")
    assert launches(decisions, "ingest") == [
        ("01 03:17:42", ["2026-03-01"]),
        ("02 19:05:09", ["2026-03-02"]),
        ("03 00:00:01", ["2026-03-03"]),
    ]
    assert moments(decisions, "ended", "ingest") == ["01 03:18:42", "02 19:06:09", "03 00:01:01"]
    assert moments(decisions, "held", "ingest") == []


def test_b_runs_after_a_succeeded_and_not_when_a_failed() -> None:
    """On the first day a starts at 06:00 and succeeds 60 s later: b starts at 06:01.

    On the second a is ended as failed after 30 s, and b does nothing.
    """
    decisions = decisions_of("after_success")
    assert moments(decisions, "launched", "a") == ["01 06:00:00", "02 06:00:00"]
    assert [found.details["status"] for found in decisions if found.decision == "ended"] == [
        "success",  # a
        "success",  # b
        "failure",  # a
    ]
    assert moments(decisions, "launched", "b") == ["01 06:01:00"]


def test_feeds_that_need_a_run_once_a_day_are_spread_over_idle_time_by_their_deadline() -> None:
    """Six feeds at midnight, the cluster busy (0.9) until 02:00, then idle until 02:01:45.

    The load is measured every 30 s, at full half minutes since the first hold was at midnight,
    so at 02:00:00 the idle cluster is found. Two run at a time, for 60 s: feeds 1 and 2 at
    02:00, 3 and 4 at 02:01. At 02:02 the cluster is busy again, and 5 and 6 wait for their
    deadline, 18 h after midnight, at which they run however busy it is.
    """
    decisions = decisions_of("spread_by_deadline")
    assert launches(decisions, "feeds") == [
        ("01 02:00:00", ["feed-1"]),
        ("01 02:00:00", ["feed-2"]),
        ("01 02:01:00", ["feed-3"]),
        ("01 02:01:00", ["feed-4"]),
        ("01 18:00:00", ["feed-5"]),
        ("01 18:00:00", ["feed-6"]),
    ]
    assert moments(decisions, "discarded", "feeds") == []


def test_what_has_priority_runs_on_time_and_the_rest_is_deferred_and_caught_up() -> None:
    """One slot. Prices take it at 09:00:00; archive requests it at :10, prices again at :30.

    When it is free, at 09:01:00, prices are first though they asked later; archive has it at
    09:02:00, in one run for the three partitions that came meanwhile.
    """
    decisions = decisions_of("priorities")
    assert launches(decisions, "prices") == [("01 09:00:00", ["09:00"]), ("01 09:01:00", ["09:01"])]
    assert launches(decisions, "archive") == [("01 09:02:00", ["1", "2", "3"])]


def test_maintenance_runs_once_a_night_and_only_if_there_is_new_data() -> None:
    """22:00 in Berlin in winter is 21:00 UTC. Data of 08:00 and 15:00 wait for it together.

    Data of 23:30 UTC is inside the window, but the run of this night ended at 21:01, and 12 h
    after that, at 09:01, the window is closed: it waits for the next 22:00. The nights from the
    3rd on have no new data, and nothing runs.
    """
    decisions = decisions_of("nightly_maintenance")
    assert launches(decisions, "optimize") == [("01 21:00:00", ["a", "b"]), ("02 21:00:00", ["c"])]
    assert moments(decisions, "held", "optimize") == ["01 08:00:00", "01 23:30:00", "02 09:01:00"]


def test_a_join_waits_for_all_its_inputs_but_gives_up_after_a_time() -> None:
    """The first day's inputs come at 01:00, 01:30 and 02:15: it runs with the last of them.

    On the second, orders are missing: two hours after the first input, at 03:00, it goes with
    the two that are there.
    """
    decisions = decisions_of("join_or_give_up")
    assert [
        (f"{found.at:%d %H:%M:%S}", found.details["events"])
        for found in decisions
        if found.decision == "launched"
    ] == [("01 02:15:00", 3), ("02 03:00:00", 2)]
    late = next(found for found in decisions if found.decision == "fired" and found.at.day == 2)
    assert "raw/orders" in late.reason


def test_chunks_that_belong_together_run_as_four_or_when_no_more_come() -> None:
    """a1 to a4 come at 12:00, 12:03, 12:06 and 12:09, and the fourth starts the run.

    b1 and b2 come at 13:00 and 13:08; ten minutes after the last, at 13:18, it is quiet.
    """
    assert launches(decisions_of("chunks"), "chunks") == [
        ("01 12:09:00", ["a1", "a2", "a3", "a4"]),
        ("01 13:18:00", ["b1", "b2"]),
    ]


def test_a_feed_every_second_runs_when_enough_has_accumulated() -> None:
    """Eight seconds of 2.5 MB, then 62 of 0.1 MB, from 12:00:00 to 12:01:09.

    10 MB are together with the 4th arrival (:03) and with the 8th (:07). Then 30 s of 0.1 MB
    are at most 3.1 MB: time decides. The first that is not processed came at :08, so at :38
    31 of them (:08 to :38) run; the next is :39, so at 12:01:09 another 31 do, and nothing is
    left over.
    """
    found = launches(decisions_of("stream"), "stream")
    assert [(at, len(partitions)) for at, partitions in found] == [
        ("01 12:00:03", 4),
        ("01 12:00:07", 4),
        ("01 12:00:38", 31),
        ("01 12:01:09", 31),
    ]
    assert [key for _, keys in found for key in keys] == [f"{second:03}" for second in range(70)]


def test_it_runs_at_least_every_four_hours_and_sooner_after_a_hundred_gigabytes() -> None:
    """Enabled at midnight: the first run is at 04:00, with the 30 GB of midnight.

    60 GB at 05:00 and 40 GB at 06:00 make 100 GB at 06:00, two hours after the last launch.
    Four hours after that one, at 10:00, it runs though nothing came, and at 14:00 again.
    """
    assert launches(decisions_of("at_least_every"), "compact") == [
        ("01 04:00:00", ["a"]),
        ("01 06:00:00", ["b", "c"]),
        ("01 10:00:00", []),
        ("01 14:00:00", []),
    ]


def test_three_hundred_workflows_at_one_minute_all_start_within_seconds() -> None:
    """06:00 in New York is 11:00 UTC on the 7th and, in summer time, 10:00 UTC on the 8th.

    A tick asks Dagster for at most 100 runs, so 300 are three ticks: :00, :01 and :02. Each
    workflow runs once a day.
    """
    decisions = [found for found in decisions_of("fixed_minute") if found.decision == "launched"]
    by_second: dict[str, int] = {}
    for found in decisions:
        moment = f"{found.at:%d %H:%M:%S}"
        by_second[moment] = by_second.get(moment, 0) + 1
    assert by_second == {
        "07 11:00:00": 100,
        "07 11:00:01": 100,
        "07 11:00:02": 100,
        "08 10:00:00": 100,
        "08 10:00:01": 100,
        "08 10:00:02": 100,
    }
    for day in (7, 8):
        names = sorted(str(found.schedule) for found in decisions if found.at.day == day)
        assert names == [f"w{number:03}" for number in range(1, 301)]


def test_a_scheduler_that_was_down_at_its_minute_catches_up_as_configured() -> None:
    """Down from 00:30 to 04:20: the hours 01, 02, 03 and 04 are missed.

    ``latest`` makes up one of them, ``all`` each of the four, ``none`` none; with a grace of
    1 h 30 m those since 02:50 count, which are 03 and 04. At 05:00 everybody is on time.
    """
    decisions = decisions_of("scheduler_down")
    assert {
        name: moments(decisions, "launched", name)
        for name in ("latest", "every_one", "not_at_all", "unless_late")
    } == {
        "latest": ["01 04:20:00", "01 05:00:00"],
        "every_one": [*["01 04:20:00"] * 4, "01 05:00:00"],
        "not_at_all": ["01 05:00:00"],
        "unless_late": ["01 04:20:00", "01 04:20:00", "01 05:00:00"],
    }
