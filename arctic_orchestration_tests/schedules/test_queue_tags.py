"""What runs of a schedule tell the run queue."""

from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.run_queue_tags import queue_tags
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on


def schedule(**fields: Any) -> Schedule:
    return Schedule(name="hourly", target="load", trigger=on.partitions("raw"), **fields)


def test_a_schedule_that_says_nothing_sets_no_tag() -> None:
    assert queue_tags(schedule()) == {}


def test_priority_is_the_level_and_concurrency_groups_are_groups() -> None:
    made = schedule(
        priority=-3,
        tags={"team": "finance"},
        constraints=[
            only.concurrency(1),
            only.concurrency(2, group="warehouse"),
            only.concurrency(5, group="no name for a tag"),
            only.rate(5, per="1m", group="api"),
        ],
    )
    assert queue_tags(made) == {
        "arctic/level": "-3",
        "arctic/group.warehouse": "of schedule hourly",
        "team": "finance",
    }


def test_its_own_tags_stand_over_what_follows_from_it() -> None:
    made = schedule(priority=4, tags={"arctic/level": "1", "arctic/queue": "urgent"})
    assert queue_tags(made) == {"arctic/level": "1", "arctic/queue": "urgent"}


@pytest.mark.parametrize(
    "key",
    ["arctic/queue", "arctic/level", "arctic/group", "arctic/group.a_b-1", "arctic/window",
     "arctic/rate.api", "arctic/interval"],
)  # fmt: skip
def test_a_schedule_may_put_its_runs_under_rules(key: str) -> None:
    assert schedule(tags={key: "x"}).tags == {key: "x"}


@pytest.mark.parametrize(
    ("key", "begin"),
    [
        (".dagster/arctic_queued_at", ".dagster/"), ("arctic/job", "arctic/"),
        ("arctic/groups", "arctic/"), ("arctic/rate.", "arctic/"),
    ],
)  # fmt: skip
def test_other_tags_of_ours_are_refused(key: str, begin: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"no tag that begins with {begin}"):
        schedule(tags={key: "x"})
