"""``arctic compaction plan`` and ``explain``."""

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta

import pytest

from arctic_orchestration.compaction.cli.policy import PROPERTIES, policy_lines
from arctic_orchestration.compaction.planning.policy import PREFIX, Policy
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import workers
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration_tests.cli.compacting import (
    ON_SQLITE,
    SmallLake,
    document,
    lake,
    moment_of,
)
from arctic_orchestration_tests.cli.conftest import Outcome

__all__ = ["lake"]

Command = Callable[..., Outcome]


def test_a_dry_run_shows_files_bins_and_reasons_and_changes_nothing(
    lake: SmallLake, arctic: Command
) -> None:
    """Three fragments of a day are merged; the two of the other day are too few."""
    table = lake.table("lake.flights", 2, 2)
    lake.table("lake.other", 0)
    first_day = table.scan(row_filter="day = '2013-01-01'").to_arrow()
    table.append(first_day.slice(0, 1))
    found = document(arctic, "plan", "lake.flights", "--dry-run")
    assert (found["dry_run"], found["offered"], found["files"]) == (True, None, 5)
    (task,) = found["tasks"]
    assert (task["kind"], task["partition"], task["because"]) == (
        "minor",
        "day=2013-01-01",
        "3 fragments; 3 suffice",
    )
    assert len(task["data_files"]) == task["files"] == 3
    assert sum(file["bytes"] for file in task["data_files"]) == task["bytes"]
    assert all("day=2013-01-01" in file["path"] for file in task["data_files"])
    left = {one["partition"]: one["left"] for one in found["partitions"]}
    assert left == {"day=2013-01-01": None, "day=2013-01-02": "too_few"}
    result = arctic("compaction", "plan", "lake.flights", "--dry-run")
    assert result.code == 0
    assert result.out.startswith("lake.flights: 3 of 5 files in 1 task\n")
    assert "1. minor merge of day=2013-01-01: 3 files → 1" in result.out
    assert "(day=2013-01-02: 2 fragments of 3)" in result.out
    assert lake.tasks() == []
    assert document(arctic, "list", "lake.flights")["tables"][0]["known"] is False


def test_a_plan_is_offered_and_a_better_one_takes_its_place(
    lake: SmallLake, arctic: Command
) -> None:
    """With --force, below the thresholds too."""
    lake.table("lake.flights", 3)
    found = document(arctic, "plan", "lake.flights")
    (first,) = lake.tasks(TaskState.PLANNED)
    assert found["offered"]["taken"] == [first.id]
    again = arctic("compaction", "plan", "lake.flights").out.splitlines()[-1]
    assert again == "0 tasks offered, 1 waited already"
    lake.table("lake.few", 2)
    assert document(arctic, "plan", "lake.few")["tasks"] == []
    forced = document(arctic, "plan", "lake.few", "--force")
    assert [(task["kind"], task["because"]) for task in forced["tasks"]] == [
        ("major", "it was requested")
    ]
    assert [task.table for task in lake.tasks(TaskState.PLANNED)] == ["lake.flights", "lake.few"]


def test_a_full_queue_leaves_the_table_due(lake: SmallLake, arctic: Command) -> None:
    """What found room is offered, the rest is reported."""
    arctic("compaction", "queues", "update", "default", "--capacity", "1")
    lake.table("lake.flights", 3, 2)
    result = arctic("compaction", "plan", "lake.flights")
    assert result.code == 0
    assert result.out.splitlines()[-1].startswith("1 task offered, 1 of ")
    assert result.out.endswith("found no room: the table stays due\n")
    assert document(arctic, "explain", "lake.flights")["due_since"] is not None


@pytest.mark.filterwarnings("ignore:Parquet writer option")
def test_properties_that_cannot_be_used_are_refused_by_name(
    lake: SmallLake, arctic: Command
) -> None:
    """A target below the row group; nothing is offered, by whatever command."""
    lake.table(
        "lake.flights",
        3,
        **{
            "write.parquet.row-group-size-bytes": "1048576",
            "arctic.compaction.target-size": "512KiB",
        },
    )
    message = "arctic.compaction.target-size of lake.flights: got '512KiB', expected at least 1MiB"
    for arguments in (
        ("plan", "lake.flights"),
        ("plan", "lake.flights", "--dry-run"),
        ("run", "lake.flights"),
        ("map", "lake.flights", "default"),
    ):
        refused = arctic("compaction", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert message in " ".join(refused.err.split())
    assert lake.tasks() == []
    explained = document(arctic, "explain", "lake.flights")
    assert (explained["problem"].startswith(message), explained["plan"]) == (True, None)
    assert message in arctic("compaction", "explain", "lake.flights").out


def test_a_table_is_explained_from_policy_to_commit(lake: SmallLake, arctic: Command) -> None:
    """What waits, for whom, behind how many, and until when at the latest."""
    lake.table("lake.urgent", 3, **{"arctic.compaction.level": "2"})
    lake.table("lake.flights", 3, 2, **{"arctic.compaction.minor.interval": "never"})
    lake.tick()
    found = document(arctic, "explain", "lake.flights")
    named = {line["name"]: line["value"] for line in found["policy"] if line["property"]}
    assert named == {"minor.min-files": "3", "minor.interval": "never"}
    assert (found["numbers"]["files"], found["live"]) == (6, 2)
    assert found["plan"]["gain"] == "6 of 6 files in 2 tasks"
    first, second = found["tasks"]
    assert (first["ahead"], second["ahead"]) == (1, 2)
    # Tasks of level 2 may go before one of level 0 for three hours.
    begun = moment_of(first["waiting_since"])
    assert moment_of(first["overtaken_until"]) == begun + timedelta(hours=3)
    assert (first["claimed_by"], found["queue"]["slots"]) == (None, 0)
    assert "no worker serves default" in first["text"]
    text = arctic("compaction", "explain", "lake.flights").out
    assert "2 properties of the table, the rest by default" in text
    assert "6 files of" in text
    assert "a full scan opens 3.0 × the files it needs" in text
    assert "1 ahead of it in default" in text
    assert "commits none yet; the committer's next round can commit; 1m apart at least" in text


def test_the_bound_on_waiting_is_shown_where_workers_are(lake: SmallLake, arctic: Command) -> None:
    """By the slots of those that live, and the longest merge of late."""
    arctic("compaction", "queues", "update", "default", "--capacity", "4")
    lake.table("lake.flights", 3, 3)
    lake.tick()
    lake.fail("the disk is full")
    with lake.database.begin() as tx:
        one = workers.WorkerInfo(
            id="id-1", name="one", queues=("default",), parallelism=2, host="here", pid=1
        )
        workers.record_heartbeat(tx, one)
    found = document(arctic, "explain", "lake.flights")
    failed, *planned = sorted(found["tasks"], key=lambda task: task["state"])
    assert (failed["state"], failed["ahead"]) == ("failed", None)
    assert "the disk is full; again at" in failed["text"]
    assert found["queue"]["slots"] == 2
    begun, by = (moment_of(planned[0][key]) for key in ("waiting_since", "claimed_by"))
    # One level is an hour; three others, each claimed three times, by two slots: 5 merges.
    assert timedelta(hours=1) < by - begun < timedelta(hours=1, minutes=2)
    assert "while 2 slots of 1 worker go on and no merge takes above" in planned[0]["text"]


def test_tasks_of_a_worker_of_the_committer_and_in_quarantine_are_explained(
    lake: SmallLake, arctic: Command
) -> None:
    """Each with what it waits for, or why it waits for nothing any more."""
    lake.table("lake.flights", 3, 2)
    lake.tick()
    lake.claim("host-7:12")
    bad = lake.fail("a [broken] file", final=True).task
    found = document(arctic, "explain", "lake.flights")
    (claimed,) = found["tasks"]
    assert claimed["text"].startswith("worker host-7:12 has it since ")
    assert "attempt 1 of 3; its lease holds until" in claimed["text"]
    (quarantined,) = found["quarantined"]
    assert quarantined["task"] == bad.id
    assert quarantined["reason"].endswith("a [broken] file")
    assert found["due"].startswith("rests until 20")
    text = arctic("compaction", "explain", "lake.flights").out
    assert "in quarantine 1 task" in text
    assert "for the 1st time without a commit" in text
    assert "a [broken] file" in text


@ON_SQLITE
def test_an_empty_table_and_one_that_is_not_enabled_are_explained(
    lake: SmallLake, arctic: Command
) -> None:
    """Nothing to do is an answer, too."""
    lake.table("lake.empty", 0)
    lake.table("lake.off", 3, **{"arctic.compaction.enabled": "false"})
    text = arctic("compaction", "explain", "lake.empty").out
    assert "files none: the table is empty" in text
    assert "nothing to merge in 0 files" in text
    assert "the planner has not found it yet" in text
    off = document(arctic, "explain", "lake.off")
    assert off["plan"]["refused"] == "arctic.compaction.enabled is false"


def test_every_property_of_a_policy_is_explained() -> None:
    """None is forgotten, and each is written as the table would have it."""
    assert {field for _, field in PROPERTIES} == {one.name for one in fields(Policy)}
    with pytest.raises(InvalidDefinition) as refused:
        Policy.of({PREFIX + "lost": "1"}, "lake.flights")
    known = str(refused.value).partition("one of ")[2].split(", ")
    assert sorted(name for name, _ in PROPERTIES) == sorted(known)
    default = {line.name: line.value for line in policy_lines(Policy(), {})}
    for name in ("target-size", "minor.interval", "major.deleted-rows", "attempts"):
        written = {PREFIX + name: default[name]}
        assert Policy.of(written, "lake.flights") == Policy()


def test_a_sorted_table_shows_what_sorting_costs_and_saves(
    lake: SmallLake, arctic: Command
) -> None:
    """Both files of a day have both numbers; a merge of two files to one saves nothing."""
    table = lake.table("lake.flights", 3, 1)
    assert document(arctic, "plan", "lake.flights", "--dry-run")["sort"] is None
    with table.transaction() as change:
        change.set_properties({"arctic.compaction.sort": "n"})
    (planned,) = document(arctic, "plan", "lake.flights", "--dry-run")["tasks"]
    found = document(arctic, "plan", "lake.flights", "--dry-run")["sort"]
    assert (found["column"], found["cpu"], found["reads_then"]) == ("n", 1.9, planned["bytes"])
    assert 0 < found["reads_now"] <= planned["bytes"]
    out = " ".join(arctic("compaction", "plan", "lake.flights", "--dry-run").out.split())
    assert "sorted: about 1.9 times the CPU of a merge that only decodes. A filter on one" in out
