"""Replacements that were made are recognised by their files when their snapshot has expired.

Who takes one for a conflict plans again, and removes its outputs from under those who read them.
"""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.lake import manifests
from arctic_orchestration.lake.replacing import table_head
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration_tests.lake.reference_merge import (
    add,
    arrow,
    merge,
    new_table,
    paths,
    plan,
    rows_of,
)

ROWS = [(number, "JFK") for number in range(4)]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


@pytest.fixture
def inputs(table: Table) -> list[str]:
    return [add(table, row) for row in ROWS]


@pytest.fixture
def merged(table: Table, inputs: list[str]) -> Replacement:
    """Four files of one row, and two that have two each."""
    return merge(table, plan(table, inputs), outputs=2)


def expire(table: Table, snapshot_id: int | None) -> None:
    assert snapshot_id is not None
    with table.refresh().maintenance.expire_snapshots() as expired:
        expired.by_id(snapshot_id)


def head(table: Table) -> int:
    found = table.refresh().metadata.current_snapshot_id
    assert found is not None
    return found


def test_what_only_a_tag_has_is_recognised_though_the_plan_is_there(
    table: Table, merged: Replacement
) -> None:
    """Tagged, then overwritten; its own snapshot has expired, the planned one has not."""
    first = replace_files(table, [merged])
    add(table, (9, "JFK"))
    tagged = head(table)
    table.manage_snapshots().create_tag(tagged, "month").commit()
    table.refresh().overwrite(arrow([(5, "JFK")]))
    expire(table, first.snapshot_id)
    assert table.snapshot_by_id(merged.group.snapshot_id) is not None
    assert replace_files(table, [merged]).already == {"task-1": first.snapshot_id}
    assert rows_of(table, tagged) == [*ROWS, (9, "JFK")]


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("expired", [False, True], ids=["planned snapshot kept", "expired"])
def test_one_output_that_is_left_is_enough(
    table: Table, merged: Replacement, expired: bool, number: int
) -> None:
    """The other one was overwritten, and no snapshot has both any more."""
    first = replace_files(table, [merged])
    table.refresh().delete(f"id == {number}")
    assert len(set(paths(table)) & set(merged.outputs)) == 1
    expire(table, first.snapshot_id)
    if expired:
        expire(table, merged.group.snapshot_id)
    assert replace_files(table, [merged]).already == {"task-1": first.snapshot_id}
    assert rows_of(table.refresh()) == [row for row in ROWS if row[0] != number]


def test_what_was_never_made_is_a_conflict_when_its_files_are_overwritten(
    table: Table, merged: Replacement
) -> None:
    """All inputs are gone, no snapshot has an output: the history does not contain it."""
    table.overwrite(arrow([(5, "JFK")]))
    assert list(replace_files(table, [merged]).conflicts) == ["task-1"]


def test_the_history_is_looked_through_once_and_only_what_came_after_the_plan(
    table: Table, merged: Replacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replacements are lost, a third one is tried again; four snapshots are from before."""
    more = [add(table, (10 + number, "JFK")) for number in range(4)]
    lost = merge(table, plan(table, more[:2]), name="task-2")
    third = merge(table, plan(table, more[2:]), name="task-3")
    old = {one.manifest_list for one in table.snapshots()[:4]}
    table.refresh().delete("id < 12")
    others = table.catalog.load_table("lake.replaced")
    read: list[str] = []
    original = manifests.snapshot_manifests

    def counted(io, snapshot):  # type: ignore[no-untyped-def]
        read.append(snapshot.manifest_list)
        return original(io, snapshot)

    monkeypatch.setattr(table_head, "snapshot_manifests", counted)
    sent: list[int] = []

    def append_first() -> None:
        sent.append(1)
        if len(sent) == 1:
            others.refresh().append(arrow([(99, "JFK")]))

    done = replace_files(table, [merged, lost, third], before_commit=append_first)
    assert (done.committed, sorted(done.conflicts)) == (("task-3",), ["task-1", "task-2"])
    assert len(sent) == 2
    assert not old & set(read)
    # The four appends after the plan and the delete, which is the head too; then the next head.
    assert len(set(read)) == 5 + 1
    assert len(read) == 5 + 1 + 1


def test_a_history_that_cannot_be_read_leaves_that_one_open(
    table: Table, merged: Replacement
) -> None:
    """It may be in the snapshot whose list is lost. The other replacement is committed."""
    table.overwrite(arrow([(5, "JFK")]))
    between = table.refresh().current_snapshot()
    more = [add(table, (10 + number, "JFK")) for number in range(2)]
    other = merge(table, plan(table, more), name="task-2")
    assert between is not None
    Path(between.manifest_list).unlink()
    done = replace_files(table, [merged, other])
    assert (done.committed, done.conflicts, done.wrong) == (("task-2",), {}, {})
    assert list(done.unreadable) == ["task-1"]
    assert between.manifest_list in done.unreadable["task-1"]
    assert rows_of(table) == [(5, "JFK"), (10, "JFK"), (11, "JFK")]
