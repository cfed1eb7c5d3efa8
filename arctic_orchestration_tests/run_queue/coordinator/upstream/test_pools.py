"""Pools of Dagster: a run waits while none of its steps could begin.

``ice``, ``snow`` and ``fog`` are the pools of ``lake_of_queue.py``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status
from dagster._core.test_utils import freeze_time

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    RunQueue,
    beyond_upstream,
)

ALLOTTED = "DAGSTER_OP_CONCURRENCY_KEYS_ALLOTTED_FOR_STARTED_RUN_SECONDS"
BLOCK = {"block_op_concurrency_limited_runs": {"enabled": True}}
BY_RUN = {"pools": {"granularity": "run"}}
BY_OP = {"pools": {"granularity": "op"}}


def slots(here: RunQueue, **pools: int) -> None:
    """Gives pools so many slots: ``slots(here, ice=1)``."""
    for pool, number in pools.items():
        here.instance.event_log_storage.set_concurrency_slots(pool, number)


def started_at(here: RunQueue, run_id: str) -> float:
    """When a run began, in seconds since 1970."""
    record = here.instance.get_run_record_by_id(run_id)
    assert record is not None
    assert record.start_time is not None
    return record.start_time


def test_runs_wait_for_a_slot(
    queue: Callable[..., RunQueue], caplog: pytest.LogCaptureFixture
) -> None:
    """``test_op_concurrency_aware_dequeuing``: one slot, one run; another slot, another run.

    The log says of each run once that it waits.
    """
    here = queue(**BLOCK, page_size=1)
    slots(here, ice=1)
    first, second, third = (here.submit("needs_ice").run_id for _ in range(3))
    with caplog.at_level("INFO"):
        assert here.iterate() == [first]
        assert here.iterate() == []
        slots(here, ice=2)
        assert here.iterate() == [second]
        assert here.iterate() == []

    blocked = "Run {} is blocked by global concurrency limits"
    assert [caplog.text.count(blocked.format(run)) for run in (first, second, third)] == [0, 1, 1]


def test_a_pool_given_as_a_tag_is_a_pool(queue: Callable[..., RunQueue]) -> None:
    """``test_op_concurrency_aware_dequeuing``, with ``dagster/concurrency_key`` on the op."""
    here = queue(**BLOCK)
    slots(here, ice=1)
    first = here.submit("needs_ice_by_tag").run_id
    here.submit("needs_ice")
    assert here.iterate() == [first]


def test_a_run_waits_for_no_pool_but_its_own(queue: Callable[..., RunQueue]) -> None:
    """``test_op_concurrency_root_progress``: there is snow, but no ice; runs of assets."""
    here = queue(**BLOCK)
    slots(here, ice=0, snow=1)
    here.submit("marts", assets=["marts/orders"])
    assert here.iterate() == []
    refunds = here.submit("marts", assets=["marts/refunds"])
    assert here.iterate() == [refunds.run_id]


def test_a_run_that_can_begin_somewhere_is_launched(queue: Callable[..., RunQueue]) -> None:
    """``test_op_concurrency_partial_root``: one first step without a pool is enough."""
    here = queue(**BLOCK)
    slots(here, ice=0, fog=0)
    runs = [here.submit(job).run_id for job in ("ice_or_anything", "needs_fog")]
    assert here.iterate() == runs


def test_a_run_that_is_starting_holds_its_slots(
    queue: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``test_in_progress_root_key_accounting``: until it has begun and takes them itself."""
    monkeypatch.setenv(ALLOTTED, "0")
    here = queue(**BLOCK)
    slots(here, ice=1)
    first, second = (here.submit("needs_ice").run_id for _ in range(2))
    assert here.iterate() == [first]
    assert here.iterate() == []
    here.report(first, Status.STARTED)
    assert here.iterate() == [second]


def test_a_buffer_is_launched_beyond_the_slots(queue: Callable[..., RunQueue]) -> None:
    """``test_op_concurrency_aware_slot_buffer``: one slot and a buffer of one are two runs."""
    buffer = {"enabled": True, "op_concurrency_slot_buffer": 1}
    here = queue(block_op_concurrency_limited_runs=buffer)
    slots(here, ice=1)
    runs = [here.submit("needs_ice").run_id for _ in range(3)]
    assert here.iterate() == runs[:2]
    assert here.iterate() == []


@beyond_upstream
def test_a_buffer_may_stand_with_the_pools(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: ``op_granularity_run_buffer`` means the same."""
    here = queue(concurrency={"pools": {"granularity": "op", "op_granularity_run_buffer": 1}})
    slots(here, ice=1)
    runs = [here.submit("needs_ice").run_id for _ in range(3)]
    assert here.iterate() == runs[:2]


def test_a_run_holds_its_slots_for_a_while_after_it_has_begun(
    queue: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``test_op_concurrency_aware_started_allottment_time``: here for a minute."""
    monkeypatch.setenv(ALLOTTED, "60")
    here = queue(**BLOCK, concurrency={"default_op_concurrency_limit": 1})
    slots(here, ice=1)
    first, second, _ = (here.submit("needs_ice").run_id for _ in range(3))
    assert here.iterate() == [first]
    here.report(first, Status.STARTED)
    began = started_at(here, first)
    with freeze_time(began + 59):
        assert here.iterate() == []
    with freeze_time(began + 61):
        assert here.iterate() == [second]


def test_a_run_that_two_limits_hold_waits(queue: Callable[..., RunQueue]) -> None:
    """``test_multiple_blocks``: a limit of its tag, and no slot of its pool."""
    limits = [{"key": "database", "value": "tiny", "limit": 0}]
    here = queue(**BLOCK, tag_concurrency_limits=limits)
    slots(here, ice=0)
    here.submit("needs_ice", tags={"database": "tiny"})
    assert here.iterate() == []


@beyond_upstream
def test_a_run_that_a_pool_holds_counts_for_its_tag(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: within a pass, the place of the tag is the first run's."""
    here = queue(**BLOCK, tag_concurrency_limits=[{"key": "foo", "limit": 1}])
    slots(here, ice=0)
    here.submit("needs_ice", tags={"foo": "bar"})
    here.submit("load", tags={"foo": "bar"})
    free = here.submit("load").run_id
    assert here.iterate() == [free]


@beyond_upstream
def test_a_run_that_a_pool_holds_needs_no_slot_of_the_queue(
    queue: Callable[..., RunQueue],
) -> None:
    """No test of upstream: the one slot goes to the run behind it."""
    here = queue(**BLOCK, max_concurrent_runs=1)
    slots(here, ice=0)
    here.submit("needs_ice")
    free = here.submit("load").run_id
    assert here.iterate() == [free]


def test_a_pool_without_configuration_has_the_default_limit(
    queue: Callable[..., RunQueue],
) -> None:
    """``test_concurrency_buffer_with_default_slot``: one slot, made in the first pass."""
    buffer = {"enabled": True, "op_concurrency_slot_buffer": 0}
    here = queue(
        block_op_concurrency_limited_runs=buffer,
        concurrency={"default_op_concurrency_limit": 1},
    )
    storage = here.instance.event_log_storage
    first = here.submit("needs_ice").run_id
    assert "ice" not in storage.get_concurrency_keys()
    assert here.iterate() == [first]
    assert "ice" in storage.get_concurrency_keys()
    here.submit("needs_ice")
    assert here.iterate() == []


def test_by_the_run_all_pools_must_have_a_slot(queue: Callable[..., RunQueue]) -> None:
    """``test_concurrency_run_granularity``: also those of later steps; each counts once.

    Fog is taken. The second run could begin with ice or with snow, but waits for the fog of its
    last steps; that they are two does not matter.
    """
    here = queue(**BLOCK, concurrency={"pools": {"granularity": "run", "default_limit": 1}})
    first = here.submit("needs_fog").run_id
    assert here.iterate() == [first]
    second = here.submit("ice_snow_then_fog").run_id
    assert here.iterate() == []
    slots(here, fog=2)
    assert here.iterate() == [second]


def test_by_the_run_slots_are_held_until_it_ends(
    queue: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``test_concurrency_run_granularity``: not only for a while after it has begun."""
    monkeypatch.setenv(ALLOTTED, "0")
    here = queue(concurrency=BY_RUN)
    slots(here, ice=1)
    first, second = (here.submit("needs_ice").run_id for _ in range(2))
    assert here.iterate() == [first]
    here.report(first, Status.STARTED)
    assert here.iterate() == []
    here.report(first, Status.SUCCESS)
    assert here.iterate() == [second]


def test_a_step_that_has_a_slot_counts(queue: Callable[..., RunQueue]) -> None:
    """``test_concurrency_pending_slot_accounting``: until it gives the slot back."""
    here = queue(**BLOCK)
    storage = here.instance.event_log_storage
    slots(here, ice=1)
    first, second = (here.submit("needs_ice").run_id for _ in range(2))
    assert here.iterate() == [first]
    here.report(first, Status.STARTED)
    storage.claim_concurrency_slot("ice", first, "icy")
    with freeze_time(started_at(here, first) + 60):
        assert here.iterate() == []
        storage.free_concurrency_slot_for_step(first, "icy")
        assert here.iterate() == [second]


def test_where_it_is_disabled_no_run_waits_for_a_pool(queue: Callable[..., RunQueue]) -> None:
    """``test_disable_concurrency_run_blocking``: the steps wait then, not the runs."""
    here = queue(
        block_op_concurrency_limited_runs={"enabled": False},
        concurrency={"pools": {"granularity": "op", "default_limit": 1}},
    )
    runs = [here.submit("needs_ice").run_id for _ in range(2)]
    assert here.iterate() == runs


@pytest.mark.parametrize("concurrency", [None, BY_OP], ids=["nothing", "by op"])
def test_without_a_word_runs_wait_by_their_first_steps(
    queue: Callable[..., RunQueue], concurrency: Mapping[str, Any] | None
) -> None:
    """``test_concurrency_run_default``: a second pool, without a limit, is enough to begin."""
    here = queue(concurrency=concurrency)
    slots(here, ice=1)
    first = here.submit("needs_ice").run_id
    assert here.iterate() == [first]
    here.submit("needs_ice")
    either = here.submit("ice_or_snow").run_id
    assert here.iterate() == [either]


@pytest.mark.parametrize("concurrency", [BY_OP, BY_RUN, None], ids=["by op", "by run", "nothing"])
def test_a_pool_without_a_limit_holds_nothing(
    queue: Callable[..., RunQueue], concurrency: Mapping[str, Any] | None
) -> None:
    """``test_concurrency_run_unconfigured``: neither by steps nor by runs."""
    here = queue(concurrency=concurrency)
    runs = [here.submit("needs_ice").run_id for _ in range(2)]
    assert here.iterate() == runs


@beyond_upstream
def test_when_pools_cannot_be_read_no_run_waits_for_them(
    queue: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test of upstream: limits of tags still hold."""
    here = queue(**BLOCK, tag_concurrency_limits=[{"key": "foo", "limit": 0}])
    slots(here, ice=0)
    here.submit("needs_ice", tags={"foo": "bar"})
    run = here.submit("needs_ice").run_id

    def fail() -> None:
        raise RuntimeError("no pools")

    monkeypatch.setattr(here.instance.event_log_storage, "get_pool_limits", fail)
    assert here.iterate() == [run]
