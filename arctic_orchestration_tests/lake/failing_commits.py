"""A catalog of a table whose commits are refused, or not answered."""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table


class Catalogue:
    """Stands between the table and its catalog, and answers a number of commits in its own way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
        self._commit = table.catalog.commit_table
        self.answers: list[Callable[..., Any]] = []
        monkeypatch.setattr(table.catalog, "commit_table", self._answer)

    def _answer(self, *arguments: Any) -> Any:
        return self.answers.pop(0)(*arguments) if self.answers else self._commit(*arguments)

    def take_and_lose_the_answer(self, *arguments: Any) -> Any:
        self._commit(*arguments)
        raise ConnectionError("the answer was lost")

    def lose_the_question(self, *_: Any) -> Any:
        raise ConnectionError("the question was lost")

    def refuse(self, *_: Any) -> Any:
        raise CommitFailedException("another writer was first")
