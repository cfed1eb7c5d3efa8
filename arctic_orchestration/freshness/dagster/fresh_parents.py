"""`fresh_parents`: declares an asset or a job as a task with required freshness of its parents.

The declaration is stored as metadata on the asset or job, under :data:`DECLARED`. The location's
sensor finds it there, so nothing has to be listed a second time.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, cast

import dagster as dg
from pydantic import ValidationError

from arctic_orchestration.dagster_internals import (
    DecoratedOpFunction,
    UnresolvedAssetJobDefinition,
    replace_compute_function,
    validate_and_coerce_op_result_to_iterator,
    with_attributes,
)
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.freshness.criteria import Parent, TaskSpec
from arctic_orchestration.settings import default_timezone
from arctic_orchestration.specification import problems_of

#: The metadata entry of an asset or job that is a task: its spec, as JSON.
DECLARED = "arctic/task"


class OwnedTask(Protocol):
    """The right to run a task, while it runs."""

    def check(self) -> None:
        """Returns while the lease can be trusted; raises when it is lost."""
        ...


class Shown(OwnedTask, Protocol):
    """An owned task with a token that the database can verify."""

    def show(self) -> None:
        """Returns while the token is the task's; raises when it is not."""
        ...


#: The context around the materialization of a task's asset: entered before its function is called,
#: left when Dagster has stored all results. An exception passes through it.
Guard = Callable[[dg.AssetExecutionContext, TaskSpec], AbstractContextManager[Shown]]

#: The task that runs in this context; none: no task.
_held: ContextVar[OwnedTask | None] = ContextVar("arctic_task", default=None)

_Declarable = TypeVar(
    "_Declarable", dg.AssetsDefinition, dg.JobDefinition, UnresolvedAssetJobDefinition
)


def fresh_parents(
    parents: Mapping[str, float | None],
    *,
    freshness_hours: float | None = None,
    name: str | None = None,
    batch: str | None = None,
    timezone: str | None = None,
    concurrency: int | None = None,
    retries: int = 0,
    retry_delay: timedelta = timedelta(0),
    skip: str | None = None,
    recheck: timedelta = timedelta(minutes=2),
    patience: timedelta = timedelta(minutes=30),
) -> Callable[[_Declarable], _Declarable]:
    """Declares an asset or a job as a task, which runs when its parents are fresh enough for it.

    ::

        @fresh_parents({"flights": 24, "weather": None}, freshness_hours=12)
        @dg.asset
        def punctuality(): ...

    Args:
        parents: tasks or plain assets, each with the maximum age of its last success in hours;
            None: it succeeded since the start of today.
        freshness_hours: the maximum age of its own last success; None: since the start of today.
        name: its name in all clusters; defaults to the asset's key with slashes, or the job's name.
        batch: the batch it belongs to; stale tasks of a batch are submitted for each other, even
            across locations.
        timezone: the zone in which today starts; defaults to ``ARCTIC_TIMEZONE``, or UTC.
        concurrency: the maximum number of tasks of the batch that run at the same time.
        retries: how often a failed run is retried.
        retry_delay: the pause between a failed run and the next one.
        skip: why it is skipped; None: it is not.
        recheck: the interval at which stale parents elsewhere are rechecked.
        patience: how long stale parents are waited for before the task fails.

    Errors:
        InvalidDefinition: an invalid value, an object that is neither an asset of one key with a
            function of its own nor a job, or partitions without a newest one.
    """

    def declare(definition: _Declarable) -> _Declarable:
        kind, target = _target_of(definition)
        _require_windows_of_time(definition, target)
        field = f"fresh_parents({target})"
        problems = []
        if concurrency is not None and batch is None:
            expected = "None without a batch: it limits the tasks of one"
            problems.append(InvalidInput(f"{field}.concurrency", concurrency, expected))
        if isinstance(skip, str) and not skip.strip():
            problems.append(InvalidInput(f"{field}.skip", skip, "why it is skipped, or None"))
        if problems:
            raise InvalidDefinition(problems)
        spec = TaskSpec.parse(
            {
                "name": name if name is not None else target,
                "kind": kind,
                "target": target,
                "batch": batch,
                "freshness_hours": freshness_hours,
                "parents": _parents(parents),
                "timezone": timezone or default_timezone(),
                "concurrency": concurrency,
                "retries": retries,
                "retry_delay": retry_delay,
                "skip": skip,
                "recheck": recheck,
                "patience": patience,
            },
            field=field,
        )
        return _owned(definition, spec)

    return declare


def _owned(definition: _Declarable, spec: TaskSpec) -> _Declarable:
    """Returns the asset or job as a task that its runs own, also if ``defs/`` loads it."""
    # They are built on this module.
    from arctic_orchestration.freshness.dagster.job_tokens import showing_tokens
    from arctic_orchestration.freshness.dagster.task_run import guard

    made: Any
    if isinstance(definition, dg.AssetsDefinition):
        # In one step: each copy of an asset costs as much as its definition.
        made = guarded(definition, spec, guard, specs=_specs_with(definition, spec))
    else:
        made = declared(definition, spec)
        if isinstance(made, dg.JobDefinition):
            made = showing_tokens(made)
    return cast(_Declarable, made)


def entry_of(spec: TaskSpec) -> dict[str, dg.MetadataValue[Any]]:
    """Returns the metadata that declares an asset or job as a task."""
    return {DECLARED: dg.MetadataValue.json(spec.to_form())}


def declared(definition: _Declarable, spec: TaskSpec) -> _Declarable:
    """Returns the asset or job with a spec in its metadata."""
    if isinstance(definition, dg.AssetsDefinition):
        _require_one_function(definition, spec.name)
        with_entry: Any = with_attributes(definition, specs=_specs_with(definition, spec))
    else:
        with_entry = definition.with_metadata({**(definition.metadata or {}), **entry_of(spec)})
    return cast(_Declarable, with_entry)


def _specs_with(definition: dg.AssetsDefinition, spec: TaskSpec) -> list[dg.AssetSpec]:
    entry = entry_of(spec)
    return [one.merge_attributes(metadata=entry) for one in definition.specs]


def spec_of(
    definition: dg.AssetsDefinition | dg.JobDefinition | UnresolvedAssetJobDefinition,
) -> TaskSpec | None:
    """Returns the declared spec of an asset or job; none: it is not a task."""
    if isinstance(definition, dg.AssetsDefinition):
        specs = list(definition.specs)
        return _spec_in(specs[0].metadata) if len(specs) == 1 else None
    return _spec_in(definition.metadata or {})


def declared_tasks(repository: dg.RepositoryDefinition) -> tuple[TaskSpec, ...]:
    """Returns the tasks of a loaded code location: assets by their keys, then jobs by their names.

    Errors:
        InvalidDefinition: two tasks have the same name.
    """
    graph = repository.asset_graph
    keys = sorted(graph.executable_asset_keys, key=lambda key: key.to_user_string())
    found = [_spec_in(graph.get(key).metadata) for key in keys]
    names = sorted(name for name in repository.job_names if not name.startswith("__"))
    found += [_spec_in(repository.get_job(name).metadata) for name in names]
    specs = tuple(spec for spec in found if spec is not None)
    seen: dict[str, TaskSpec] = {}
    problems = [
        InvalidInput(f"task of {spec.kind} {spec.target}", spec.name, "a name used once")
        for spec in specs
        if seen.setdefault(spec.name, spec) is not spec
    ]
    if problems:
        raise InvalidDefinition(problems)
    return specs


def check_lease() -> None:
    """Returns while the run may go on; call it before an irreversible write.

    Outside of a task, as in a test of an asset's function, it always returns.

    Errors:
        LeaseLost: another run has taken over the task, or the database was away for too long.
    """
    held = _held.get()
    if held is not None:
        held.check()


@contextmanager
def checked(held: OwnedTask) -> Iterator[None]:
    """Makes :func:`check_lease` check this task while the block runs."""
    _held.set(held)
    try:
        yield
    finally:
        _held.set(None)


def newest_partition(definition: dg.PartitionsDefinition[Any] | None, now: datetime) -> str | None:
    """Returns the partition of a task's run: the one that contains ``now``, or the last before.

    None where there are no partitions, or where time does not determine the newest.
    """
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return None
    with dg.partition_loading_context(effective_dt=now):
        current = definition.get_partition_key_for_timestamp(now.timestamp())
        if definition.has_partition_key(current):
            return current
        return definition.get_last_partition_key()


def guarded(
    definition: dg.AssetsDefinition,
    spec: TaskSpec,
    guard: Guard,
    *,
    specs: Sequence[dg.AssetSpec] | None = None,
) -> dg.AssetsDefinition:
    """Returns the asset with a guard around its function, and with other ``specs`` if given.

    A direct call, as in a test of the function, bypasses the guard.
    """
    op = _require_one_function(definition, spec.name)
    function = cast(DecoratedOpFunction, op.compute_fn)
    inner = function.decorated_fn

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        context = _current_context()
        if context is None:
            return inner(*args, **kwargs)
        return _events(context, spec, guard, functools.partial(inner, *args, **kwargs))

    # Constructing another op would inspect the function again, the most expensive step.
    replaced = copy.copy(op)
    replace_compute_function(replaced, type(function)(outer))
    return with_attributes(definition, node_def=replaced, specs=specs or list(definition.specs))


def _events(
    context: dg.AssetExecutionContext,
    spec: TaskSpec,
    guard: Guard,
    function: Callable[[], Any],
) -> Iterator[Any]:
    # Dagster requests the next event after it has processed the previous one: code after the last
    # event runs after the materialization is stored.
    with guard(context, spec) as held, checked(held):
        result = function()
        if not inspect.isgenerator(result):
            outputs = context.op_execution_context.op_def.output_defs
            result = validate_and_coerce_op_result_to_iterator(result, context, outputs)
        with closing(result):
            for event in result:
                # A stored materialization cannot be undone once another run owns the task.
                held.show()
                yield event


def _current_context() -> dg.AssetExecutionContext | None:
    try:
        return dg.AssetExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return None


def _target_of(definition: object) -> tuple[str, str]:
    if isinstance(definition, dg.AssetsDefinition) and len(set(definition.keys)) == 1:
        return "asset", definition.key.to_user_string()
    if isinstance(definition, (dg.JobDefinition, UnresolvedAssetJobDefinition)):
        return "job", definition.name
    expected = "above @dg.asset or @dg.job: an asset of one key, or a job"
    raise InvalidDefinition([InvalidInput("fresh_parents", definition, expected)])


def _require_windows_of_time(definition: Any, target: str) -> None:
    """Requires time windows: a run is for the newest partition, which only time determines."""
    partitions = definition.partitions_def
    if partitions is None or isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return
    expected = "partitions that are windows of time, or none: a run is for the newest"
    found = type(partitions).__name__
    raise InvalidDefinition(
        [InvalidInput(f"fresh_parents({target}).partitions_def", found, expected)]
    )


def _require_one_function(definition: dg.AssetsDefinition, name: str) -> dg.OpDefinition:
    """Returns the op of an asset; requires one function that can be wrapped."""
    op = definition.node_def if definition.is_executable else None
    function = op.compute_fn if isinstance(op, dg.OpDefinition) else None
    if not isinstance(op, dg.OpDefinition) or not isinstance(function, DecoratedOpFunction):
        expected = "an asset that one function makes"
        raise InvalidDefinition([InvalidInput("task", name, expected)])
    inner = function.decorated_fn
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        expected = "an asset whose function is not async"
        raise InvalidDefinition([InvalidInput("task", name, expected)])
    return op


def _parents(parents: object) -> list[Parent | dict[str, Any]]:
    if not isinstance(parents, Mapping):
        expected = 'a mapping of parents to hours, such as {"flights": 24}'
        raise InvalidDefinition([InvalidInput("fresh_parents", parents, expected)])
    return [{"name": name, "hours": hours} for name, hours in parents.items()]


def _spec_in(metadata: Mapping[str, Any]) -> TaskSpec | None:
    entry = metadata.get(DECLARED)
    if not isinstance(entry, dg.JsonMetadataValue):
        return None
    try:
        # Written by ``entry_of``: valid JSON types need no second check.
        return TaskSpec.model_validate(entry.data)
    except ValidationError as error:
        raise InvalidDefinition(problems_of(error, DECLARED)) from error
