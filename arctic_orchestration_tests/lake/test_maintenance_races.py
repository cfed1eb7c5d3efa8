"""Snapshots expire while others write, and while the catalog loses questions and answers."""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from arctic_orchestration.errors import CommitConflict, CommitUnknown
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots
from arctic_orchestration_tests.lake.expiring_tables import (
    LATER,
    ids,
    on_disk,
    overwritten,
    rows,
    snapshot_ids,
    table,
)
from arctic_orchestration_tests.present import present

__all__ = ["table"]


class Interrupted:
    """Does something right before commits reach the catalog."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, catalog: Catalog) -> None:
        self._monkeypatch = monkeypatch
        self._catalog = catalog
        self.commits = 0

    def before(self, times: int, what: Callable[[], Any]) -> None:
        commit = type(self._catalog).commit_table

        def interrupted(catalog: Catalog, *arguments: Any) -> Any:
            self.commits += 1
            if self.commits <= times:
                self._monkeypatch.setattr(type(self._catalog), "commit_table", commit)
                what()
                self._monkeypatch.setattr(type(self._catalog), "commit_table", interrupted)
            return commit(catalog, *arguments)

        self._monkeypatch.setattr(type(self._catalog), "commit_table", interrupted)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, catalog: Catalog) -> Interrupted:
    return Interrupted(monkeypatch, catalog)


def test_appends_between_looking_and_committing_are_kept(
    table: Table, catalog: Catalog, interrupted: Interrupted
) -> None:
    """Two appends come in between; the third attempt goes through, and no row is lost."""
    overwritten(table)
    other = catalog.load_table("lake.flights")
    interrupted.before(2, lambda: other.append(rows(9)))
    expire_snapshots(table, older_than=LATER)
    # Each append is a commit of its own through the same catalog, but not counted.
    assert interrupted.commits == 3
    assert ids(table.refresh()) == [2, 5, 9, 9]
    assert len(snapshot_ids(table)) == 1


def test_a_tag_that_is_made_meanwhile_keeps_its_snapshot(
    table: Table, catalog: Catalog, interrupted: Interrupted
) -> None:
    """Nothing names the tag when the commit is made; it must not vanish with the snapshot."""
    table.append(rows(1))
    first = present(table.current_snapshot()).snapshot_id
    table.overwrite(rows(2))
    other = catalog.load_table("lake.flights")
    interrupted.before(1, lambda: other.manage_snapshots().create_tag(first, "keep").commit())
    expire_snapshots(table, older_than=LATER)
    table.refresh()
    assert set(table.refs()) == {"main", "keep"}
    assert ids(table, first) == [1]


def test_a_roll_back_meanwhile_is_respected(
    table: Table, catalog: Catalog, interrupted: Interrupted
) -> None:
    table.append(rows(1))
    first = present(table.current_snapshot()).snapshot_id
    table.overwrite(rows(2))
    other = catalog.load_table("lake.flights")
    interrupted.before(1, lambda: other.manage_snapshots().rollback_to_snapshot(first).commit())
    expire_snapshots(table, older_than=LATER)
    assert ids(table.refresh()) == [1]


def test_writers_that_are_always_first_are_a_conflict(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten(table)
    before = on_disk(table)

    def refused(*_arguments: Any, **_named: Any) -> None:
        raise CommitFailedException("another process")

    monkeypatch.setattr(Table, "_do_commit", refused)
    monkeypatch.setattr("arctic_orchestration.lake.upkeep.maintenance._ATTEMPTS", 3)
    with pytest.raises(CommitConflict, match=r"lake\.flights: other writers were first 3 times"):
        expire_snapshots(table, older_than=LATER)
    assert on_disk(table) == before


def test_an_answer_that_is_lost_after_the_commit_is_found_out(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten(table)
    commit = Table._do_commit

    def lost(*arguments: Any, **named: Any) -> None:
        commit(*arguments, **named)
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(Table, "_do_commit", lost)
    done = expire_snapshots(table, older_than=LATER)
    assert len(done.snapshot_ids) == 3
    assert done.files
    assert ids(table) == [2, 5]


def test_a_commit_of_which_nothing_is_known_removes_no_file(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten(table)
    before = on_disk(table)

    def lost(*_arguments: Any, **_named: Any) -> None:
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(Table, "_do_commit", lost)
    with pytest.raises(CommitUnknown, match="reset by peer"):
        expire_snapshots(table, older_than=LATER)
    assert on_disk(table) == before
    assert ids(table) == [2, 5]
