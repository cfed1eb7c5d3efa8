"""Shortens Dagster's configuration errors, without the schema that precedes them."""


def dagster_message(error: Exception) -> str:
    """Returns the sentences of the error that name a problem; without any, its first line."""
    messages: list[str] = getattr(error, "error_messages", [])
    if messages:
        # After the expectation, Dagster lists everything that it would accept.
        return "; ".join(message.partition(" Expected: ")[0].strip() for message in messages)
    return next(iter(str(error).splitlines()), type(error).__name__)
