"""``arctic compaction worker`` and ``run``, with a real Spark, in processes of their own."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work.workers import live_workers
from arctic_orchestration_tests.cli.compacting import (
    ON_SQLITE,
    Process,
    SmallLake,
    arctic_process,
    lake,
)
from arctic_orchestration_tests.cli.conftest import Outcome

__all__ = ["lake"]

Command = Callable[..., Outcome]

#: enough for small files, and started sooner
SMALL = ("--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=1")


def documents(lines: list[str]) -> list[dict[str, Any]]:
    """What a command said to programs, line by line."""
    return [json.loads(line) for line in lines]


def numbers(lake: SmallLake, name: str) -> list[int]:
    """The column ``n`` of all rows, sorted."""
    found = lake.catalog.load_table(name).scan().to_arrow()["n"].to_pylist()
    return sorted(found)


def files(lake: SmallLake, name: str) -> int:
    """How many data files the table has."""
    return len(list(lake.catalog.load_table(name).scan().plan_files()))


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_worker_merges_what_waits_and_ends_when_it_is_idle(lake: SmallLake) -> None:
    """It prints each event; the next round commits, and the rows are the same."""
    lake.table("lake.flights", 4, 2)
    lake.tick()
    with arctic_process(
        "compaction", "worker", "--queue", "default", "--parallelism", "2",
        "--until-idle", "100ms", "--json",
        *SMALL,
    ) as process:  # fmt: skip
        began, *events = documents(process.rest())
        assert process.ended() == 0
    assert (began["event"], began["queues"], began["parallelism"]) == ("began", ["default"], 2)
    counts = {"claimed": 2, "merged": 2, "failed": 0, "lost": 0, "released": 0}
    assert events[-1]["event"] == "ended"
    assert events[-1]["counts"] == counts
    assert sorted(event["event"] for event in events[:-1]) == ["claimed"] * 2 + ["merged"] * 2
    assert {event["task"] for event in events[:-1]} == {task.id for task in lake.tasks()}
    lake.tick()
    assert (files(lake, "lake.flights"), len(lake.tasks(TaskState.COMMITTED))) == (2, 2)
    assert numbers(lake, "lake.flights") == [0, 0, 1, 1, 2, 2, 3, 3]
    with lake.database.read() as tx:
        assert live_workers(tx) == []


@ON_SQLITE
def test_a_worker_finishes_its_tasks_after_a_stop_signal(lake: SmallLake) -> None:
    """It claims nothing more, and says so; other tasks wait for other workers."""
    lake.table("lake.flights", 3, 3)
    lake.tick()
    with arctic_process("compaction", "worker", "--name", "one", *SMALL) as process:
        began = process.until(lambda line: "serves" in line)
        assert "worker one serves all queues, 1 task at once, with Spark at local[2]" in began
        process.until(lambda line: "claimed" in line)
        process.send_signal(signal.SIGTERM)
        lines = process.rest()
        assert process.ended() == 0
    assert sum("finishes its tasks" in line for line in lines) == 1
    merged = lake.tasks(TaskState.MERGED)
    assert f"the worker ends: {len(merged)} claimed, {len(merged)} merged" in lines[-1]
    assert merged
    assert len(merged) + len(lake.tasks(TaskState.PLANNED)) == 3
    assert all(task.attempts == 0 for task in lake.tasks(TaskState.PLANNED))


def slow(process: Process) -> None:
    """Waits until a task is claimed, and tells the worker to end, twice."""
    process.until(lambda line: "claimed" in line)
    process.send_signal(signal.SIGTERM)
    process.until(lambda line: "draining" in line)
    process.send_signal(signal.SIGTERM)


@ON_SQLITE
def test_a_worker_gives_back_its_tasks_after_a_second_signal(lake: SmallLake) -> None:
    """That is no attempt; unless the merge was finished at that very moment."""
    lake.table("lake.flights", 3)
    lake.tick()
    with arctic_process("compaction", "worker", "--json", *SMALL) as process:
        slow(process)
        events = documents(process.rest())
        assert process.ended() == 0
    assert [event["event"] for event in events if "task" not in event] == ["giving back", "ended"]
    (task,) = lake.tasks()
    outcome = [event["event"] for event in events if "task" in event]
    assert (outcome, task.state, task.attempts) in (
        (["released"], TaskState.PLANNED, 0),
        (["merged"], TaskState.MERGED, 1),
    )


@ON_SQLITE
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--queue", "lost"), "no compaction queue lost; there is: default"),
        (("--until-idle", "0s"), "--until-idle: got '0s', expected a duration longer than 0s"),
        (("--conf", "memory=2g"), "--conf: got 'memory=2g', expected a Spark property, as "
                                  "spark.driver.memory=2g"),
        (("--conf", "spark.driver.memory"), "--conf: got 'spark.driver.memory', expected"),
        (("--conf", "spark.sql.session.timeZone=CET"), "the lake's files need other Spark "
                                                       "settings"),
        (("--parallelism", "0"), "Invalid value for '--parallelism'"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_before_spark_starts(
    lake: SmallLake, arctic: Command, arguments: tuple[str, ...], message: str
) -> None:
    """One message that names the option; no worker was seen."""
    refused = arctic("compaction", "worker", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in " ".join(refused.err.split())
    with lake.database.read() as tx:
        assert live_workers(tx) == []


@ON_SQLITE
def test_a_table_is_compacted_now(lake: SmallLake) -> None:
    """Planned, merged and committed in one process, which prints the record."""
    lake.table("lake.flights", 4, 2)
    with arctic_process(
        "compaction", "run", "lake.flights", "--way", "decode", "--json", *SMALL
    ) as process:
        (found,) = documents(["".join(process.rest())])
        assert process.ended() == 0
    (record,) = found["records"]
    assert (record["files_in"], record["files_out"], record["rows"]) == (8, 2, 8)
    assert record["ways"] == {"decode": 2}
    assert (found["planned"], found["left"], found["trouble"]) == (2, [], None)
    assert files(lake, "lake.flights") == 2
    assert numbers(lake, "lake.flights") == [0, 0, 1, 1, 2, 2, 3, 3]


@ON_SQLITE
def test_where_nothing_is_to_be_merged_spark_is_not_started(
    lake: SmallLake, arctic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why the files are left alone is said; a table that is refused is, with exit code 1."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    lake.table("lake.flights", 2)
    result = arctic("compaction", "run", "lake.flights")
    assert result.code == 0
    assert result.out.startswith("lake.flights: nothing to merge in 2 files\n")
    assert "left alone: 1 partition: fewer small files or deletes than it takes" in result.out
    lake.table("lake.off", 3, **{"arctic.compaction.enabled": "false"})
    result = arctic("compaction", "run", "lake.off")
    assert result.code == 1
    assert result.out == "lake.off: not compacted: arctic.compaction.enabled is false\n"
    refused = arctic("compaction", "run", "lake.flights", "--way", "guess")
    assert refused.code == 2
    assert "--way: got 'guess', expected decode or append" in refused.err
