"""The configuration of the stock class: what it takes, what it refuses, and what it means.

Rules beside it change nothing of this.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from dagster import DagsterInvalidConfigError
from dagster._check import CheckError
from dagster._core.run_coordinator.queued_run_coordinator import (
    QueuedRunCoordinator,
    RunQueueConfig,
)

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue, coordinator_of

LIMITS = [{"key": "foo", "value": "bar", "limit": 3}, {"key": "backfill", "limit": 2}]


@pytest.fixture
def configured(make_queue: Callable[..., RunQueue], coordinator: str) -> Callable[..., Any]:
    """Makes the run coordinator of a ``dagster.yaml`` with this configuration."""

    def make(concurrency: Mapping[str, Any] | None = None, **config: Any) -> Any:
        section = coordinator_of(coordinator, config)
        made = make_queue("sqlite", section, concurrency=concurrency).coordinator
        assert isinstance(made, QueuedRunCoordinator)
        return made

    return make


def without_rules(made: Any) -> RunQueueConfig:
    """What the daemon gets, without the limits of our own tags."""
    config: RunQueueConfig = made.get_run_queue_config()
    limits = [dict(limit) for limit in config.tag_concurrency_limits]
    stock = [limit for limit in limits if not limit["key"].startswith("arctic/")]
    return config._replace(tag_concurrency_limits=stock)


def test_all_that_is_configured_arrives(
    configured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``test_config``: numbers from the environment, limits of tags, and those of pools."""
    monkeypatch.setenv("MAX_RUNS", "12")
    monkeypatch.setenv("DEQUEUE_INTERVAL", "7")
    made = configured(
        max_concurrent_runs={"env": "MAX_RUNS"},
        tag_concurrency_limits=LIMITS,
        dequeue_interval_seconds={"env": "DEQUEUE_INTERVAL"},
        max_user_code_failure_retries=2,
        user_code_failure_retry_delay=30,
        block_op_concurrency_limited_runs={"enabled": True, "op_concurrency_slot_buffer": 1},
    )

    assert made.dequeue_interval_seconds == 7
    assert made.should_block_op_concurrency_limited_runs is True
    assert made.op_concurrency_slot_buffer == 1
    assert without_rules(made) == RunQueueConfig(
        max_concurrent_runs=12,
        tag_concurrency_limits=LIMITS,
        max_user_code_failure_retries=2,
        user_code_failure_retry_delay=30,
        should_block_op_concurrency_limited_runs=True,
        op_concurrency_slot_buffer=1,
        explicitly_enabled_concurrency_run_blocking=True,
    )


def test_a_limit_for_each_value_arrives(configured: Callable[..., Any]) -> None:
    """``test_config_unique_value``: ``applyLimitPerUniqueValue`` in the place of a value."""
    limits = [{"key": "foo", "value": {"applyLimitPerUniqueValue": True}, "limit": 3}]
    made = configured(tag_concurrency_limits=limits)
    assert without_rules(made).tag_concurrency_limits == limits


def test_threads_are_configured(configured: Callable[..., Any]) -> None:
    """``test_thread_config``: threads and their number; without a word there are none."""
    made = configured(dequeue_use_threads=True, dequeue_num_workers=16)
    assert (made.dequeue_use_threads, made.dequeue_num_workers) == (True, 16)
    without = configured()
    assert (without.dequeue_use_threads, without.dequeue_num_workers) == (False, None)


def test_without_configuration_there_are_ten_runs_and_no_limits(
    configured: Callable[..., Any],
) -> None:
    """The defaults, which ``instance`` in upstream's tests relies on."""
    made = configured()
    assert made.dequeue_interval_seconds == 5
    assert without_rules(made) == RunQueueConfig(max_concurrent_runs=10, tag_concurrency_limits=[])


@pytest.mark.parametrize(
    "config",
    [
        {"tag_concurrency_limits": [{"key": "backfill"}]},
        {"tag_concurrency_limits": [{"key": "foo", "value": {"perValue": True}, "limit": 1}]},
        {"max_concurrent_runs": "many"},
        {"max_concurrent": 3},
        {"block_op_concurrency_limited_runs": True},
    ],
)
def test_what_is_not_of_the_form_is_refused(
    configured: Callable[..., Any], config: Mapping[str, Any]
) -> None:
    """``test_config``, its second half: a limit without its number, and others of that kind."""
    with pytest.raises(DagsterInvalidConfigError):
        configured(**config)


@pytest.mark.parametrize(
    "config",
    [
        {"max_concurrent_runs": -2},
        {
            "block_op_concurrency_limited_runs": {
                "enabled": False,
                "op_concurrency_slot_buffer": 1,
            }
        },
    ],
)
def test_what_contradicts_itself_is_refused(
    configured: Callable[..., Any], config: Mapping[str, Any]
) -> None:
    """No test of upstream: -2 runs, and a buffer of slots that nothing counts."""
    with pytest.raises(CheckError):
        configured(**config)


def test_numbers_in_two_sections_are_refused(configured: Callable[..., Any]) -> None:
    """No test of upstream: those of ``concurrency: runs`` would replace the coordinator's."""
    with pytest.raises((DagsterInvalidConfigError, ConfigurationError)):
        configured({"runs": {"max_concurrent_runs": 1}}, max_concurrent_runs=3)


@pytest.mark.parametrize(
    "coordinator",
    [
        "stock",
        "ours",
    ],
    indirect=True,
)
def test_the_section_of_concurrency_is_the_default(
    make_queue: Callable[..., RunQueue], coordinator: str
) -> None:
    """No test of upstream: ``concurrency: runs`` instead of the run coordinator's numbers."""
    runs = {"max_concurrent_runs": 1, "tag_concurrency_limits": [{"key": "foo", "limit": 0}]}
    here = make_queue("sqlite", coordinator_of(coordinator, {}), concurrency={"runs": runs})
    assert here.coordinator is not None
    found = here.instance.get_concurrency_config().run_queue_config
    assert found is not None
    assert found.max_concurrent_runs == 1
    assert found.tag_concurrency_limits == [{"key": "foo", "limit": 0}]
