"""A job that is a task: each of its ops shows the run's token before it does anything.

The ops of a job know nothing of tasks, and its lease is renewed and its success published by the
ticks of its location. But a run that begins, or goes on with its next op, after another one has
taken the task over, ends there.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import dagster as dg
from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction

from arctic_orchestration.code_location.freshness.running import show_token

_MARK = "__arctic_shows_token__"


def showing_tokens(job: dg.JobDefinition) -> dg.JobDefinition:
    """The same job, whose ops show the token; in runs that are no tasks they do nothing else.

    Ops whose functions are async, or that are not made of one function, are left as they are.
    """
    for node in job.all_node_defs:
        if not isinstance(node, dg.OpDefinition):
            continue
        function = node.compute_fn
        if not isinstance(function, DecoratedOpFunction):
            continue
        inner = function.decorated_fn
        is_async = inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)
        # An op may be in several jobs.
        if not is_async and not hasattr(inner, _MARK):
            node._compute_fn = DecoratedOpFunction(_showing(inner))
    return job


def _showing(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        try:
            context = dg.OpExecutionContext.get()
        except dg.DagsterInvariantViolationError:
            # Called directly, as in a test of the function.
            return inner(*args, **kwargs)
        show_token(context)
        return inner(*args, **kwargs)

    setattr(outer, _MARK, True)
    return outer
