"""The statements that are sent to a database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


@contextmanager
def statements_of(sender: sa.Engine | sa.Connection) -> Iterator[list[str]]:
    """Collects the statements of an engine, or of a transaction, while the block lasts."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    sa.event.listen(sender, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sender, "before_cursor_execute", note)
