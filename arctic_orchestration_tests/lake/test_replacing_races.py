"""Other processes write between the plan of a merge and its commit: no row is lost or comes back.

``ARCTIC_PROOF=full`` tries each of 24 orders five times, by default six of them once, and has four
writers write for longer, by default two.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.manifests import live_entries
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.racing_writer import (
    NO_RETRIES,
    RacingWriter,
    left_by_mixed,
    racing_writers,
)
from arctic_orchestration_tests.lake.reference_merge import (
    Row,
    add,
    merge,
    new_table,
    paths,
    plan,
    rows_by_the_rules,
    rows_of,
)

FULL = os.environ.get("ARCTIC_PROOF") == "full"
#: Every order some times, or every fourth one once.
ROUNDS, STEP = (5, 1) if FULL else (1, 4)
WRITERS, TIMES = (4, 25) if FULL else (2, 2)

#: What the three writers do to the rows 0 to 5, and what is left of them and added.
CHANGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "append": ("append", ([(100, "JFK"), (101, "JFK")],)),
    "overwrite": ("overwrite", (4, [(40, "JFK")])),
    "delete": ("delete", (1,)),
}
LEFT = [(number, "JFK") for number in (0, 2, 3, 5, 40, 100, 101)]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog, properties=NO_RETRIES)


@pytest.fixture
def writers(table: Table, settings: Settings) -> Iterator[dict[str, RacingWriter]]:
    """A process for each kind of change."""
    with racing_writers(settings.lake, "lake.replaced", len(CHANGES)) as started:
        yield dict(zip(CHANGES, started, strict=True))


def fill(table: Table) -> tuple[list[str], list[str]]:
    """Rows 0 to 3 in two files, 4 and 5 in two others."""
    table.refresh().delete("id >= 0")
    first = [add(table, (0, "JFK"), (1, "JFK")), add(table, (2, "JFK"), (3, "JFK"))]
    return first, [add(table, (4, "JFK")), add(table, (5, "JFK"))]


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_in_every_order_nothing_is_lost_and_nothing_comes_back(
    table: Table, writers: dict[str, RacingWriter]
) -> None:
    """Append, overwrite, position delete and commit, by four processes, in all 24 orders.

    The merge of the file with the deleted row conflicts if the delete is first, that of the file
    that is overwritten if the overwrite is.
    """
    orders = list(itertools.permutations([*CHANGES, "commit"]))
    assert len(orders) == 24
    for number, order in enumerate(orders[::STEP] * ROUNDS):
        first, second = fill(table)
        deleted = merge(table, plan(table, first), name=f"deleted-{number}")
        overwritten = merge(table, plan(table, second), name=f"overwritten-{number}")
        committed = order.index("commit")
        for step in order:
            if step == "commit":
                done = replace_files(table, [deleted, overwritten])
                assert (deleted.id in done.conflicts) == (order.index("delete") < committed)
                assert (overwritten.id in done.conflicts) == (order.index("overwrite") < committed)
                assert len(done.committed) + len(done.conflicts) == 2
            else:
                what, arguments = CHANGES[step]
                writers[step].does(what, *arguments)
        assert rows_of(table.refresh()) == LEFT, order
        assert rows_by_the_rules(table) == LEFT, order


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_equality_deletes_in_every_order(table: Table, writers: dict[str, RacingWriter]) -> None:
    """Row 1 is deleted by its value, appended again and row 2 deleted by position: 24 orders."""
    kinds = ("delete_by_value", "append", "delete", "commit")
    one, other, third = writers.values()
    for number, order in enumerate(list(itertools.permutations(kinds))[::STEP] * ROUNDS):
        table.catalog.drop_table("lake.replaced")
        table = new_table(table.catalog, properties=NO_RETRIES)
        files = [add(table, (0, "JFK"), (1, "JFK")), add(table, (2, "JFK"), (3, "JFK"))]
        merged = merge(table, plan(table, files), name=f"task-{number}")
        for step in order:
            match step:
                case "commit":
                    done = replace_files(table, [merged])
                    conflict = order.index("delete") < order.index("commit")
                    assert (merged.id in done.conflicts) == conflict
                case "append":
                    one.does("append", [(1, "JFK")])
                case "delete_by_value":
                    other.does("delete_by_value", 1)
                case _:
                    third.does("delete", 2)
        # What was appended before the delete by value is gone with it.
        again = order.index("append") > order.index("delete_by_value")
        expected = [(0, "JFK"), *([(1, "JFK")] if again else []), (3, "JFK")]
        assert rows_by_the_rules(table) == expected, order


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_merges_among_writers_that_never_wait(table: Table, settings: Settings) -> None:
    """Writers append, delete and overwrite as fast as they can, while files are merged again.

    Each merge is of the four oldest files when it was planned; some conflict, some are committed.
    """
    add(table, (0, "JFK"))
    with racing_writers(settings.lake, "lake.replaced", WRITERS) as writers:
        for who, writer in enumerate(writers):
            writer.begins("mixed", who + 1, TIMES)
        committed = conflicts = 0
        for number in itertools.count():
            if all(writer.has_answered() for writer in writers):
                break
            group = oldest(table, 4)
            if len(group.files) < 4:
                # A merge of fewer would only be in the writers' way.
                continue
            done = replace_files(table, [merge(table, group, name=f"task-{number}")])
            assert done.wrong == {}
            committed += len(done.committed)
            conflicts += len(done.conflicts)
        for writer in writers:
            writer.ends()
    while len(paths(table)) > 1:
        merged = merge(table, plan(table), name=f"last-{len(paths(table))}")
        assert replace_files(table, [merged]).conflicts == {}
    expected = [(0, "JFK")]
    for who in range(WRITERS):
        expected += left_by_mixed(who + 1, TIMES)
    assert rows_of(table.refresh()) == sorted(expected)
    assert committed > 0
    if FULL:
        assert conflicts > 0


def oldest(table: Table, count: int) -> FileGroup:
    """A plan of those files that have been there longest."""
    group = plan(table)
    ages = sorted(group.files, key=lambda file: file.sequence_number)
    # Not planned again: a file may be gone by now.
    return replace(group, files=tuple(ages[:count]))


def stock_overwrite(
    table: Table, merged: Replacement, between: Callable[[], None]
) -> list[DataFile]:
    """Replaces the files with pyiceberg's own producer, from the head that was planned from."""
    group = merged.group
    inputs = live_entries(table, group.snapshot_id, {file.path for file in group.files})
    outputs = [describe(table, path, spec_id=0, partition=()) for path in merged.outputs]
    with table.transaction() as transaction:
        with transaction.update_snapshot().overwrite() as producer:
            for entry in inputs.values():
                producer.delete_data_file(entry.data_file)
            for output in outputs:
                producer.append_data_file(output)
        between()
    return outputs


@pytest.mark.parametrize("ours", [True, False], ids=["replace_files", "pyiceberg's overwrite"])
def test_the_control_brings_a_deleted_row_back(
    catalog: Catalog, settings: Settings, ours: bool
) -> None:
    """Plan, position delete, append, commit: pyiceberg's own producer does not notice the delete.

    When this fails for pyiceberg, it has learned it: then think about using its producer.
    """
    # By default pyiceberg takes any append for a conflict: nothing could ever be merged.
    table = new_table(catalog, properties={"write.delete.isolation-level": "snapshot"})
    files = [add(table, (0, "JFK"), (1, "JFK")), add(table, (2, "JFK"))]
    merged = merge(table, plan(table, files))
    with racing_writers(settings.lake, "lake.replaced", 1) as (writer,):

        def between() -> None:
            writer.does("delete", 1)
            writer.does("append", [(9, "JFK")])

        if ours:
            between()
            assert list(replace_files(table, [merged]).conflicts) == ["task-1"]
        else:
            stock_overwrite(table, merged, between)
    expected = [(0, "JFK"), (2, "JFK"), (9, "JFK")]
    found: list[Row] = rows_of(table.refresh())
    assert found == (expected if ours else [(0, "JFK"), (1, "JFK"), (2, "JFK"), (9, "JFK")])
