"""Errors of Spark and its JVM for people: one line, without the stack."""

from typing import Any

from arctic_orchestration.errors import causes

_LINES, _LETTERS = 4, 1_000
_CAUSE = "Caused by:"
#: the prefixes of stack lines, and of Spark's notes about them
_STACK = ("at ", "... ", "Driver stacktrace", "JVM stacktrace", _CAUSE)


def one_line(text: str) -> str:
    """Returns the first lines of an error without its stack, and the root cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = [line for line in lines if not line.startswith(_STACK)][:_LINES]
    causes = [line.removeprefix(_CAUSE).strip() for line in lines if line.startswith(_CAUSE)]
    if causes and not any(causes[-1] in line for line in shown):
        shown.append(f"({_CAUSE.lower()} {causes[-1]})")
    return " ".join(shown)[:_LETTERS] or "no reason was given"


def reason_of(error: Exception) -> str:
    """Returns Java's messages, down to the first cause; without its stack."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    parts: list[str] = []
    while cause is not None:
        parts.append(str(cause.toString()).splitlines()[0])
        cause = cause.getCause()
    return "; ".join(dict.fromkeys(parts)) or one_line(str(error))


def is_of_java(error: BaseException) -> bool:
    """Returns whether an error, or one of its causes, comes from Spark or the bridge to its JVM."""
    return any(
        type(one).__module__.partition(".")[0] in ("py4j", "pyspark") for one in causes(error)
    )
