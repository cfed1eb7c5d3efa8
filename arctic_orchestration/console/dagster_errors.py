"""Shortens Dagster's errors: without the schema, or the wrapping, around what is wrong."""

from arctic_orchestration.errors import ArcticError


def dagster_message(error: Exception) -> str:
    """Returns the sentences of the error that name a problem; without any, its first line.

    Of code that Dagster could not load: the error of that code, in whole if it is one of ours.
    """
    from dagster import DagsterUserCodeExecutionError

    cause: BaseException = error
    while type(cause).__module__.startswith("dagster.") and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ArcticError):
        return str(cause)
    if isinstance(error, DagsterUserCodeExecutionError) and cause is not error:
        first = next(iter(str(cause).splitlines()), "")
        return f"{' '.join(str(error).split())}: {type(cause).__name__}: {first}"
    messages: list[str] = getattr(error, "error_messages", [])
    if messages:
        # After the expectation, Dagster lists everything that it would accept.
        return "; ".join(message.partition(" Expected: ")[0].strip() for message in messages)
    return next(iter(str(error).splitlines()), type(error).__name__)
