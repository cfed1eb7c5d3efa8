"""What may be None for the code, and is there in a test."""

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """The value; fails the test where there is none."""
    assert value is not None
    return value
