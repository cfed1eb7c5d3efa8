"""What other writers do between the plan of a merge and its commit."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.types import StringType

from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration_tests.lake.delete_writer import (
    Scope,
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.reference_merge import (
    BY_ORIGIN,
    SCHEMA,
    add,
    arrow,
    merge,
    new_table,
    paths,
    plan,
    rows_by_the_rules,
    rows_of,
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog, spec=BY_ORIGIN)


@pytest.fixture
def files(table: Table) -> list[str]:
    """Three files of JFK with two rows each, and one of LGA."""
    jfk = [add(table, (number, "JFK"), (number + 10, "JFK")) for number in range(3)]
    return [*jfk, add(table, (50, "LGA"), (51, "LGA"))]


def refused(table: Table, merged: Replacement) -> str:
    """Commits, and returns why it was a conflict; nothing may have changed."""
    before = table.refresh().metadata.current_snapshot_id
    done = replace_files(table, [merged])
    assert (done.snapshot_id, done.committed, done.wrong, done.already) == (None, (), {}, {})
    assert table.refresh().metadata.current_snapshot_id == before
    return done.conflicts[merged.id]


def test_appends_are_no_conflict(table: Table, files: list[str]) -> None:
    """Rows of the same partition, and of another, that came after the plan."""
    merged = merge(table, plan(table, files[:3]))
    add(table, (100, "JFK"))
    add(table, (101, "LGA"))
    before = rows_of(table)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == before


@pytest.mark.parametrize("scope", list(Scope))
def test_a_later_position_delete_of_an_input_is_a_conflict(
    table: Table, files: list[str], scope: Scope
) -> None:
    """Also when appends come after it. The deleted row stays deleted."""
    merged = merge(table, plan(table, files[:3]))
    (delete,) = add_position_deletes(table, {files[1]: [0]}, scope=scope)
    add(table, (100, "JFK"))
    before = rows_of(table)
    assert (1, "JFK") not in before
    assert refused(table, merged) == f"rows of {files[1]} were deleted later, by {delete.path}"
    assert rows_of(table) == before


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("form", ["file://", "file:", "file://localhost"])
def test_a_later_position_delete_may_name_an_input_in_another_form(
    table: Table, files: list[str], scope: Scope, form: str
) -> None:
    """Iceberg's readers do not take the row away, others may: the files stay as they are."""
    merged = merge(table, plan(table, files[:3]))
    (delete,) = add_position_deletes(table, {files[1]: [0]}, scope=scope, form=form.__add__)
    assert refused(table, merged) == f"rows of {files[1]} were deleted later, by {delete.path}"


@pytest.mark.parametrize("scope", list(Scope))
def test_a_later_position_delete_of_another_file_is_none(
    table: Table, files: list[str], scope: Scope
) -> None:
    """Files 0 and 2 are merged, rows of file 1 and of another partition are deleted.

    The bounds of a delete file say too little, for file 1's path may lie between the others'; then
    the paths in it are read.
    """
    merged = merge(table, plan(table, [files[0], files[2]]))
    add_position_deletes(table, {files[1]: [0], files[3]: [1]}, scope=scope)
    before = rows_of(table)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == before == [
        (0, "JFK"), (2, "JFK"), (10, "JFK"), (11, "JFK"), (12, "JFK"), (50, "LGA")
    ]  # fmt: skip


def test_a_later_equality_delete_is_no_conflict_and_applies_to_the_outputs(
    table: Table, files: list[str]
) -> None:
    """The outputs are as old as the plan, so the delete is younger than they are."""
    merged = merge(table, plan(table, files[:3]))
    add_equality_deletes(table, pa.table({"id": [1, 12]}), ["id"], partition=("JFK",))
    add(table, (1, "JFK"))
    before = rows_by_the_rules(table)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_by_the_rules(table) == before
    # The 1 that was appended after the delete is there, the other one is not.
    assert [row for row in before if row[0] in (1, 12)] == [(1, "JFK")]


def test_an_input_that_is_gone_is_a_conflict(table: Table, files: list[str]) -> None:
    """The partition was overwritten; its old rows do not come back."""
    merged = merge(table, plan(table, files[:3]))
    table.overwrite(arrow([(7, "JFK")]), overwrite_filter="origin == 'JFK'")
    assert refused(table, merged) == f"{merged.group.files[0].path} is no longer in the table"
    assert rows_of(table) == [(7, "JFK"), (50, "LGA"), (51, "LGA")]


def test_only_the_conflicting_replacement_is_dropped(table: Table, files: list[str]) -> None:
    """Of two, one had a row deleted; the other is committed."""
    first = merge(table, plan(table, files[:2]), name="first")
    second = merge(table, plan(table, [files[2]]), name="second")
    add_position_deletes(table, {files[0]: [1]})
    before = rows_of(table)
    done = replace_files(table, [first, second])
    assert done.committed == ("second",)
    assert list(done.conflicts) == ["first"]
    assert rows_of(table) == before


def test_of_two_that_share_an_input_the_second_is_dropped(table: Table, files: list[str]) -> None:
    """In one call, and in two."""
    first = merge(table, plan(table, files[:2]), name="first")
    second = merge(table, plan(table, files[1:3]), name="second")
    before = rows_of(table)
    done = replace_files(table, [first, second])
    assert done.committed == ("first",)
    expected = f"{files[1]} is replaced by another replacement of the same commit"
    assert done.conflicts == {"second": expected}
    assert refused(table, second) == f"{files[1]} is no longer in the table"
    assert rows_of(table) == before


def test_plans_of_different_ages_are_committed_together(table: Table, files: list[str]) -> None:
    """Each is validated from its own snapshot: the older plan did not see the delete."""
    old = merge(table, plan(table, files[:1]), name="old")
    add_position_deletes(table, {files[0]: [0], files[1]: [0]})
    new = merge(table, plan(table, files[1:3]), name="new")
    before = rows_of(table)
    done = replace_files(table, [old, new])
    assert (done.committed, list(done.conflicts)) == (("new",), ["old"])
    assert rows_of(table) == before


def rollback(table: Table, snapshot_id: int) -> None:
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(snapshot_id)


def test_after_a_rollback_before_a_delete_the_rows_are_not_lost(
    table: Table, files: list[str]
) -> None:
    """The merge applied a delete that the rollback took back; its outputs lack a live row."""
    earlier = table.refresh().metadata.current_snapshot_id
    assert earlier is not None
    (delete,) = add_position_deletes(table, {files[0]: [0]})
    merged = merge(table, plan(table, files[:3]))
    rollback(table, earlier)
    expected = f"{delete.path}, which deletes rows of {files[0]}, is no longer in the table"
    assert refused(table, merged) == expected
    assert (0, "JFK") in rows_of(table)


def test_after_a_rollback_of_appends_alone_the_merge_goes_on(
    table: Table, files: list[str]
) -> None:
    """The inputs are there and no delete differs: the planned snapshot need not be an ancestor."""
    earlier = table.refresh().metadata.current_snapshot_id
    assert earlier is not None
    add(table, (100, "LGA"))
    merged = merge(table, plan(table, files[:3]))
    rollback(table, earlier)
    before = rows_of(table)
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_of(table) == before


def test_a_delete_of_another_branch_that_became_main_is_a_conflict(
    table: Table, files: list[str]
) -> None:
    """It is older than the plan by its number, and the merge did not know it."""
    base = table.refresh().metadata.current_snapshot_id
    assert base is not None
    with table.manage_snapshots() as manage:
        manage.create_branch(base, "side")
    (delete,) = add_position_deletes(table, {files[0]: [0]}, branch="side")
    add(table, (100, "LGA"))
    merged = merge(table, plan(table, files[:3]))
    assert merged.group.sequence_number > delete.sequence_number
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(ref_name="side")
    before = rows_of(table)
    assert refused(table, merged) == (
        f"{delete.path} deletes rows of {files[0]} and was not planned with"
    )
    assert rows_of(table) == before


@pytest.mark.parametrize("deleted", [False, True])
def test_when_the_planned_snapshot_expired_the_deletes_are_compared(
    table: Table, files: list[str], deleted: bool
) -> None:
    """Known deletes and newer equality deletes are no conflict, a new position delete is."""
    add_position_deletes(table, {files[0]: [0]})
    merged = merge(table, plan(table, files[:3]))
    add_equality_deletes(table, pa.table({"id": [1]}), ["id"], partition=("JFK",))
    if deleted:
        add_position_deletes(table, {files[1]: [1]})
    add(table, (100, "LGA"))
    before = rows_by_the_rules(table)
    with table.maintenance.expire_snapshots() as expire:
        expire.by_id(merged.group.snapshot_id)
    if deleted:
        assert "was not planned with" in refused(table, merged)
    else:
        assert replace_files(table, [merged]).committed == ("task-1",)
    assert rows_by_the_rules(table) == before


def test_a_table_that_was_made_again_is_a_conflict(
    catalog: Catalog, table: Table, files: list[str]
) -> None:
    """The same name, other files; and no table at all."""
    merged = merge(table, plan(table, files[:3]))
    catalog.drop_table("lake.replaced")
    assert replace_files(table, [merged]).conflicts == {"task-1": "the table was dropped"}
    again = ensure_table(catalog, "lake.replaced", SCHEMA, partition_spec=BY_ORIGIN)
    add(again, (1, "JFK"))
    done = replace_files(table, [merged])
    assert done.conflicts == {"task-1": "the table was dropped and made again"}
    # Also for a process that loaded the new one.
    assert refused(again, merged) == f"{merged.group.files[0].path} is no longer in the table"


def rename(table: Table) -> None:
    with table.update_schema() as schema:
        schema.rename_column("id", "number")


def drop(table: Table) -> None:
    with table.update_schema() as schema:
        schema.delete_column("id")


def add_column(table: Table) -> None:
    with table.update_schema() as schema:
        schema.add_column("note", StringType())


@pytest.mark.parametrize("change", [rename, drop, add_column])
def test_columns_that_change_after_the_merge_are_no_conflict(
    table: Table, files: list[str], change: Callable[[Table], None]
) -> None:
    """Columns are found by id: the scan is the same with the inputs and with the outputs."""
    merged = merge(table, plan(table, files[:3]))
    change(table)

    def scan() -> list[str]:
        return sorted(str(row) for row in table.refresh().scan().to_arrow().to_pylist())

    before = scan()
    assert replace_files(table, [merged]).committed == ("task-1",)
    assert scan() == before


def test_a_column_that_was_brought_back_is_a_conflict(table: Table, files: list[str]) -> None:
    """It was dropped when the merge was made, so its values are in the inputs only."""
    with table.update_schema() as schema:
        schema.add_column("note", StringType())
    rows = pa.table({"id": [7], "origin": ["JFK"], "note": ["seven"]})
    table.append(rows)
    (noted,) = set(paths(table)) - set(files)
    # Made without the column.
    merged = merge(table, plan(table, [noted]))
    assert refused(table, merged) == (
        f"the columns were changed: {noted} holds note, and an output does not"
    )
    # As long as the column is dropped, nobody misses it.
    table._do_commit((SetCurrentSchemaUpdate(schema_id=0),), ())
    assert replace_files(table, [merged]).committed == ("task-1",)


def test_the_same_file_added_again_is_not_the_input(table: Table, files: list[str]) -> None:
    """Its rows may be younger than deletes that were applied to the old ones."""
    merged = merge(table, plan(table, files[:1]))
    table.delete("origin == 'JFK'")
    entry = merged.group.files[0]

    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        added.append_data_file(describe(table, entry.path, spec_id=0, partition=["JFK"]))
    before = rows_of(table.refresh())
    assert refused(table, merged) == f"{entry.path} is no longer in the table"
    assert rows_of(table) == before
