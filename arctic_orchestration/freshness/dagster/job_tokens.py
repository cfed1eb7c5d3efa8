"""Token checks in a job that is a task: each op verifies the run's token and renews the lease.

The ops of a job do not know about tasks. The ticks of the location publish the job's success and
renew its lease between ops. A run that begins, or reaches its next op, after another run has taken
over the task ends there; and a working op is not considered silent while there are no ticks.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import DecoratedOpFunction, replace_compute_function
from arctic_orchestration.freshness.dagster.fresh_parents import checked
from arctic_orchestration.freshness.dagster.task_run import owned_step

_MARK = "__arctic_shows_token__"


def showing_tokens(job: dg.JobDefinition) -> dg.JobDefinition:
    """Returns the same job with ops that verify the token; without effect in runs of no task.

    Ops with async functions, or not made of one function, are left unchanged.
    """
    for node in job.all_node_defs:
        if not isinstance(node, dg.OpDefinition):
            continue
        function = node.compute_fn
        if not isinstance(function, DecoratedOpFunction):
            continue
        inner = function.decorated_fn
        is_async = inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)
        # Several jobs may share an op.
        if not is_async and not hasattr(inner, _MARK):
            replace_compute_function(node, DecoratedOpFunction(_showing(inner)))
    return job


def _showing(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        with _held():
            return inner(*args, **kwargs)

    @functools.wraps(inner)
    def generating(*args: Any, **kwargs: Any) -> Any:
        with _held():
            yield from inner(*args, **kwargs)

    made = generating if inspect.isgeneratorfunction(inner) else outer
    setattr(made, _MARK, True)
    return made


@contextmanager
def _held() -> Iterator[None]:
    try:
        context = dg.OpExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        # A direct call, as in a test of the function.
        yield
        return
    with owned_step(context) as held, checked(held):
        yield
