"""Proof with real processes: a paused queue or group starts nothing, until it is resumed."""

from collections.abc import Callable

import pytest
from dagster import DagsterRunStatus

from arctic_orchestration.clock import utc_now
from arctic_orchestration.run_queue import pauses
from arctic_orchestration_tests.proofs.coordinator.run_queue import RunQueue

pytestmark = [pytest.mark.proof, pytest.mark.timeout(300)]

CLUSTER = "default"
RULES = {
    "queues": {
        "bulk": {"match": {"job": "low"}},
        "later": {"match": {"job": "report"}, "paused": True},
    },
    "groups": {"warehouse": {"limit": 5, "match": {"job": "load"}}},
    "max_concurrent_runs": 20,
}
#: each with the job whose runs it holds
PAUSED = {("queue", "bulk"): "low", ("group", "warehouse"): "load"}


def test_what_is_paused_starts_nothing_until_it_is_resumed(
    run_queue: Callable[..., RunQueue],
) -> None:
    """Runs in progress go on, runs of others start, and the runs held back start afterwards."""
    queue = run_queue(**RULES)
    with queue.database.begin() as tx:
        for kind, name in PAUSED:
            # The control: what another instance says of its own holds nothing here.
            pauses.store(tx, "elsewhere", kind, name, "maintenance", utc_now())
    before = [queue.submit(job) for job in PAUSED.values()]
    for run in before:
        queue.wait_until_begun(run)

    with queue.database.begin() as tx:
        for kind, name in PAUSED:
            pauses.store(tx, CLUSTER, kind, name, "maintenance", utc_now())
    queue.let_pass(1)  # in it there was no pause yet, perhaps
    held = [queue.submit(job) for job in PAUSED.values()]
    queue.let_pass()
    assert queue.begun(held) == []
    assert [queue.status(run) for run in before] == [DagsterRunStatus.STARTED] * 2
    for run in before:
        queue.finish(run)
    queue.let_pass(1)
    assert queue.begun(held) == []

    for (kind, name), run in zip(PAUSED, held, strict=True):
        with queue.database.begin() as tx:
            pauses.store(tx, CLUSTER, kind, name, "", utc_now(), paused=False)
        queue.wait_until_begun(run)


def test_a_pause_outlives_the_daemon(run_queue: Callable[..., RunQueue]) -> None:
    """Killed and started again, it knows of the queue paused by a person, or by configuration."""
    queue = run_queue(**RULES)
    with queue.database.begin() as tx:
        pauses.store(tx, CLUSTER, "queue", "bulk", "maintenance", utc_now())
    queue.let_pass(1)
    held = [queue.submit("low"), queue.submit("report")]
    queue.kill_daemon()
    queue.start_daemon()
    queue.let_pass()
    assert queue.begun(held) == []
    # A person's word stands over the configuration.
    with queue.database.begin() as tx:
        pauses.store(tx, CLUSTER, "queue", "later", "", utc_now(), paused=False)
    queue.wait_until_begun(held[1])
    assert queue.is_queued(held[0])
