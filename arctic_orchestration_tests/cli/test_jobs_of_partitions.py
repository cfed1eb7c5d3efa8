"""``arctic jobs`` of target partitions."""

import json
from collections.abc import Callable

import pytest

from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.cli.test_target_partitions import MakeLake, arrive, make, three_of
from arctic_orchestration_tests.schedules.lake_of_partitions import DAY, daily
from arctic_orchestration_tests.schedules.simulated import World

__all__ = ["make"]

Command = Callable[..., Outcome]


@pytest.fixture
def here(make: MakeLake) -> World:
    """A day of all regions, two days that wait, and a tick that waits for every day."""
    all_regions = on.partitions("raw/orders", count="all") & on.partitions("config")
    made = make([daily(trigger=all_regions), daily("range", trigger=on.partitions("raw/days"),
                 partitions="range")])  # fmt: skip
    made.feed.arrive("config")
    arrive(made, *three_of("2026-01-01"), "2026-01-02|emea", "2026-01-02|amer", "2026-01-03|emea")
    arrive(made, "2026-01-01", "2026-01-02", asset="raw/days")
    made.tick(3 * DAY)
    return made


def test_jobs_are_listed_by_target_partition(here: World, arctic: Command) -> None:
    """Of all schedules; a range by its ends. The table has a column for it."""
    document = json.loads(arctic("jobs", "list", "--partition", "2026-01-02", "--json").out)["jobs"]
    assert {(job["schedule"], job["partition"], job["state"]) for job in document} == {
        ("daily", "2026-01-02", "waiting_trigger"),
        ("range", None, "launching"),
        ("range", "2026-01-02", "discarded"),
    }
    table = arctic("jobs", "list", "--schedule", "range", "--state", "active").out
    assert table.splitlines()[0].split()[:3] == ["job", "schedule", "partition"]
    assert "2026-01-01 … 2026-01-02" in table
    assert arctic("jobs", "list", "--partition", "2026-02-01").out == "no such jobs\n"


def test_explain_names_the_target_partition_and_what_is_missing(
    here: World, arctic: Command
) -> None:
    """Without a partition of the job that is checked first, not of what is kept for all."""
    first = json.loads(arctic("jobs", "explain", "daily", "--json").out)
    assert (first["partition"], first["others_waiting"]) == ("2026-01-02", 1)
    document = json.loads(
        arctic("jobs", "explain", "daily", "--partition", "2026-01-03", "--json").out
    )
    assert document["partition"] == "2026-01-03"
    orders, config = document["trigger"]["children"]
    missing = ["2026-01-03|amer", "2026-01-03|apac"]
    assert orders["arrived"]["missing"] == missing
    assert (orders["arrived"]["required"], orders["arrived"]["lacking"]) == (3, 2)
    assert orders["reason"].endswith("have arrived, missing 2026-01-03|amer, 2026-01-03|apac")
    assert config["satisfied"]
    tree = arctic("jobs", "explain", "daily", "--partition", "2026-01-03").out
    assert "target partition 2026-01-03" in tree
    assert "1 of 3 partitions of raw/orders have arrived, missing 2026-01-03|amer" in tree
    shown = arctic("jobs", "show", document["job"]["id"]).out
    assert "partitions        2026-01-03" in shown
    assert "missing 2026-01-03|amer, 2026-01-03|apac" in shown


def test_explain_of_a_partition_without_a_job(here: World, arctic: Command) -> None:
    """Says that nothing has arrived for it; an unknown schedule is refused."""
    document = json.loads(
        arctic("jobs", "explain", "daily", "--partition", "2026-01-09", "--json").out
    )
    assert document["summary"] == "nothing has arrived for 2026-01-09"
    assert (document["partition"], document["job"]) == ("2026-01-09", None)
    refused = arctic("jobs", "explain", "daly", "--partition", "2026-01-09")
    assert refused.code == 2
    assert "did you mean daily?" in refused.err
