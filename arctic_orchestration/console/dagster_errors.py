"""What Dagster says is wrong with its configuration, without the schema that it puts before it."""


def dagster_message(error: Exception) -> str:
    """The sentences that name what is wrong; without such, the first line of the error."""
    messages: list[str] = getattr(error, "error_messages", [])
    if messages:
        # After what is expected, Dagster lists everything that it would take.
        return "; ".join(message.partition(" Expected: ")[0].strip() for message in messages)
    return next(iter(str(error).splitlines()), type(error).__name__)
