"""Runs that a person starts in Dagster: whole jobs, several partitions, partitions of before."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration import Freshness
from arctic_orchestration.clock import utc_now
from arctic_orchestration.freshness.dagster.fresh_parents import fresh_parents
from arctic_orchestration_tests.code_location import functions_of_tests
from arctic_orchestration_tests.code_location.declared_tasks import FUNCTIONS, whole, written
from arctic_orchestration_tests.code_location.tasks_place import ON_SQLITE, Tasks, tasks

__all__ = ["tasks"]

PART = dg.AssetKey(["b", "part"])


@pytest.fixture
def called(tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The days for which the function of the batch's one task is called."""
    days: list[str] = []
    monkeypatch.setattr(functions_of_tests, "DAYS", days)
    task = {"name": "b/part", "python": f"{FUNCTIONS}:noted"}
    tasks.declare(whole(batches=[written(tmp_path, "b", task)]))
    return days


def range_tags(first: str, last: str) -> dict[str, str]:
    """With which Dagster starts one run for several partitions."""
    return {
        "dagster/asset_partition_range_start": first,
        "dagster/asset_partition_range_end": last,
    }


def today() -> str:
    return f"{utc_now():%Y-%m-%d}"


@ON_SQLITE
def test_a_batch_is_made_one_partition_at_a_time(tasks: Tasks, called: list[str]) -> None:
    """A run for several, or for none, could only take the place of all that the table has."""
    for tags, got in (
        (range_tags("2026-01-01", "2026-01-03"), "for the partitions 2026-01-01 to 2026-01-03"),
        ({}, "without partition"),
    ):
        ran = tasks.run_manually(PART, **tags)
        assert not ran.success
        assert tasks.failure_of(ran) == (
            f"task b/part: got a run {got}, expected a run for one partition: its rows take the "
            "place of those of this partition; start one run for each"
        )
    assert called == []
    row = tasks.row("b/part")
    assert (row.token, row.last_success_at) == (0, None)
    # A range of one day is one partition, and so is that of the batch's own job.
    assert tasks.run_manually(PART, **range_tags("2026-01-05", "2026-01-05")).success
    batch = tasks.repository.get_job("b")
    assert batch.execute_in_process(instance=tasks.instance, partition_key="2026-01-06").success
    assert called == ["2026-01-05", "2026-01-06"]


def test_a_partition_of_before_makes_no_task_fresh(tasks: Tasks, called: list[str]) -> None:
    """Its run is one like any other, also while the task is made; that of the newest acquires."""
    assert tasks.run_manually(PART, "2026-01-05").success
    row = tasks.row("b/part")
    assert (row.token, row.last_success_at) == (0, None)
    submission = tasks.submit("b/part")
    (request,) = tasks.tick().run_requests or ()
    assert request.partition_key == today()
    old = tasks.run_manually(PART, "2026-01-06")
    assert old.success
    assert "arctic/task" not in tasks.tags_of(old)
    in_the_way = tasks.run_manually(PART, today())
    assert "being made by a run for submission" in tasks.failure_of(in_the_way)
    assert tasks.run(request).success
    assert tasks.again(submission).state == "succeeded"
    assert tasks.run_manually(PART, today()).success
    assert tasks.row("b/part").last_token == 2
    assert called == ["2026-01-05", "2026-01-06", today(), today()]


@ON_SQLITE
def test_several_partitions_in_one_run_make_no_task_fresh(tasks: Tasks) -> None:
    """Of an asset that can be made so: the newest of them may be among them or not."""
    made: list[list[str]] = []

    @fresh_parents({})
    @dg.asset(
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01", end_offset=1),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def daily(context: dg.AssetExecutionContext) -> None:
        made.append(list(context.partition_keys))

    tasks.declare(Freshness(tasks=[daily]).definitions())
    yesterday = f"{utc_now() - timedelta(days=1):%Y-%m-%d}"
    assert tasks.run_manually(dg.AssetKey("daily"), **range_tags(yesterday, today())).success
    assert made == [[yesterday, today()]]
    assert tasks.row("daily").last_success_at is None


def test_a_job_of_assets_that_are_tasks_comes_to_its_end(tasks: Tasks) -> None:
    """The run stays that of the job's submission, and makes the assets by the way."""

    @fresh_parents({}, freshness_hours=24)
    @dg.asset
    def part() -> None: ...

    @fresh_parents({}, freshness_hours=24)
    @dg.asset(deps=[part])
    def other_part() -> None: ...

    nightly = fresh_parents({})(dg.define_asset_job("nightly", selection=["part", "other_part"]))
    tasks.declare(Freshness(tasks=[part, other_part, nightly]).definitions())
    submission = tasks.submit("nightly")
    (request,) = tasks.tick().run_requests or ()
    ran = tasks.run(request)
    assert ran.success
    tags = tasks.tags_of(ran)
    assert (tags["arctic/task"], tags["arctic/submission"]) == ("nightly", submission.id)
    assert tasks.tick().run_requests == []
    ended = tasks.again(submission)
    assert (ended.state, ended.run_id) == ("succeeded", ran.run_id)
    assert tasks.row("nightly").owner is None
    for name in ("part", "other_part"):
        row = tasks.row(name)
        assert (row.last_success_run, row.owner) == (ran.run_id, None)
