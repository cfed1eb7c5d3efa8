"""Dagster's own pools that hold a queued run."""

from typing import TYPE_CHECKING

from arctic_orchestration.run_queue.views.run_document import Pool, Pools

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from arctic_orchestration.dagster_internals import ConcurrencyKeyInfo


def pools_of(instance: "DagsterInstance", run: "DagsterRun") -> Pools | None:
    """Returns the pools of the run's steps, judged by Dagster's own rule, or None."""
    from arctic_orchestration.dagster_internals import PoolGranularity, pool_counts

    needs = run.run_op_concurrency
    config = instance.get_concurrency_config()
    if needs is None or config.run_queue_config is None:
        return None
    granularity = config.pool_config.pool_granularity or PoolGranularity.OP
    whole_run = granularity == PoolGranularity.RUN
    names = sorted((needs.all_pools or ()) if whole_run else needs.root_key_counts)
    offset = config.run_queue_config.op_concurrency_slot_buffer
    holds, infos, in_progress = pool_counts(instance, names, granularity, offset)
    looked_at = config.run_queue_config.should_block_op_concurrency_limited_runs
    hold = looked_at and holds(run)
    pools = [_pool(name, infos.get(name), in_progress[name], whole_run, offset) for name in names]
    if not looked_at:
        text = "are not checked before a run starts (block_op_concurrency_limited_runs)"
    elif hold:
        text = "hold it: a run starts when each of them has room" if whole_run else (
            "hold it: no step that it begins with would get a slot"
        )  # fmt: skip
    elif not whole_run and needs.has_unconstrained_root_nodes:
        text = "do not hold it: it begins with a step that takes none"
    else:
        text = "do not hold it"
    return Pools(hold=hold, text=text, pools=pools)


def _pool(
    name: str, info: "ConcurrencyKeyInfo | None", promised: int, whole_run: bool, offset: int
) -> Pool:
    if info is None:
        return Pool(pool=name, has_room=True, text=f"{name}: it has no limit")
    if whole_run:
        text = f"{name}: {promised} of {info.slot_count} runs that take it are in progress"
        return Pool(pool=name, has_room=promised < info.slot_count + offset, text=text)
    text = f"{name}: {len(info.claimed_slots)} of {info.slot_count} slots are taken"
    if info.pending_step_count:
        text += f", steps that wait for one: {info.pending_step_count}"
    if promised:
        text += f", runs that were just started will take {promised}"
    used = len(info.pending_steps) + promised
    return Pool(pool=name, has_room=used < info.slot_count + offset, text=text)
