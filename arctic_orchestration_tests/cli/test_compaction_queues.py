"""``arctic compaction queues``, ``map`` and ``unmap``."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration_tests.cli.compacting import ON_SQLITE, SmallLake, lake, line_of
from arctic_orchestration_tests.cli.conftest import Outcome

__all__ = ["lake"]

Command = Callable[..., Outcome]


def listed(arctic: Command) -> dict[str, dict[str, Any]]:
    """The queues as programs read them, by name."""
    found = json.loads(arctic("compaction", "queues", "list", "--json").out)["queues"]
    return {queue["queue"]: queue for queue in found}


def test_queues_are_added_changed_and_deleted(lake: SmallLake, arctic: Command) -> None:
    """The queue default is there from the beginning, and stays."""
    result = arctic(
        *("compaction", "queues", "add", "fast", "--capacity", "5", "--level", "-2"),
        *("--share", "3", "--max-workers", "0"),
    )
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "compaction queue fast is added: capacity 5, level -2, share 3, "
        "at most 0 workers requested, execution timeout 2h\n"
    )
    assert list(listed(arctic)) == ["default", "fast"]
    result = arctic("compaction", "queues", "update", "fast", "--level", "7", "--json")
    assert json.loads(result.out)["queue"] == {
        "queue": "fast", "capacity": 5, "level": 7, "share": 3, "max_workers": 0,
        "min_workers": 0, "application": None,
        "execution_timeout_seconds": 7200, "hours": "always", "budget": 0.0, "state": "open",
    }  # fmt: skip
    # The higher level first.
    assert list(listed(arctic)) == ["fast", "default"]
    assert arctic("compaction", "queues", "delete", "fast").code == 0
    assert list(listed(arctic)) == ["default"]


def test_a_queue_says_how_its_workers_get_spark(lake: SmallLake, arctic: Command) -> None:
    """Applications with properties, then the session again; a floor is kept in both."""
    update = ("compaction", "queues", "update", "default")
    result = arctic(
        *(*update, "--min-workers", "1", "--max-workers", "2", "--spark", "application"),
        *("--spark-property", "spark.master=yarn", "--spark-property", "spark.x=a=b"),
    )
    assert result.out == (
        "compaction queue default is changed: capacity 1000, level 0, share 1, at least 1 and at "
        "most 2 workers with applications of their own requested, execution timeout 2h\n"
    )
    (queue,) = json.loads(arctic("compaction", "queues", "list", "--json").out)["queues"]
    assert queue["application"] == {"spark.master": "yarn", "spark.x": "a=b"}
    result = arctic(*update, "--spark", "session", "--json")
    queue = json.loads(result.out)["queue"]
    assert (queue["application"], queue["min_workers"]) == (None, 1)


@ON_SQLITE
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "fast", "--spark", "own"), "--spark: got 'own', expected session or application"),
        (
            ("update", "default", "--spark-property", "spark.a=1"),
            "--spark-property: got 'spark.a=1', expected it with --spark application",
        ),
        (
            ("add", "fast", "--spark", "application", "--spark-property", "a=1"),
            "--spark-property: got 'a=1', expected spark.NAME=VALUE",
        ),
        (
            (
                "add",
                "fast",
                "--spark",
                "application",
                "--spark-property",
                "spark.sql.session.timeZone=CET",
            ),
            "spark.sql.session.timeZone",
        ),
        (("add", "fast", "--capacity", "0"), "capacity: got 0, expected a whole number, 1 to"),
        (("add", "a b"), "name: got 'a b', expected a name of 1 to 40"),
        (("add", "default"), "name: got 'default', expected a name that no compaction queue"),
        (("add", "fast", "--execution-timeout", "0s"), "--execution-timeout: got '0s', expected a"),
        (("pause", "lost"), "no compaction queue lost; there is: default"),
        (("add", "fast", "--share", "0"), "share: got 0, expected a whole number, 1 to"),
        (("update", "default"), "expected one of --capacity, --level, --share, --max-workers"),
        (("update", "lost", "--level", "1"), "no compaction queue lost; there is: default"),
        (("delete", "lost"), "no compaction queue lost; there is: default"),
        (("delete", "default"), "another queue: default is always there"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    lake: SmallLake, arctic: Command, arguments: tuple[str, ...], message: str
) -> None:
    """One message, exit code 2, and nothing is changed."""
    before = listed(arctic)
    refused = arctic("compaction", "queues", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in " ".join(refused.err.split())
    assert listed(arctic) == before


def test_a_table_that_is_mapped_takes_its_waiting_tasks_along(
    lake: SmallLake, arctic: Command
) -> None:
    """What a worker has stays where it was claimed; unmapping brings the others back."""
    lake.table("lake.flights", 3, 2)
    lake.tick()
    claimed = lake.claim().task
    arctic("compaction", "queues", "add", "fast", "--capacity", "1")
    result = arctic("compaction", "map", "lake.flights", "fast")
    assert (result.code, result.out) == (
        0,
        "lake.flights is in queue fast (mapped manually); 1 waiting task moved\n",
    )
    assert {task.id: task.queue for task in lake.tasks()} == {
        task.id: "default" if task.id == claimed.id else "fast" for task in lake.tasks()
    }
    queues = listed(arctic)
    assert (queues["fast"]["waiting"], queues["fast"]["tables"], queues["fast"]["room"]) == (
        1,
        1,
        0,
    )
    assert (queues["default"]["claimed"], queues["default"]["tables"]) == (1, 0)
    text = arctic("compaction", "queues", "list").out
    assert line_of(text, "fast") == [
        *("fast", "0", "1", "1 of 1", "1", "1"),
        "full: tables that find no room stay due; no worker serves it",
    ]
    refused = arctic("compaction", "queues", "delete", "fast")
    assert refused.code == 2
    assert "a queue without tables; mapped to it: lake.flights" in refused.err
    back = json.loads(arctic("compaction", "unmap", "lake.flights", "--json").out)
    assert back == {
        "table": "lake.flights",
        "queue": "default",
        "because": "no queue is named",
        "moved": 1,
    }


def test_a_table_that_the_planner_has_not_found_can_be_mapped(
    lake: SmallLake, arctic: Command
) -> None:
    """The catalog has it, and its tasks will go there."""
    lake.table("lake.flights", 3)
    arctic("compaction", "queues", "add", "fast")
    result = arctic("compaction", "map", "lake.flights", "fast")
    assert result.out == "lake.flights is in queue fast (mapped manually); no task had to move\n"
    lake.tick()
    assert [task.queue for task in lake.tasks()] == ["fast"]


@ON_SQLITE
def test_names_that_nothing_has_are_refused(lake: SmallLake, arctic: Command) -> None:
    """With those that there are; a table that was not there is not made known."""
    lake.table("lake.flights", 0)
    for arguments, message in (
        (("map", "lake.flights", "lost"), "no compaction queue lost; there is: default"),
        (("map", "lake.lost", "default"), "table 'lake.lost' is not in catalog lake; there are "
                                          "lake.flights"),
        (("unmap", "lake.flights"), "compaction knows no table lake.flights, nor any"),
    ):  # fmt: skip
        refused = arctic("compaction", *arguments)
        assert refused.code == 2
        assert message in " ".join(refused.err.split())
    assert listed(arctic)["default"]["tables"] == 0


def test_queues_are_paused_drained_and_resumed(lake: SmallLake, arctic: Command) -> None:
    """The list says so, and so does what waits."""
    lake.table("lake.flights", 3)
    lake.tick()
    result = arctic("compaction", "queues", "pause", "default")
    assert result.out == "compaction queue default is paused: no worker claims its tasks\n"
    assert listed(arctic)["default"]["state"] == "paused"
    assert "paused: no worker claims its tasks" in arctic("compaction", "queues", "list").out
    explained = " ".join(arctic("compaction", "explain", "lake.flights").out.split())
    assert "default is paused: arctic compaction queues resume default" in explained
    drained = json.loads(arctic("compaction", "queues", "drain", "default", "--json").out)
    assert drained == {"queue": "default", "state": "draining", "before": "paused"}
    assert listed(arctic)["default"]["room"] == 0
    resumed = arctic("compaction", "queues", "resume", "default")
    assert resumed.out == "compaction queue default takes tasks, and workers claim them\n"
    arctic("compaction", "queues", "update", "default", "--execution-timeout", "30m")
    assert listed(arctic)["default"]["execution_timeout_seconds"] == 1800


def test_a_queue_that_is_closed_or_has_used_its_budget_says_so(
    lake: SmallLake, arctic: Command
) -> None:
    """In its list, in what waits, and when a person wants to merge in it; then it goes on."""
    lake.table("lake.flights", 3)
    lake.tick()
    closed = (utc_now() - timedelta(days=2)).strftime("%a").lower()
    hours = f"00:00-24:00 UTC {closed}"
    result = arctic(
        *("compaction", "queues", "update", "default", "--hours", hours, "--budget", "0.5")
    )
    assert f"hours {hours}, budget 0.5 tasks at once" in result.out
    queue = listed(arctic)["default"]
    assert (queue["hours"], queue["budget"]) == (hours, 0.5)
    assert queue["held"].startswith("its hours begin at ")
    assert queue["held"] in " ".join(arctic("compaction", "queues", "list").out.split())
    explained = " ".join(arctic("compaction", "explain", "lake.flights").out.split())
    assert f"default waits: {queue['held']}" in explained
    (waits,) = json.loads(arctic("waiting", "--json").out)["waits"]
    assert (waits["cause"], waits["until"]["event"]) == ("worker:default", "claim")
    assert queue["held"] in waits["reason"]
    with pytest.raises(AssertionError):
        lake.claim()
    # Nine seconds are saved, and an attempt counts sixty.
    arctic("compaction", "queues", "update", "default", "--hours", "always", "--budget", "0.01")
    assert lake.claim()
    held = listed(arctic)["default"]["held"]
    assert held.startswith("its budget of 0.01 tasks at once is used up until about ")
    arctic("compaction", "queues", "update", "default", "--budget", "0")
    assert listed(arctic)["default"]["held"] is None
