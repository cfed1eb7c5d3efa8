"""The assets of the tasks in batch files.

``@dg.asset`` inspects the signature of each function. The tasks of a batch share one function,
so this module assembles their definitions without that, from parts that equal tasks share: each
process of a location of thousands of tasks loads them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, lru_cache
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import copy_op, replace_compute_function
from arctic_orchestration.freshness.batch_file import Batch, BatchTask
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.dagster.fresh_parents import checked, entry_of
from arctic_orchestration.freshness.dagster.materialization import SPARK, Function, TaskRun, make
from arctic_orchestration.freshness.dagster.submission_history import history_link
from arctic_orchestration.freshness.dagster.task_run import guard_partition
from arctic_orchestration.freshness.graph import TaskGraph

#: The smallest window that Dagster accepts.
_SHORTEST_WINDOW = timedelta(minutes=1)
_RESULT = "result"


@dataclass(frozen=True, kw_only=True)
class Written:
    """A task of a batch file, with its place in the file."""

    batch: Batch
    task: BatchTask
    spec: TaskSpec
    path: str


@dataclass(frozen=True)
class BatchAssets:
    """Makes the assets of the tasks of batches.

    Args:
        known: all tasks of the location, and the known tasks of other locations.
        graph: the graph of these tasks.
    """

    known: Mapping[str, TaskSpec]
    graph: TaskGraph
    _templates: dict[tuple[Any, ...], dg.OpDefinition] = field(default_factory=dict)
    _op_names: set[str] = field(default_factory=set)

    def asset(self, one: Written, function: Function | None) -> dg.AssetsDefinition:
        """Returns the asset of a task, with daily partitions."""
        batch, task, key = one.batch, one.task, dg.AssetKey.from_user_string(one.task.name)
        deps = [
            self._dependency(parent.name, one.spec)
            for parent in one.spec.parents
            if self.known.get(parent.name, one.spec).kind == "asset"
        ]
        # Numbered: task names need not be valid or distinct as Python names.
        inputs = [_input(number) for number in range(len(deps))]
        # Ops that differ in nothing else are copied: constructing one takes as long as the asset.
        op = copy_op(
            self._template(len(deps), tuple({**batch.tags, **task.tags}.items())),
            name=self._op_name(key),
            description=task.description or None,
        )
        replace_compute_function(op, _computing(one, function))
        spec = dg.AssetSpec(
            key=key,
            deps=deps,
            partitions_def=_days(batch.partitions_start, one.spec.timezone),
            group_name=batch.name,
            description=task.description or None,
            kinds={"spark", "iceberg"} if task.table is not None else {"python"},
            metadata={**_metadata(batch, task), **entry_of(one.spec), **history_link(one.spec)},
            freshness_policy=freshness_policy(self.graph.strictest_need(one.spec.name)),
        )
        return dg.AssetsDefinition(
            keys_by_input_name={
                one.name: dep.asset_key for one, dep in zip(inputs, deps, strict=True)
            },
            keys_by_output_name={_RESULT: key},
            node_def=op,
            specs=[spec],
        )

    def _op_name(self, key: dg.AssetKey) -> str:
        """Returns a name of its own: a job cannot have two ops of one name."""
        found = base = key.to_python_identifier()
        number = 2
        while found in self._op_names:
            found, number = f"{base}_{number}", number + 1
        self._op_names.add(found)
        return found

    def _template(self, parents: int, tags: tuple[tuple[str, str], ...]) -> dg.OpDefinition:
        """Returns a template op without a function, with this number of parents."""
        form = (parents, tags)
        if form not in self._templates:
            self._templates[form] = dg.OpDefinition(
                compute_fn=_nothing,
                name="template",
                ins={found.name: found for found in map(_input, range(parents))},
                outs={_RESULT: dg.Out()},
                required_resource_keys={SPARK},
                tags=dict(tags),
            )
        return self._templates[form]

    def _dependency(self, parent: str, spec: TaskSpec) -> dg.AssetDep:
        """Returns the edge in Dagster's graph.

        Partitions of the same batch, or of another batch with the same days, map to the same day.
        All other assets are unknown or partitioned otherwise: their newest partition is meant.
        """
        other = self.known.get(parent)
        # The name of a task may differ from the key of its asset.
        key = _key(other.target if other is not None else parent)
        return _dep(key, other is not None and other.batch == spec.batch)


#: Many tasks share few parents.
_key = lru_cache(maxsize=65_536)(dg.AssetKey.from_user_string)


@lru_cache(maxsize=65_536)
def _dep(key: dg.AssetKey, same_day: bool) -> dg.AssetDep:
    return dg.AssetDep(key, partition_mapping=None if same_day else dg.LastPartitionMapping())


@cache
def _days(start: date, timezone: str) -> dg.DailyPartitionsDefinition:
    # Today's partition exists from its first moment: a task is of the day on which it runs.
    return dg.DailyPartitionsDefinition(start.isoformat(), timezone=timezone, end_offset=1)


@cache
def _input(number: int) -> Any:
    """Returns the input for a parent, which passes on only the order; the same for all ops."""
    return dg.In(dg.Nothing).to_definition(f"parent_{number}")


@cache
def freshness_policy(need: timedelta) -> dg.FreshnessPolicy:
    """Returns Dagster's policy for an asset with this maximum age."""
    return dg.FreshnessPolicy.time_window(fail_window=max(need, _SHORTEST_WINDOW))


def run_of(context: dg.AssetExecutionContext | dg.OpExecutionContext, task: BatchTask) -> TaskRun:
    """Returns the argument for the function of a task."""
    partition = None
    if isinstance(context, dg.AssetExecutionContext):
        # One key, or a range of one key: the guard has checked it.
        partition = context.partition_time_window.start.date()
    spark = getattr(context.resources, SPARK)
    return TaskRun(
        name=task.name,
        partition=partition,
        tags=dict(context.run.tags),
        log=context.log,
        _session=lambda: spark.spark_session,
    )


def _nothing(context: dg.AssetExecutionContext, inputs: Mapping[str, Any]) -> None: ...


def _computing(one: Written, function: Function | None) -> Any:
    def compute(context: dg.AssetExecutionContext, _inputs: Mapping[str, Any]) -> Iterator[Any]:
        with guard_partition(context, one.spec) as held, checked(held):
            metadata = make(one.task, function, run_of(context, one.task))
            # A stored materialization cannot be undone once another run owns the task.
            held.show()
            yield dg.MaterializeResult(metadata=metadata)

    return compute


def _metadata(batch: Batch, task: BatchTask) -> dict[str, Any]:
    metadata: dict[str, Any] = {"batch": batch.name}
    if task.sql is not None:
        metadata["sql"] = dg.MetadataValue.md(f"```sql\n{task.sql}\n```")
    if task.table is not None:
        # Compaction finds the table of an arrived asset by this name.
        metadata["arctic/table"] = task.table
    if task.python is not None:
        metadata["python"] = task.python
    return metadata
