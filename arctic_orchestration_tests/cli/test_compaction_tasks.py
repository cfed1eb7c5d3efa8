"""``arctic compaction tasks`` and ``records``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import commit_leases, commits
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.attempt import MergedFile
from arctic_orchestration.console.actor import person
from arctic_orchestration_tests.cli.compacting import ON_SQLITE, SmallLake, lake, line_of
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.compaction.test_odd_rows import spoil
from arctic_orchestration_tests.present import present

__all__ = ["lake"]

Command = Callable[..., Outcome]


def listed(arctic: Command, *options: str) -> list[dict[str, Any]]:
    """Tasks as programs read them."""
    shown = arctic("compaction", "tasks", "list", "--json", *options).out
    found: list[dict[str, Any]] = json.loads(shown)["tasks"]
    return found


def test_tasks_are_listed_in_the_order_in_which_they_are_claimed(
    lake: SmallLake, arctic: Command
) -> None:
    """A table of a higher level first; ended ones only where they are requested."""
    lake.table("lake.low", 3)
    lake.table("lake.high", 4, **{"arctic.compaction.level": "1"})
    lake.tick()
    assert [(task["table"], task["state"], task["files"]) for task in listed(arctic)] == [
        ("lake.high", "planned", 4),
        ("lake.low", "planned", 3),
    ]
    (first,) = listed(arctic, "--limit", "1")
    result = arctic("compaction", "tasks", "list", "-n", "1")
    assert result.out.splitlines()[0] == "2 planned"
    assert "and 1 more: --limit 2" in result.out
    lake.fail("the disk is full", final=True)
    assert [task["table"] for task in listed(arctic)] == ["lake.low"]
    assert "1 task in quarantine: --state quarantined" in arctic("compaction", "tasks", "list").out
    (ended,) = listed(arctic, "--state", "ended")
    assert (ended["task"], ended["state"]) == (first["task"], "quarantined")
    assert [task["table"] for task in listed(arctic, "--state", "all")] == ["lake.low", "lake.high"]
    assert [task["table"] for task in listed(arctic, "--table", "lake.low")] == ["lake.low"]
    assert len(listed(arctic, "--queue", "default", "--state", "planned")) == 1


@ON_SQLITE
def test_filters_that_nothing_answers_to_are_refused(lake: SmallLake, arctic: Command) -> None:
    """Rather than an empty list, which would be read as good news."""
    for options, message in (
        (("--state", "lost"), "--state: got 'lost', expected one of planned, claimed, merged"),
        (("--queue", "lost"), "no compaction queue lost; there is: default"),
        (("--table", "lake.lost"), "compaction knows no table lake.lost, nor any"),
    ):
        refused = arctic("compaction", "tasks", "list", *options)
        assert (refused.code, refused.out) == (2, "")
        assert message in " ".join(refused.err.split())
    assert arctic("compaction", "tasks", "list").out == "no such tasks\n"
    assert "no such records" in arctic("compaction", "records").out


def test_a_task_is_shown_with_its_files_attempts_and_history(
    lake: SmallLake, arctic: Command
) -> None:
    """Found by a part of its id; what each attempt came to, and why."""
    lake.table("lake.flights", 3)
    lake.tick()
    claim = lake.fail("no [room] left")
    found = json.loads(arctic("compaction", "tasks", "show", claim.task.id[-6:], "--json").out)
    assert (found["task"], found["state"], found["ahead"]) == (claim.task.id, "failed", None)
    assert [file["rows"] for file in found["data_files"]] == [1, 1, 1]
    assert sum(file["bytes"] for file in found["data_files"]) == found["bytes"]
    (tried,) = found["tried"]
    assert (tried["state"], tried["reason"]) == ("failed", "no [room] left")
    assert [move["state"] for move in found["history"]] == ["planned", "claimed", "failed"]
    text = arctic("compaction", "tasks", "show", claim.task.id).out
    assert f"task {claim.task.id} of lake.flights: minor merge of day=2013-01-01" in text
    assert "planned because 3 fragments; 3 suffice" in text
    assert line_of(text, "  worker-1  ")[3:] == ["failed", "worker-1", "no [room] left"]
    assert text.count(".parquet") == 3


@ON_SQLITE
def test_parts_of_ids_that_do_not_name_one_task_are_refused(
    lake: SmallLake, arctic: Command
) -> None:
    """Too short, of none, or of several."""
    lake.table("lake.flights", 3, 2)
    lake.tick()
    common = lake.tasks()[0].id[:4]
    for part, message in (
        ("abc", "ID: got 'abc', expected a task's id, or 4 or more characters of it"),
        ("zzzzzz", "no compaction task zzzzzz"),
        (common, "a part that one task has; several have it"),
    ):
        for command in ("show", "retry", "cancel"):
            refused = arctic("compaction", "tasks", command, part)
            assert (refused.code, refused.out) == (2, "")
            assert message in " ".join(refused.err.split())


def test_a_failed_task_can_be_tried_at_once(lake: SmallLake, arctic: Command) -> None:
    """Without its retry interval; its failures count all the same."""
    lake.table("lake.flights", 3)
    lake.tick()
    task = lake.fail("the disk is full").task
    again = json.loads(arctic("compaction", "tasks", "retry", task.id, "--json").out)
    assert (again["state"], again["not_before"], again["attempts"]) == ("planned", None, 1)
    assert again["reason"] == f"attempt 2 of 3 at once: requested by {person()}"
    assert lake.claim().task.id == task.id
    refused = arctic("compaction", "tasks", "retry", task.id)
    assert refused.code == 2
    assert "is claimed; only failed or quarantined tasks can be retried" in refused.err


def test_the_files_of_a_task_in_quarantine_can_be_planned_again(
    lake: SmallLake, arctic: Command
) -> None:
    """Its table rests no more, nor do they, and the next round has a new task."""
    lake.table("lake.flights", 3)
    lake.tick()
    task = lake.fail("a broken file", final=True).task
    lake.tick()
    assert lake.tasks(TaskState.PLANNED) == []
    result = arctic("compaction", "tasks", "retry", task.id)
    assert result.out == (
        f"lake.flights: the files of task {task.id} no longer rest, and are planned again\n"
    )
    lake.tick()
    (anew,) = lake.tasks(TaskState.PLANNED)
    assert (anew.digest, anew.id != task.id) == (task.digest, True)


def test_files_that_cannot_be_read_are_one_line(lake: SmallLake, arctic: Command) -> None:
    """As those that another version has stored."""
    lake.table("lake.flights", 3)
    lake.tick()
    task = lake.fail("a broken file", final=True).task.id
    spoil(lake.database, task)
    for command in (("show", task), ("show", task, "--json"), ("retry", task)):
        refused = arctic("compaction", "tasks", *command)
        assert (refused.code, refused.out) == (2, "")
        text = f"error: the stored files of task {task} cannot be read: KeyError"
        assert text in " ".join(refused.err.split())


def test_a_waiting_task_can_be_taken_back(lake: SmallLake, arctic: Command) -> None:
    """One that a worker has is left to it."""
    lake.table("lake.flights", 3, 2)
    lake.tick()
    claimed = lake.claim().task
    (waiting,) = lake.tasks(TaskState.PLANNED)
    result = arctic("compaction", "tasks", "cancel", waiting.id)
    assert f"task {waiting.id} of lake.flights is canceled; its 3 files rest until" in result.out
    assert "arctic compaction wake lake.flights" in " ".join(result.out.split())
    assert [task.id for task in lake.tasks(TaskState.CANCELED)] == [waiting.id]
    refused = arctic("compaction", "tasks", "cancel", claimed.id)
    assert refused.code == 2
    assert "is claimed; what can be canceled waits" in refused.err
    assert [task.id for task in lake.tasks(TaskState.CLAIMED)] == [claimed.id]


@ON_SQLITE
def test_a_prioritized_task_is_claimed_first(lake: SmallLake, arctic: Command) -> None:
    """It says how many precede it then; the next plan of its table leaves it."""
    for name in ("lake.a", "lake.b"):
        lake.table(name, 3)
        lake.tick()
    _, last = listed(arctic)
    shown = arctic("compaction", "tasks", "prioritize", last["task"], "--level", "3").out
    assert shown.split(" has ")[1] == "level 3, before 0; 0 tasks of default precede it\n"
    arctic("compaction", "plan", last["table"])
    assert [(task["table"], task["level"]) for task in listed(arctic)] == [
        (last["table"], 3), (("lake.a", "lake.b")[last["table"] == "lake.a"], 0),
    ]  # fmt: skip
    refused = arctic("compaction", "tasks", "prioritize", last["task"], "--level", "1001")
    assert (refused.code, listed(arctic)[0]["level"]) == (2, 3)


def test_what_was_canceled_is_not_planned_again(lake: SmallLake, arctic: Command) -> None:
    """Its files rest, and a run of them says by its exit code that it could do nothing; until they
    are woken.
    """
    lake.table("lake.flights", 3)
    lake.tick()
    (waiting,) = lake.tasks(TaskState.PLANNED)
    arctic("compaction", "tasks", "cancel", waiting.id)
    arctic("compaction", "plan", "lake.flights")
    assert lake.tasks(TaskState.PLANNED) == []
    run = arctic("compaction", "run", "lake.flights")
    assert run.code == 1
    assert "nothing could be merged" in run.out
    status = json.loads(arctic("compaction", "list", "--json").out)["tables"][0]
    assert status["resting_files"] == 3
    assert f"canceled by {person()}" in status["reasons"][0]
    arctic("compaction", "wake", "lake.flights")
    lake.tick()
    assert [task.digest for task in lake.tasks(TaskState.PLANNED)] == [waiting.digest]


def test_records_are_listed_newest_first(lake: SmallLake, arctic: Command) -> None:
    """With what went, what came, and which way it was merged."""
    for number, name in enumerate(("lake.old", "lake.new"), 3):
        lake.table(name, number)
        lake.tick()
        claim = lake.claim()
        with lake.database.begin() as tx:
            attempts.merged(
                tx,
                claim.attempt_id,
                claim.token,
                outputs=[MergedFile(path="merged.parquet", size=1000, rows=number - 1)],
                rows_in=number,
                rows_deleted=1,
                rows_out=number - 1,
                way="decode",
                because="rows are deleted",
            )
            commits.committed(tx, [claim.task.id], 70 + number, delete_files_removed=2)
    found = json.loads(arctic("compaction", "records", "--json").out)["records"]
    assert [
        (one["table"], one["snapshot_id"], one["files_in"], one["files_out"], one["rows"])
        for one in found
    ] == [("lake.new", 74, 4, 1, 3), ("lake.old", 73, 3, 1, 2)]
    assert (found[0]["bytes_out"], found[0]["ways"]) == (1000, {"decode": 1})
    lines = arctic("compaction", "records", "--table", "lake.old").out
    shown = line_of(lines, "lake.old")
    assert shown[1:5] == ["lake.old", "73", "1", "3 → 1"]
    assert shown[-1] == "decode, 1 deleted row left out, 2 delete files removed"
    assert "lake.new" not in lines
    with lake.database.read() as tx:
        assert not tables.table_by_name(tx, "lake.old").rests(utc_now())


def merged(lake: SmallLake) -> str:
    """The id of a task that waits for the committer."""
    lake.table("lake.flights", 3)
    lake.tick()
    claim = lake.claim()
    with lake.database.begin() as tx:
        attempts.merged(
            tx, claim.attempt_id, claim.token, outputs=[], rows_in=3, rows_deleted=3,
            rows_out=0, way="decode", because="all rows are deleted",
        )  # fmt: skip
    return claim.task.id


def test_a_merged_task_that_cannot_be_committed_can_be_taken_back(
    lake: SmallLake, arctic: Command
) -> None:
    """Not while a committer has its table."""
    id = merged(lake)
    with lake.database.begin() as tx:
        lease = present(commit_leases.take_commit_lease(tx, "lake.flights", "committer-7"))
    refused = arctic("compaction", "tasks", "cancel", id)
    assert refused.code == 2
    assert f"{id} is merged, and committer-7 commits to lake.flights until 20" in refused.err
    with lake.database.begin() as tx:
        commit_leases.end_commit_lease(tx, lease, trouble="access denied")
    assert "not committed to: access denied" in arctic("compaction", "list").out
    assert "the last attempt failed: access denied" in (
        arctic("compaction", "explain", "lake.flights").out
    )
    canceled = json.loads(arctic("compaction", "tasks", "cancel", id, "--json").out)
    assert (canceled["state"], canceled["reason"]) == ("canceled", f"canceled by {person()}")
    with lake.database.read() as tx:
        row = tables.table_by_name(tx, "lake.flights")
    assert (row.commit_owner, row.commit_trouble) == (None, "access denied")
    lake.tick()
    assert lake.tasks(TaskState.PLANNED) == []
    arctic("compaction", "wake", "lake.flights")
    lake.tick()
    assert len(lake.tasks(TaskState.PLANNED)) == 1


def test_a_merged_task_that_is_committed_already_is_not_taken_back(
    lake: SmallLake, arctic: Command
) -> None:
    """The committer died before it could say so; its outputs would be removed."""
    id = merged(lake)
    table = lake.catalog.load_table("lake.flights")
    named = {"arctic.compaction.tasks": f"x,{id}"}
    table.append(table.scan().to_arrow(), snapshot_properties=named)
    snapshot_id = present(table.refresh().current_snapshot()).snapshot_id
    refused = arctic("compaction", "tasks", "cancel", id)
    assert refused.code == 2
    assert f"{id} is in snapshot {snapshot_id} already" in refused.err
    assert [task.id for task in lake.tasks(TaskState.MERGED)] == [id]
    with lake.database.read() as tx:
        assert tables.table_by_name(tx, "lake.flights").commit_owner is None


def test_a_merged_task_is_not_canceled_by_another_catalog(
    lake: SmallLake, arctic: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which snapshots have it is written in its own."""
    id = merged(lake)
    monkeypatch.setenv("ARCTIC_LAKE", str(tmp_path / "other"))
    refused = arctic("compaction", "tasks", "cancel", id)
    assert refused.code == 2
    assert "The state database is about the catalog lake in " in refused.err
    assert [task.id for task in lake.tasks(TaskState.MERGED)] == [id]
    with lake.database.read() as tx:
        assert tables.table_by_name(tx, "lake.flights").commit_owner is None


def test_a_catalog_that_has_moved_is_forgotten(lake: SmallLake, arctic: Command) -> None:
    """The next that works on the state database is right."""
    lake.tick()
    output = arctic("compaction", "forget-catalog").out
    assert output.startswith("the state database is about lake in /")
    assert "no more" in output
    assert "about no catalog yet" in arctic("compaction", "forget-catalog").out
