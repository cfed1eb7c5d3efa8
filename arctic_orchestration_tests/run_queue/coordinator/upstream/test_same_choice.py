"""Of one queue, whatever stands in it, our class lets the daemon choose what the stock one does."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    COORDINATORS,
    RunQueue,
    coordinator_of,
)

RUNS = 40
CONFIGURATIONS = 6
STATUSES = [Status.QUEUED] * 6 + [Status.STARTED, Status.STARTING, Status.CANCELING]
JOBS = ("load", "bill", "needs_ice", "ice_or_snow", "ice_snow_then_fog")
VALUES = ("tiny", "large", "odd")


def random_tags(chance: random.Random) -> dict[str, str]:
    """Tags that limits look at, and a priority."""
    tags = {key: chance.choice(VALUES) for key in ("database", "user") if chance.random() < 0.6}
    if chance.random() < 0.5:
        tags["dagster/priority"] = chance.choice(["-3", "0", "2", "7", "high"])
    return tags


def random_configuration(chance: random.Random) -> dict[str, Any]:
    """A configuration that the stock class takes."""
    limits: list[dict[str, Any]] = []
    for key in ("database", "user"):
        forms: list[dict[str, Any]] = [
            {},
            {"value": chance.choice(VALUES)},
            {"value": {"applyLimitPerUniqueValue": True}},
        ]
        limits += [
            {"key": key, "limit": chance.randint(0, 9), **form}
            for form in chance.sample(forms, chance.randint(0, 3))
        ]
    return {
        "max_concurrent_runs": chance.choice([-1, 20, 25, 100]),
        "tag_concurrency_limits": limits,
        "block_op_concurrency_limited_runs": {"enabled": chance.random() < 0.7},
    }


def chosen_by(here: RunQueue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that a pass of the daemon would launch, in this order; it launches none."""
    chosen: list[str] = []

    def note(_instance: Any, _workspace: Any, run: Any, *_: Any, **__: Any) -> bool:
        chosen.append(run.run_id)
        return False

    monkeypatch.setattr(here.daemon, "_dequeue_run", note)
    here.iterate()
    return chosen


def test_the_same_runs_are_chosen_in_the_same_order(
    make_queue: Callable[..., RunQueue],
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test of upstream: forty runs, some of them in progress, under six configurations."""
    chance = random.Random(1)
    here = make_queue(backend, coordinator_of("stock", {}))
    for pool in ("ice", "snow"):
        here.instance.event_log_storage.set_concurrency_slots(pool, 4)
    for _ in range(RUNS):
        here.submit(chance.choice(JOBS), tags=random_tags(chance), status=chance.choice(STATUSES))

    sizes = set()
    for _ in range(CONFIGURATIONS):
        config = random_configuration(chance)
        page_size = chance.choice([3, 100])
        choices = [
            chosen_by(
                make_queue(backend, coordinator_of(kind, config), page_size=page_size), monkeypatch
            )
            for kind in COORDINATORS
        ]
        assert choices[1] == choices[0], config
        assert choices[2] == choices[0], config
        sizes.add(len(choices[0]))
    # The configurations did choose differently.
    assert len(sizes) > 2
