"""Ops of a job that is a task: they show its token, renew its lease, and can ask for it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Freshness
from arctic_orchestration.errors import LeaseLost
from arctic_orchestration.freshness.dagster import task_run
from arctic_orchestration.freshness.dagster.fresh_parents import check_lease, fresh_parents
from arctic_orchestration.freshness.status import events_of
from arctic_orchestration.state.freshness_tables import tasks as task_rows
from arctic_orchestration_tests.code_location.tasks_place import ON_SQLITE, Tasks, tasks
from arctic_orchestration_tests.patience import until

__all__ = ["tasks"]


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewed by a run every two seconds."""
    monkeypatch.setattr(task_run, "LEASE", timedelta(seconds=6))


def requested(tasks: Tasks, job: Any) -> dg.RunRequest:
    """A job is the location's one task, and its run is requested."""
    tasks.declare(Freshness(tasks=[fresh_parents({})(job)]).definitions())
    tasks.submit(job.name)
    (request,) = tasks.tick().run_requests or ()
    return request


def test_an_op_renews_the_lease_and_logs_the_history(tasks: Tasks) -> None:
    """No tick does meanwhile. One that returns, and one that yields."""
    seen: list[datetime] = []

    def lives_on() -> None:
        begun = tasks.row("slow").expires_at
        assert begun is not None
        until(lambda: (tasks.row("slow").expires_at or begun) > begun, "a renewal")
        check_lease()
        seen.append(begun)

    @dg.op
    def returns() -> int:
        lives_on()
        return 1

    @dg.op
    def yields(number: int) -> Iterator[Any]:
        lives_on()
        yield dg.Output(number + 1)

    @dg.job
    def slow() -> None:
        yields(returns())

    ran = tasks.run(requested(tasks, slow))
    assert ran.success
    with tasks.database.read() as tx:
        steps = [(one.step, one.reason) for _, one in events_of(tx, task="slow")]
    # Reported once, by the first of the two.
    assert [step for step, _ in steps] == ["submitted", "acquired", "requested", "begun"]
    assert steps[-1][1] == f"run {ran.run_id} has begun"
    assert (tasks.row("slow").run_id, tasks.row("slow").last_token) == (ran.run_id, None)
    assert ran.output_for_node("yields") == 2
    assert len(seen) == 2
    tasks.tick()
    row = tasks.row("slow")
    assert (row.last_success_run, row.last_token) == (ran.run_id, 1)
    messages = [entry.user_message for entry in tasks.instance.all_logs(ran.run_id)]
    acquired = [line.split(" ", 1)[1] for line in messages if " acquired: " in line]
    assert acquired == ["acquired: it has no parents"] * 2


@ON_SQLITE
def test_an_op_whose_task_is_taken_over_can_know_it(tasks: Tasks) -> None:
    """The renewal says so; what the op asks before it writes fails its run for good."""
    written: list[str] = []

    def is_lost() -> bool:
        try:
            check_lease()
        except LeaseLost:
            return True
        return False

    @dg.op
    def writes() -> None:
        assert not is_lost()
        with tasks.database.begin() as tx:
            tx.execute(sa.update(task_rows).values(token=2, owner="another", run_id="theirs"))
        until(is_lost, "the loss")
        check_lease()
        written.append("too late")

    @dg.job
    def late() -> None:
        writes.with_retry_policy(dg.RetryPolicy(max_retries=3))()

    ran = tasks.run(requested(tasks, late))
    assert not ran.success
    assert "task late, token 1: another owner has taken over" in tasks.failure_of(ran)
    assert written == []
    # Outside of runs there is nothing to lose.
    check_lease()


@ON_SQLITE
def test_an_asset_of_a_job_that_was_taken_over_does_nothing(tasks: Tasks) -> None:
    """It asks whether the job is still the run's, before it acquires its own task."""
    made: list[str] = []

    @fresh_parents({})
    @dg.asset
    def part() -> None:
        made.append("part")

    job = fresh_parents({})(dg.define_asset_job("nightly", selection="part"))
    tasks.declare(Freshness(tasks=[part, job]).definitions())
    tasks.submit("nightly")
    (request,) = tasks.tick().run_requests or ()
    with tasks.database.begin() as tx:
        tx.execute(sa.update(task_rows).values(token=2, owner="another", run_id="theirs"))
    ran = tasks.run(request)
    assert "was superseded: run theirs of cluster default" in tasks.failure_of(ran)
    assert made == []
    assert tasks.row("part").token == 0
