"""Commits that were interrupted, or not answered: recognised, and never made twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from arctic_orchestration.errors import CatalogUnavailable, CommitConflict, CommitUnknown
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.crashing_committer import LANDED, STEPS, commit_until
from arctic_orchestration_tests.lake.reference_merge import (
    add,
    merge,
    new_table,
    paths,
    plan,
    renamed,
    rows_in_files,
    rows_of,
)

ROWS = [(number, "JFK") for number in range(4)]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


@pytest.fixture
def merged(table: Table) -> Replacement:
    """Four files of one row, and one that has all of them."""
    for row in ROWS:
        add(table, row)
    return merge(table, plan(table))


def replaces(table: Table) -> list[int]:
    """The snapshots that replaced files."""
    return [
        one.snapshot_id
        for one in table.refresh().snapshots()
        if one.summary is not None and one.summary.operation.value == "replace"
    ]


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_committer_is_carried_on_by_the_next(
    settings: Settings, table: Table, merged: Replacement, step: str
) -> None:
    """SIGKILL at every step: the next call commits it, or says that it is there."""
    commit_until(settings.lake, "lake.replaced", [merged], step)
    assert len(replaces(table)) == (1 if step in LANDED else 0)
    done = replace_files(table, [merged])
    if step in LANDED:
        assert (done.committed, done.snapshot_id) == ((), None)
        assert done.already == {"task-1": replaces(table)[0]}
    else:
        assert done.committed == ("task-1",)
    assert len(replaces(table)) == 1
    assert paths(table) == list(merged.outputs)
    assert rows_of(table) == ROWS == rows_in_files(table)


def test_a_replacement_is_made_once_whatever_follows(table: Table, merged: Replacement) -> None:
    """Requested again: at once, after others have committed, with a new one beside it."""
    first = replace_files(table, [merged])
    assert replace_files(table, [merged]).already == {"task-1": first.snapshot_id}
    more = [add(table, (10 + number, "JFK")) for number in range(2)]
    new = merge(table, plan(table, more), name="task-2")
    done = replace_files(table, [merged, new])
    assert (done.committed, done.already) == (("task-2",), {"task-1": first.snapshot_id})
    assert rows_of(table) == [*ROWS, (10, "JFK"), (11, "JFK")]


def expire(table: Table, *snapshot_ids: int | None) -> None:
    with table.refresh().maintenance.expire_snapshots() as expired:
        for snapshot_id in snapshot_ids:
            assert snapshot_id is not None
            expired.by_id(snapshot_id)


def test_it_is_recognised_by_its_files_when_its_snapshot_expired(
    table: Table, merged: Replacement
) -> None:
    """The outputs are there and the inputs are not; the snapshot that is named is gone."""
    first = replace_files(table, [merged])
    add(table, (9, "JFK"))
    expire(table, first.snapshot_id)
    assert replace_files(table, [merged]).already == {"task-1": first.snapshot_id}
    assert rows_of(table) == [*ROWS, (9, "JFK")]


def test_it_is_recognised_in_the_history_when_it_was_merged_again(
    table: Table, merged: Replacement
) -> None:
    """Its snapshot and the planned one expired; an older head that is kept has the outputs."""
    first = replace_files(table, [merged])
    add(table, (9, "JFK"))
    replace_files(table, [merge(table, plan(table), name="task-2")])
    expire(table, merged.group.snapshot_id, first.snapshot_id)
    assert not set(merged.outputs) & set(paths(table))
    assert replace_files(table, [merged]).already == {"task-1": first.snapshot_id}


def test_after_a_rollback_it_is_still_reported(table: Table, merged: Replacement) -> None:
    """The snapshot that is kept holds the outputs, so that nobody may remove them."""
    first = replace_files(table, [merged])
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(merged.group.snapshot_id)
    done = replace_files(table, [merged])
    assert done.already == {"task-1": first.snapshot_id}
    assert rows_of(table.refresh()) == ROWS


def test_another_id_with_the_same_files_is_a_conflict(table: Table, merged: Replacement) -> None:
    """A second attempt of the same work wrote files of its own."""
    replace_files(table, [merged])
    again = Replacement(id="task-2", group=merged.group, outputs=("x",), rows_deleted=0)
    done = replace_files(table, [again])
    assert list(done.conflicts) == ["task-2"]
    assert rows_of(table) == ROWS


class Commits:
    """Stands between the table and its catalog."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
        self.calls = 0
        self._real = table.catalog.commit_table
        monkeypatch.setattr(table.catalog, "commit_table", self)
        self.before: Callable[[int], None] = lambda call: None
        self.after: Callable[[int], None] = lambda call: None

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        self.before(self.calls)
        answer = self._real(*arguments)
        self.after(self.calls)
        return answer


class Lost(Exception):
    """The connection broke."""


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch, table: Table, merged: Replacement) -> Commits:
    monkeypatch.setattr(
        "arctic_orchestration.lake.replacing.commit_loop.time.sleep", lambda seconds: None
    )
    monkeypatch.setattr("arctic_orchestration.lake.catalog_answers.sleep", lambda seconds: None)
    return Commits(monkeypatch, table)


def lose(call: int) -> None:
    raise Lost


def test_a_commit_without_an_answer_is_found(
    table: Table, merged: Replacement, commits: Commits
) -> None:
    """It landed, the answer was lost: reported as committed, once."""
    commits.after = lose
    done = replace_files(table, [merged])
    assert done.committed == ("task-1",)
    assert replaces(table) == [done.snapshot_id]
    assert rows_of(table) == ROWS


def test_a_commit_that_never_arrived_is_sent_again(
    table: Table, merged: Replacement, commits: Commits
) -> None:
    """Lost on the way, twice."""

    def lose_two(call: int) -> None:
        if call <= 2:
            raise Lost

    commits.before = lose_two
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert commits.calls == 3
    assert rows_of(table) == ROWS


def test_when_no_answer_ever_comes_the_files_stay(
    table: Table, merged: Replacement, commits: Commits
) -> None:
    """What was sent may still be taken: nothing is removed, and the next call finds out."""
    commits.before = lose
    with pytest.raises(CommitUnknown, match="neither confirmed nor refused the commit"):
        replace_files(table, [merged])
    assert commits.calls == 5
    assert len(list(Path(table.location(), "metadata").glob("snap-*.avro"))) == 4 + 5
    commits.before = lambda call: None
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == ROWS


def test_a_catalog_that_is_down_before_the_commit_is_reported(
    table: Table, merged: Replacement, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked five times; nothing was sent."""

    def down(identifier: Any) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(table.catalog, "load_table", down)
    with pytest.raises(CatalogUnavailable, match="lake.replaced: the catalog did not answer"):
        replace_files(table, [merged])
    assert commits.calls == 0


def test_a_catalog_that_goes_down_after_the_commit_was_sent_leaves_it_unknown(
    table: Table, merged: Replacement, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did land; the next call, when the catalog is back, says so."""
    real = table.catalog.load_table

    def down(identifier: Any) -> None:
        raise ConnectionError("refused")

    def lose_all(call: int) -> None:
        monkeypatch.setattr(table.catalog, "load_table", down)
        raise Lost

    commits.after = lose_all
    with pytest.raises(CommitUnknown):
        replace_files(table, [merged])
    monkeypatch.setattr(table.catalog, "load_table", real)
    assert list(replace_files(table, [merged]).already) == ["task-1"]
    assert rows_of(table) == ROWS


def test_a_refused_commit_uses_what_it_wrote_again(
    table: Table, merged: Replacement, commits: Commits
) -> None:
    """Other writers are first three times; manifests are written once, and no file is left over."""
    others = table.catalog.load_table("lake.replaced")
    before = {path.name for path in Path(table.location(), "metadata").glob("*-m*.avro")}

    def append_first(call: int) -> None:
        # The append that is made here comes through here, too.
        if call in (1, 3, 5):
            others.refresh().append(others.scan().to_arrow().slice(0, 1))

    commits.before = append_first
    done = replace_files(table, [merged])
    assert done.committed == ("task-1",)
    assert len(rows_of(table)) == 7
    head = table.current_snapshot()
    assert head is not None
    after = {path.name for path in Path(table.location(), "metadata").glob("*-m*.avro")}
    # Three appends, and the manifests of the output and of what is gone.
    assert len(after - before) == 3 + 2
    lists = set(Path(table.location(), "metadata").glob("snap-*.avro"))
    assert lists == {Path(one.manifest_list) for one in table.snapshots()}


def test_other_writers_that_are_always_first_end_it(
    table: Table, merged: Replacement, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a hundred times; what was written is removed."""

    def refuse(call: int) -> None:
        raise CommitFailedException("another one was first")

    commits.before = refuse
    before = set(Path(table.location(), "metadata").iterdir())
    with pytest.raises(CommitConflict, match="other writers were first 100 times"):
        replace_files(table, [merged])
    assert commits.calls == 100
    assert set(Path(table.location(), "metadata").iterdir()) == before


def test_a_conflict_that_comes_up_at_a_retry_drops_that_one_alone(
    table: Table, merged: Replacement, commits: Commits
) -> None:
    """An overwrite is first; the other replacement is committed by the next attempt."""
    more = [add(table, (10 + number, "JFK")) for number in range(2)]
    other = merge(table, plan(table, more), name="task-2")
    others = table.catalog.load_table("lake.replaced")
    commits.calls = 0

    def overwrite_first(call: int) -> None:
        if call == 1:
            others.delete("id == 2")

    commits.before = overwrite_first
    done = replace_files(table, [merged, other])
    assert (done.committed, list(done.conflicts)) == (("task-2",), ["task-1"])
    assert rows_of(table) == [(0, "JFK"), (1, "JFK"), (3, "JFK"), (10, "JFK"), (11, "JFK")]
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.additional_properties["arctic.compaction.tasks"] == "task-2"
    # The first one may be planned and made again.
    again = renamed(merge(table, plan(table)), "task-3")
    assert replace_files(table, [again]).committed == ("task-3",)
