"""What the caller does before each commit is sent, and what happens when it does not want it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from arctic_orchestration.errors import Refused
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration_tests.lake.reference_merge import (
    add,
    arrow,
    merge,
    new_table,
    plan,
    rows_of,
)

ROWS = [(number, "JFK") for number in range(4)]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


@pytest.fixture
def merged(table: Table) -> Replacement:
    for row in ROWS:
        add(table, row)
    return merge(table, plan(table))


class Calls:
    """What happened, in order; commits are taken, refused or lost as it is given."""

    def __init__(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.instead: list[Callable[[], None] | None] = []
        real = table.catalog.commit_table

        def commit(*arguments: Any) -> Any:
            self.events.append("sent")
            answer = self.instead.pop(0) if self.instead else None
            if answer is not None:
                answer()
            return real(*arguments)

        monkeypatch.setattr(table.catalog, "commit_table", commit)
        monkeypatch.setattr(
            "arctic_orchestration.lake.replacing.commit_loop.time.sleep", lambda seconds: None
        )

    def before_commit(self) -> None:
        self.events.append("before commit")


@pytest.fixture
def calls(table: Table, merged: Replacement, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(table, monkeypatch)


def refuse() -> None:
    raise CommitFailedException("another one was first")


def lose() -> None:
    raise ConnectionError("the connection broke")


def files_of(table: Table) -> set[Path]:
    return set(Path(table.location(), "metadata").iterdir())


def test_it_is_called_before_each_commit_that_is_sent(
    table: Table, merged: Replacement, calls: Calls
) -> None:
    """Another writer is first, then an answer is lost, then it is taken."""
    calls.instead = [refuse, lose]
    done = replace_files(table, [merged], before_commit=calls.before_commit)
    assert done.committed == ("task-1",)
    assert calls.events == ["before commit", "sent"] * 3


def test_it_is_not_called_when_there_is_nothing_to_send(
    table: Table, merged: Replacement, calls: Calls
) -> None:
    """No replacements; one that is there already; one that conflicts."""
    replace_files(table, [], before_commit=calls.before_commit)
    replace_files(table, [merged])
    calls.events.clear()
    replace_files(table, [merged], before_commit=calls.before_commit)
    table.overwrite(arrow([(5, "JFK")]))
    calls.events.clear()
    again = Replacement(id="task-2", group=merged.group, outputs=("x",), rows_deleted=0)
    assert list(replace_files(table, [again], before_commit=calls.before_commit).conflicts) == [
        "task-2"
    ]
    assert calls.events == []


@pytest.mark.parametrize("refused", [0, 2])
@pytest.mark.parametrize(
    "error", [Refused("the lease is over"), CommitFailedException("not the catalog's"), OSError(5)]
)
def test_when_it_raises_nothing_is_sent_and_nothing_is_left(
    table: Table, merged: Replacement, calls: Calls, error: Exception, refused: int
) -> None:
    """At the first commit, or at the third after two that were refused."""
    calls.instead = [refuse] * refused
    before, head = files_of(table), table.refresh().metadata.current_snapshot_id

    def over() -> None:
        calls.before_commit()
        if len(calls.events) == 2 * refused + 1:
            raise error

    with pytest.raises(type(error)) as caught:
        replace_files(table, [merged], before_commit=over)
    assert caught.value is error
    assert calls.events == ["before commit", "sent"] * refused + ["before commit"]
    assert table.refresh().metadata.current_snapshot_id == head
    assert files_of(table) == before
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == ROWS


def test_after_a_lost_answer_what_may_have_been_taken_stays(
    table: Table, merged: Replacement, calls: Calls
) -> None:
    """The lost commit may arrive late, so its manifests stay; the next call finds out."""
    calls.instead = [lose]

    def over() -> None:
        calls.before_commit()
        if "sent" in calls.events:
            raise Refused("the lease is over")

    before = files_of(table)
    with pytest.raises(Refused, match="the lease is over"):
        replace_files(table, [merged], before_commit=over)
    assert calls.events == ["before commit", "sent", "before commit"]
    assert any(path.name.startswith("snap-") for path in files_of(table) - before)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == ROWS
