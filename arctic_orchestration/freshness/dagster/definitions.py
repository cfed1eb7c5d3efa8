"""`Freshness`: the tasks of a code location as Dagster definitions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from arctic_orchestration.dagster_internals import UnresolvedAssetJobDefinition, with_attributes
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.freshness.batch_file import Batch, load_batch
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.dagster.batch_assets import (
    BatchAssets,
    Written,
    freshness_policy,
    run_of,
)
from arctic_orchestration.freshness.dagster.fresh_parents import declared, spec_of
from arctic_orchestration.freshness.dagster.materialization import (
    SPARK,
    Function,
    function_of,
    make,
)
from arctic_orchestration.freshness.dagster.sensor import TaskSensor
from arctic_orchestration.freshness.dagster.submission_history import (
    history_asset,
    history_link,
    with_history,
)
from arctic_orchestration.freshness.dagster.task_run import guard
from arctic_orchestration.freshness.graph import TaskGraph, cycle_problem
from arctic_orchestration.freshness.ownership import LEASE
from arctic_orchestration.settings import Settings

Declared = dg.AssetsDefinition | dg.JobDefinition | UnresolvedAssetJobDefinition

#: Ticks renew the leases of jobs and of runs that have not begun: after each third of a lease.
_LONGEST_INTERVAL_SECONDS = int(LEASE.total_seconds() / 3)


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """The tasks of a code location: batch files; assets and jobs under ``fresh_parents``.

    ::

        arctic = Arctic(schedules=[...], freshness=Freshness(batches=["delays.json"]))

    Args:
        batches: JSON files; each task becomes an asset with daily partitions, or a job, and each
            batch a job of its own name that runs all of its assets. Tasks that use Spark need the
            resource ``pyspark``, made by ``pyspark_resource()``.
        tasks: assets and jobs under ``fresh_parents``; do not list them in the other definitions
            too.
        elsewhere: the batch files of other locations. Their requirements for tasks here count for
            freshness policies, and cycles with them are refused.
        loaded: assets and jobs under ``fresh_parents`` that other definitions of this location
            contain, as those in the ``defs/`` of a ``dg`` project; only their histories are added,
            and their freshness policies stay those of their definitions.
        interval_seconds: the minimum interval between two ticks of the sensor; at most a third of a
            lease, because ticks renew the leases.
    """

    batches: Sequence[str | Path] = ()
    tasks: Sequence[Declared] = ()
    elsewhere: Sequence[str | Path] = ()
    loaded: Sequence[Declared] = ()
    interval_seconds: int = 10

    def definitions(self) -> dg.Definitions:
        """Returns assets and jobs of the tasks and their sensor ``arctic_tasks``; opens nothing.

        Each asset has a ``FreshnessPolicy``: the strictest of its own requirement and its
        children's. Each task also has an asset ``arctic/tasks/NAME``, to which the sensor reports
        how its submissions ended.

        Errors:
            InvalidInput: a file cannot be read or is not JSON.
            InvalidDefinition: names every invalid value with its file, a duplicate name or
                table of two tasks, or a cycle.
        """
        allowed = range(1, _LONGEST_INTERVAL_SECONDS + 1)
        if type(self.interval_seconds) is not int or self.interval_seconds not in allowed:
            expected = (
                f"a whole number from 1 to {allowed[-1]}: ticks renew leases of "
                f"{LEASE.total_seconds():g} seconds"
            )
            raise InvalidDefinition(
                [InvalidInput("interval_seconds", self.interval_seconds, expected)]
            )
        timezone = Settings.from_environment().timezone
        loaded = [
            (_named(path), load_batch_file(path)) for path in _listed("batches", self.batches)
        ]
        others = [load_batch_file(path) for path in _listed("elsewhere", self.elsewhere)]
        written = [
            Written(batch=batch, task=task, spec=spec, path=f"{name}: tasks[{number}]")
            for name, batch in loaded
            for number, (task, spec) in enumerate(
                zip(batch.tasks, batch.specs(timezone=timezone), strict=True)
            )
        ]
        given = [(one, _declared_spec(number, one)) for number, one in enumerate(self.tasks)]
        others_own = [
            (one, _declared_spec(number, one, "loaded")) for number, one in enumerate(self.loaded)
        ]
        everything = given + others_own
        _require_different_names(written, everything, [batch for _, batch in loaded])
        own = [one.spec for one in written] + [spec for _, spec in everything]
        known = own + [spec for batch in others for spec in batch.specs(timezone=timezone)]
        graph = TaskGraph(known)
        cycle = graph.cycle()
        if cycle is not None:
            raise InvalidDefinition([cycle_problem("tasks", cycle)])
        functions = _functions(written)

        assets: list[dg.AssetsDefinition] = []
        batch_assets = BatchAssets({spec.name: spec for spec in known}, graph)
        jobs: list[dg.JobDefinition | UnresolvedAssetJobDefinition] = []
        for one in written:
            function = functions[one.spec.name]
            if one.spec.kind == "job":
                jobs.append(with_history(declared(_job(one, function), one.spec), one.spec))
            else:
                assets.append(batch_assets.asset(one, function))
        for definition, spec in given:
            if isinstance(definition, dg.AssetsDefinition):
                assets.append(_finished(definition, spec, graph))
            else:
                jobs.append(with_history(definition, spec))
        theirs = [one for one, _ in others_own]
        sensor = TaskSensor(
            interval_seconds=self.interval_seconds,
            # Only jobs that are tasks: the job of a whole batch is never requested.
            jobs=[one.name for one in (*jobs, *theirs) if not isinstance(one, dg.AssetsDefinition)],
            assets=bool(assets) or any(isinstance(one, dg.AssetsDefinition) for one in theirs),
        )
        jobs += [job for _, batch in loaded if (job := _whole(batch)) is not None]
        histories = [history_asset(spec) for spec in own]
        return dg.Definitions(assets=[*assets, *histories], jobs=jobs, sensors=[sensor])


def _whole(batch: Batch) -> UnresolvedAssetJobDefinition | None:
    """Returns the job that runs all assets of a batch; none: the batch has no assets."""
    keys = [dg.AssetKey.from_user_string(task.name) for task in batch.tasks if task.kind == "asset"]
    if not keys:
        return None
    return dg.define_asset_job(
        batch.name,
        selection=dg.AssetSelection.assets(*keys),
        description=batch.description or f"All assets of the batch {batch.name}.",
        tags=dict(batch.tags),
    )


def load_batch_file(path: str | Path) -> Batch:
    """Loads the batch of a file; errors name the file.

    Errors:
        As ``load_batch``.
    """
    try:
        return load_batch(path)
    except InvalidDefinition as error:
        name = _named(path)
        raise InvalidDefinition(
            [
                InvalidInput(f"{name}: {one.field}", one.value, one.expected)
                for one in error.problems
            ]
        ) from error


def _finished(
    definition: dg.AssetsDefinition, spec: TaskSpec, graph: TaskGraph
) -> dg.AssetsDefinition:
    """Returns a decorated asset as a task: with its policy and its history."""
    policy = freshness_policy(graph.strictest_need(spec.name))
    specs = [
        one.replace_attributes(freshness_policy=policy).merge_attributes(
            metadata=history_link(spec)
        )
        for one in definition.specs
    ]
    return with_attributes(definition, specs=specs)


def _job(one: Written, function: Function | None) -> dg.JobDefinition:
    task, batch = one.task, one.batch

    @dg.op(
        name=f"{task.name}_task",
        description=task.description or None,
        required_resource_keys={SPARK},
        out=dg.Out(dg.Nothing),
    )
    def made(context: dg.OpExecutionContext) -> None:
        with guard(context, one.spec):
            context.add_output_metadata(make(task, function, run_of(context, task)))

    @dg.job(
        name=task.name,
        description=task.description or None,
        tags={**batch.tags, **task.tags},
        metadata={"batch": batch.name, "python": str(task.python)},
    )
    def whole() -> None:
        made()

    return whole


def _declared_spec(number: int, definition: object, field: str = "tasks") -> TaskSpec:
    spec = (
        spec_of(definition)
        if isinstance(
            definition, (dg.AssetsDefinition, dg.JobDefinition, UnresolvedAssetJobDefinition)
        )
        else None
    )
    if spec is None:
        expected = "an asset or a job under fresh_parents"
        raise InvalidDefinition([InvalidInput(f"{field}[{number}]", definition, expected)])
    return spec


def _functions(written: Iterable[Written]) -> dict[str, Function | None]:
    functions: dict[str, Function | None] = {}
    problems: list[InvalidInput] = []
    for one in written:
        try:
            functions[one.spec.name] = function_of(one.task, one.path)
        except InvalidDefinition as error:
            problems += error.problems
    if problems:
        raise InvalidDefinition(problems)
    return functions


def _require_different_names(
    written: Sequence[Written],
    given: Sequence[tuple[Declared, TaskSpec]],
    batches: Sequence[Batch],
) -> None:
    places: dict[str, str] = {}
    problems = []
    everything = [(one.spec.name, f"{one.path}.name") for one in written]
    everything += [(spec.name, f"tasks[{number}]") for number, (_, spec) in enumerate(given)]
    for name, path in everything:
        if places.setdefault(name, path) != path:
            problems.append(InvalidInput(path, name, f"another name: {places[name]} has it"))
    problems += _tables_used_twice(written)
    jobs = {one.spec.name for one in written if one.spec.kind == "job"}
    jobs |= {spec.target for _, spec in given if spec.kind == "job"}
    seen: set[str] = set()
    for batch in batches:
        if batch.name in jobs or batch.name in seen:
            expected = "a name that no other batch and no job has: it becomes a job"
            problems.append(InvalidInput("batch", batch.name, expected))
        seen.add(batch.name)
    if problems:
        raise InvalidDefinition(problems)


def _tables_used_twice(written: Sequence[Written]) -> list[InvalidInput]:
    """Returns the tasks that write the table of another: each run replaces the rows of its day."""
    places: dict[str, str] = {}
    problems = []
    for one in written:
        table = one.task.table
        if table is not None and places.setdefault(table, one.path) != one.path:
            expected = f"another table: {places[table]} writes it"
            problems.append(InvalidInput(f"{one.path}.table", table, expected))
    return problems


def _listed(field: str, paths: object) -> Sequence[str | Path]:
    if isinstance(paths, (list, tuple)) and all(isinstance(one, (str, Path)) for one in paths):
        return paths
    raise InvalidDefinition([InvalidInput(field, paths, "a list of paths of batch files")])


def _named(path: str | Path) -> str:
    return Path(path).name
