"""``arctic runs``, beside Dagster's own daemon that goes through the queue."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from arctic_orchestration_tests.cli.conftest import Clock, Outcome
from arctic_orchestration_tests.cli.pseudo_terminal import printed_in_terminal
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import STOCK, RunQueue

Command = Callable[..., Outcome]
MakeQueue = Callable[..., RunQueue]

ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
NIGHT = {"start": "22:00", "end": "06:00", "match": {"job": "load"}}


def listed(arctic: Command, *options: str) -> dict[str, Any]:
    """What ``arctic runs list`` says to programs."""
    document: dict[str, Any] = json.loads(arctic("runs", "list", "--json", *options).out)
    return document


def test_runs_are_listed_in_the_order_in_which_they_can_start(
    ruled: MakeQueue, arctic: Command
) -> None:
    """The more urgent first, then the older; each with its queue and what holds it."""
    queue = ruled(
        max_concurrent_runs=2,
        windows={"night": NIGHT},
        queues={"urgent": {"level": 2, "match": {"job": "refund"}}},
    )
    held = queue.submit("load")
    first, second = queue.submit("bill"), queue.submit("bill")
    urgent = queue.submit("refund")
    found = listed(arctic)
    assert [(run["place"], run["run_id"], run["queue"], run["level"]) for run in found["runs"]] == [
        (1, urgent.run_id, "urgent", 2),
        (2, held.run_id, "default", 0),
        (3, first.run_id, "default", 0),
        (4, second.run_id, "default", 0),
    ]
    assert [run["held_by"] and run["held_by"]["reason"] for run in found["runs"]] == [
        None,
        "window night opens at 2026-03-02 22:00:00Z (22:00-06:00 UTC)",
        None,
        "its turn: 0 of 2 slots are in use, the others go to runs before it "
        "(queue default may use 1)",
    ]
    assert {run["queued_at"] for run in found["runs"]} == {"2026-03-02T12:00:00Z"}
    # And so it is.
    assert queue.iterate() == [urgent.run_id, first.run_id]
    table = arctic("runs", "list")
    assert table.code == 0
    lines = table.out.splitlines()
    assert lines[0] == "2 runs wait, 2 of 2 slots in use"
    assert lines[2].split()[:6] == [
        held.run_id[:8] if len(lines[2].split()[0]) == 8 else held.run_id,
        "load",
        "default",
        "level",
        "0",
        "2026-03-02",
    ]
    assert lines[3].rstrip().endswith("its turn: 2 of 2 slots are in use")


def test_of_many_runs_the_first_are_listed(ruled: MakeQueue, arctic: Command) -> None:
    """And how many more there are; an empty queue says so."""
    queue = ruled(groups={"none": {"limit": 0, "match": {"job": "*"}}})
    assert arctic("runs", "list").out.endswith("no runs wait, 0 of 10 slots in use\n")
    for _ in range(4):
        queue.submit("load")
    found = listed(arctic, "--limit", "3")
    assert (found["waiting"], found["more"], len(found["runs"])) == (4, 1, 3)
    assert found["last_pass"] is None
    lines = arctic("runs", "list", "-n", "1").out.splitlines()
    assert lines[-1] == "and 3 more: --limit 4"
    assert arctic("runs", "list", "-n", "0").code == 2


def test_a_stopped_daemon_is_reported(ruled: MakeQueue, arctic: Command, clock: Clock) -> None:
    """Otherwise people would wait for a pass that never comes; after a minute without one."""
    queue = ruled(groups={"none": {"limit": 0, "match": {"job": "*"}}})
    queue.submit("load")
    never = "the daemon never went through the queue; start it: dagster-daemon run, or dagster dev"
    assert arctic("runs", "list").out.splitlines()[0] == never
    queue.iterate()
    clock.pass_(seconds=60)
    assert arctic("runs", "list").out.startswith("1 run waits")
    clock.pass_(seconds=1)
    result = arctic("runs", "list").out.splitlines()[0]
    assert result.startswith(
        "the daemon went through the queue last at 2026-03-02 12:00:00Z; start"
    )


def test_a_run_of_another_level_starts_in_its_place_with_the_next_pass(
    ruled: MakeQueue, arctic: Command, clock: Clock
) -> None:
    """The last of three becomes the first; what it has waited goes on to count."""
    queue = ruled(max_concurrent_runs=1, seconds_per_level=600)
    runs = []
    for _ in range(3):
        runs.append(queue.submit("load"))
        clock.pass_(seconds=1)
    result = arctic("runs", "prioritize", runs[2].run_id[:8], "1")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[:2] == [
        f"run {runs[2].run_id} of load gets level 1, before: 0",
        "from the next pass on it is number 1 of 3 in the queue, before: 3",
    ]
    assert queue.iterate() == [runs[2].run_id]
    tags = queue.run(runs[2]).tags
    assert tags["arctic/level"] == "1"
    assert tags[".dagster/arctic_queued_at"] == "2026-03-02T12:00:02Z"
    # 600 less the seconds of that moment since 1970.
    assert tags["dagster/priority"] == "-1772452202"


@ON_SQLITE
def test_without_any_rules_a_priority_is_written_at_once(ruled: MakeQueue, arctic: Command) -> None:
    """There are no passes of ours that could, and Dagster's own heed it."""
    queue = ruled(max_concurrent_runs=1)
    _, second = queue.submit("load"), queue.submit("load")
    result = arctic("runs", "prioritize", second.run_id, "2")
    assert result.out.splitlines()[-1].endswith("number 1 of 2 in the queue, before: 2")
    assert queue.run(second).tags["dagster/priority"] == "2"
    assert queue.iterate() == [second.run_id]


@ON_SQLITE
def test_the_last_word_on_a_level_counts(ruled: MakeQueue, arctic: Command) -> None:
    """Also when no pass came between two of them; the queue is shown as it will be."""
    queue = ruled(max_concurrent_runs=1, seconds_per_level=600)
    first, second = queue.submit("load"), queue.submit("load")
    arctic("runs", "prioritize", second.run_id, "5")
    assert [run["level"] for run in listed(arctic)["runs"]] == [5, 0]
    found = json.loads(arctic("runs", "prioritize", second.run_id, "-5", "--json").out)
    assert (found["level_before"], found["place_before"], found["place"]) == (5, 1, 2)
    assert queue.iterate() == [first.run_id]


def test_a_level_may_be_negative(ruled: MakeQueue, arctic: Command) -> None:
    """And is an argument, not an option."""
    queue = ruled(max_concurrent_runs=1, seconds_per_level=600)
    first, second = queue.submit("load"), queue.submit("load")
    found = json.loads(arctic("runs", "prioritize", first.run_id, "-1", "--json").out)
    assert found == {
        "run_id": first.run_id,
        "job": "load",
        "level": -1,
        "level_before": 0,
        "priority": -1772453400,
        "place": 2,
        "place_before": 1,
        "waiting": 2,
    }
    assert queue.iterate() == [second.run_id]
    again = arctic("runs", "prioritize", first.run_id, "-1")
    assert again.out.splitlines()[:2] == [
        f"run {first.run_id} of load gets level -1, as before",
        "from the next pass on it is number 1 of 1 in the queue, as before",
    ]


def test_where_levels_do_not_age_the_priority_is_the_level(
    ruled: MakeQueue, arctic: Command
) -> None:
    """As Dagster has it by itself: no tag of ours is added."""
    queue = ruled(max_concurrent_runs=1, groups={"few": {"limit": 9, "match": {"job": "bill"}}})
    first, second = queue.submit("load"), queue.submit("load")
    result = arctic("runs", "prioritize", second.run_id, "7")
    assert result.out.splitlines()[0].startswith(f"run {second.run_id} of load gets priority 7, ")
    assert "priority 7: the highest number goes first" in (
        arctic("runs", "explain", second.run_id).out
    )
    assert queue.iterate() == [second.run_id]
    assert queue.run(second).tags == {**second.tags, "dagster/priority": "7"}
    assert first.run_id == listed(arctic)["runs"][0]["run_id"]


def test_a_run_from_before_the_rules_gets_a_level_with_the_age_that_it_has(
    ruled: MakeQueue, make_queue: MakeQueue, backend: str, arctic: Command, clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It was queued by the stock class. On Postgres, its record has the time of a zone."""
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    begin = int(time.time())
    run = make_queue(backend, STOCK).submit("load")
    end = int(time.time())
    queue = ruled(seconds_per_level=60)
    clock.now = datetime.now(UTC)
    (line,) = listed(arctic)["runs"]
    assert (line["level"], line["priority"]) == (None, 0)
    assert begin <= int(datetime.fromisoformat(line["queued_at"]).timestamp()) <= end
    result = arctic("runs", "prioritize", run.run_id, "3").out
    assert result.splitlines()[0].endswith("gets level 3, before: none of its own")
    assert queue.iterate() == [run.run_id]
    assert 180 - end <= int(queue.run(run).tags["dagster/priority"]) <= 180 - begin


@ON_SQLITE
def test_in_a_real_terminal_of_80_columns_no_line_is_broken(
    ruled: MakeQueue, arctic: Command
) -> None:
    """Ids are short there, and what holds a run stands below it."""
    queue = ruled(
        groups={"none": {"limit": 0, "match": {"job": "*"}}},
        queues={"a_long_name_of_a_queue": {"match": {"job": "load"}}},
    )
    run = queue.submit("load")
    without = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    result = printed_in_terminal("runs", "list", environment={**without, "TERM": "dumb"})
    lines = [line.rstrip() for line in result.decode().splitlines()]
    place = lines.index("1 run waits, 0 of 10 slots in use")
    assert lines[place + 1].startswith(f"{run.run_id[:8]}  load  a_long_name_of_a_queue  level 0")
    assert lines[place + 2] == "    group none: 0 of 0 runs are in progress"
    assert all(len(line) <= 80 for line in lines)


def test_the_command_itself_does_not_load_dagster() -> None:
    """Which takes longer than most commands do."""
    code = "import sys, arctic_orchestration.cli.main; sys.exit('dagster' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
