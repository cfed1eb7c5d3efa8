"""``arctic tasks submit``, ``skip`` and ``unskip``."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.cli import progress
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.lifecycle import Lifecycle
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import task_locations, task_submissions
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.cli.tasked import ON_SQLITE, Tasked, task, tasked, three

__all__ = ["tasked", "three"]

Command = Callable[..., Outcome]


class NoRuns:
    """A Dagster instance in which nothing runs."""

    def run_statuses(self, run_ids: Any) -> dict[str, Any]:
        return {}

    def runs_by_tag(self, key: str, values: Any) -> dict[str, Any]:
        return {}

    def why_failed(self, run_id: str) -> str | None:
        return None


def submitted(arctic: Command, *arguments: str) -> list[dict[str, Any]]:
    result = arctic("tasks", "submit", *arguments, "--json")
    assert result.code == 0, result.err
    found: list[dict[str, Any]] = json.loads(result.out)["submissions"]
    return found


def test_a_submission_is_shown_with_its_expected_runs(three: Tasked, arctic: Command) -> None:
    """Fresh already; parents that are too old; a second one, which shares the first one's run."""
    result = arctic("tasks", "submit", "raw", "top")
    assert result.code == 0
    title, _, raw, top, hint = result.out.splitlines()
    assert title == "2 tasks submitted"
    assert "submitted" in raw
    assert "which is fresh: nothing will run" in raw
    assert top.rstrip().endswith("never made; waits for middle")
    assert hint == "what becomes of it: arctic tasks show raw"
    again = arctic("tasks", "submit", "top").out
    assert "came before, and its run is shared" in again
    three.acquired("top", run="run-3", cluster="west")
    assert "run run-3 of cluster west, location lake makes it already" in (
        arctic("tasks", "submit", "top").out
    )
    with three.database.read() as tx:
        assert len(submissions.latest_of(tx, "top")) == 3


def test_a_batch_stands_for_its_tasks(three: Tasked, arctic: Command) -> None:
    """All of them, or those that --only names; --with-parents adds what is above, anywhere."""
    assert sorted(one["task"] for one in submitted(arctic, "daily")) == ["middle", "top"]
    only = submitted(arctic, "daily", "landing", "--only", "raw, top")
    assert sorted((one["task"], one["location"]) for one in only) == [
        ("raw", "feeds"),
        ("top", "lake"),
    ]
    whole = submitted(arctic, "top", "--with-parents")
    assert sorted(one["task"] for one in whole) == ["middle", "raw", "top"]
    assert len({one["group"] for one in whole}) == 1


def test_force_and_hours_change_what_is_fresh(three: Tasked, arctic: Command) -> None:
    """raw is 5 hours old, and 12 by its own word."""
    (plain,) = submitted(arctic, "raw")
    (strict,) = submitted(arctic, "raw", "--freshness-hours", "4.5")
    (forced,) = submitted(arctic, "raw", "--force")
    assert (plain["force"], strict["force"], forced["force"]) == (False, False, True)
    assert "came before, and its run is shared" in arctic("tasks", "submit", "raw", "--force").out
    assert plain["required_since"] < strict["required_since"] < forced["required_since"]


@ON_SQLITE
def test_wishes_that_cannot_be_are_refused_and_nothing_is_written(
    three: Tasked, arctic: Command
) -> None:
    """By option, value and what was expected."""
    for arguments, message in (
        (("top", "nothing"), "no task has the name 'nothing'"),
        (("raw", "--freshness-hours", "0"), "freshness_hours: got 0.0, expected more than 0"),
        (("raw", "--freshness-hours", "-2"), "freshness_hours: got -2.0, expected more than 0"),
        (("raw", "--force", "--freshness-hours", "2"), "expected no hours when it is forced"),
        (("daily", "--only", "raw,"), "--only: got 'raw,', expected names with commas between"),
        (("top", "--only", "raw"), "only: got 'raw', expected one of the tasks that are named"),
        (("daily", "--only", "top", "--with-parents"), "with_parents"),
    ):
        refused = arctic("tasks", "submit", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert message in " ".join(refused.err.split())
    with three.database.read() as tx:
        assert tx.execute(sa.select(sa.func.count()).select_from(task_submissions)).scalar() == 0


@ON_SQLITE
def test_a_task_of_several_locations_needs_one_to_be_named(three: Tasked, arctic: Command) -> None:
    """The message has both; a task of another cluster is that cluster's to make."""
    three.declare(task("raw", 12), location="spare")
    refused = arctic("tasks", "submit", "raw")
    assert refused.code == 2
    assert "feeds of cluster default, spare of cluster default" in " ".join(refused.err.split())
    (one,) = submitted(arctic, "raw", "--location", "spare")
    assert one["location"] == "spare"
    three.declare(task("far", 12), location="lake", cluster="west")
    (one,) = submitted(arctic, "far")
    assert (one["cluster"], one["location"]) == ("west", "lake")
    assert "west/lake" in arctic("tasks", "submit", "far", "raw", "--location", "spare").out


def _declared(arctic: Command) -> list[dict[str, str]]:
    listed = json.loads(arctic("tasks", "list", "--json").out)["tasks"]
    return [place for one in listed for place in one["declared"]]


def test_a_location_that_ticks_is_not_forgotten(three: Tasked, arctic: Command) -> None:
    """It would be there again by its next tick; nothing was changed."""
    submitted(arctic, "top")
    with three.database.begin() as tx:
        definitions.ticked(tx, "default", "lake", database_time(tx))
    refused = arctic("tasks", "forget", "lake", "--yes")
    assert (refused.code, refused.out) == (2, "")
    message = " ".join(refused.err.split())
    assert "location: got 'lake', expected one whose sensor arctic_tasks does not tick" in message
    assert {one["location"] for one in _declared(arctic)} == {"lake", "feeds"}


def test_a_location_is_forgotten(three: Tasked, arctic: Command) -> None:
    """With what was submitted there; one that is unknown is refused with those there are."""
    submitted(arctic, "top")
    unasked = arctic("tasks", "forget", "lake")
    assert (unasked.code, unasked.out) == (2, "")
    assert "confirmation: got 'no terminal', expected --yes" in unasked.err
    assert {one["location"] for one in _declared(arctic)} == {"lake", "feeds"}
    result = arctic("tasks", "forget", "lake", "--yes")
    assert (
        result.out == "lake of cluster default is forgotten: 2 tasks removed, 1 submission ended\n"
    )
    done = json.loads(
        arctic("tasks", "forget", "feeds", "--cluster", "default", "--json", "--yes").out
    )
    assert done == {"cluster": "default", "location": "feeds", "tasks": 1, "submissions": 0}
    refused = arctic("tasks", "forget", "lake", "--cluster", "west")
    assert (refused.code, refused.out) == (2, "")
    assert "location lake of cluster west has no tasks" in refused.err


@ON_SQLITE
def test_waiting_ends_when_all_have_ended(three: Tasked, arctic: Command) -> None:
    """What is fresh ends well, and what is skipped does not: exit code 1."""
    assert arctic("tasks", "skip", "top", "--reason", "not today").code == 0
    over = threading.Event()

    def tick() -> None:
        for location in ("feeds", "lake") * 10_000:
            if over.is_set():
                return
            Lifecycle(
                database=three.database, cluster="default", location=location, runs=NoRuns()
            ).tick()
            over.wait(0.05)

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        fresh = arctic("tasks", "submit", "raw", "--wait", "--json")
        skipped = arctic("tasks", "submit", "raw", "top", "--wait")
    finally:
        over.set()
        ticking.join()
    assert fresh.code == 0
    assert [one["state"] for one in json.loads(fresh.out)["submissions"]] == ["fresh"]
    assert skipped.code == 1
    assert "skipped: not today (by " in skipped.out


@ON_SQLITE
def test_a_waiting_command_reports_a_location_with_a_silent_sensor(
    three: Tasked, arctic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, where errors go: what is printed stays one document."""
    with three.database.begin() as tx:
        hours_ago = database_time(tx) - timedelta(hours=3)
        tx.execute(sa.update(task_locations).values(ticked_at=hours_ago))
    looks = iter(range(3))

    def wait(seconds: float) -> None:
        if next(looks) < 2:
            return
        for location in ("feeds", "lake"):
            Lifecycle(
                database=three.database, cluster="default", location=location, runs=NoRuns()
            ).tick()

    monkeypatch.setattr(progress, "sleep", wait)
    done = arctic("tasks", "submit", "raw", "--wait", "--json")
    assert [one["state"] for one in json.loads(done.out)["submissions"]] == ["fresh"]
    assert done.err.count("\n") == 1
    assert done.err.startswith("default/feeds: its sensor has not ticked for 3h")


def test_a_task_is_skipped_with_a_reason_until_it_is_not(three: Tasked, arctic: Command) -> None:
    """Everybody sees the reason, in the list and in the history; what is not there is refused."""
    result = arctic("tasks", "skip", "middle", "-r", "the [source] is wrong")
    assert result.out == "middle is on the skip list: the [source] is wrong\n"
    listed = arctic("tasks", "list").out
    assert "skipped" in listed
    assert "the [source] is wrong (by " in listed
    assert "on the skip list: the [source] is wrong" in (
        arctic("tasks", "submit", "middle", "--force").out
    )
    done = json.loads(arctic("tasks", "unskip", "middle", "--json").out)
    assert done == {"task": "middle"}
    found = json.loads(arctic("tasks", "show", "middle", "--json").out)
    assert found["skipped"] is None
    steps = [event["step"] for event in found["history"]]
    assert (steps[0], steps[-1]) == ("skip_set", "skip_lifted")

    for arguments, message in (
        (("skip", "nobody", "-r", "x"), "no task has the name 'nobody'"),
        (("skip", "raw", "-r", " "), "reason: got ' ', expected why it is not to be made"),
        (("unskip", "raw"), "task raw is not on the skip list, which has: nothing"),
    ):
        refused = arctic("tasks", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert message in " ".join(refused.err.split())


@ON_SQLITE
def test_an_explanation_names_the_parents_of_where_it_was_submitted(
    tasked: Tasked, arctic: Command
) -> None:
    """Two clusters declare the task, one of them its parent: submitted first there only."""

    def of(name: str, **parents: float) -> TaskSpec:
        return task(name, 24, **parents).model_copy(update={"batch": None})

    tasked.declare(of("parent"), of("child", parent=1))
    tasked.declare(of("child", parent=1), location="far", cluster="west")

    def explained() -> tuple[str, list[str]]:
        text = " ".join(arctic("tasks", "explain", "child").out.split())
        document = json.loads(arctic("tasks", "explain", "child", "--json").out)
        return text, document["runs"]

    text, runs = explained()
    assert "it is submitted first by lake of cluster default" in text
    assert runs == ["parent", "child"]
    with tasked.database.begin() as tx:
        submissions.submit(tx, ["child"], cluster="west", location="far", by="ann")
    text, runs = explained()
    assert "it is of location lake of cluster default, and is waited for" in text
    assert runs == ["child"]
    with tasked.database.begin() as tx:
        submissions.submit(tx, ["child"], cluster="default", location="lake", by="ann")
    text, runs = explained()
    assert "it is submitted first by lake of cluster default" in text
    assert runs == ["parent", "child"]
