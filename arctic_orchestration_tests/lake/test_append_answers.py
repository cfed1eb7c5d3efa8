"""Appends whose commit is not answered, is refused, or must not be made."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.errors import (
    CommitConflict,
    CommitUnknown,
    LeaseLost,
    UnsupportedTable,
)
from arctic_orchestration.lake import append, ensure_table
from arctic_orchestration.lake.table_writer import APPEND_ID
from arctic_orchestration_tests.lake.appended_rows import (
    BY_ORIGIN,
    SCHEMA,
    files_in,
    ids,
    live_files,
    rows,
)
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.failing_commits import Catalogue
from arctic_orchestration_tests.lake.row_filters import EqualTo


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return ensure_table(catalog, "lake.flights", SCHEMA, partition_spec=BY_ORIGIN)


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch, table: Table) -> Catalogue:
    return Catalogue(monkeypatch, table)


def test_a_commit_whose_answer_is_lost_is_there_once(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """The catalog took it and the connection broke: the snapshot is found, not made again."""
    catalogue.answers = [catalogue.take_and_lose_the_answer]
    appended = append(spark, rows(spark, (1, "JFK", 0.0)), table)
    assert ids(table) == [1]
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [appended.snapshot_id]
    assert appended.written


def test_a_catalog_that_restarts_is_asked_again(
    spark: SparkSession, table: Table, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the append, and right after it took the commit: whether it did is found out."""
    load, silent = table.catalog.load_table, ["it restarts"] * 2

    def restarting(*arguments: Any) -> Table:
        if silent:
            raise ConnectionError(silent.pop())
        return load(*arguments)

    def take_and_restart(*arguments: Any) -> Any:
        silent.extend(["it restarts"] * 2)
        return catalogue.take_and_lose_the_answer(*arguments)

    monkeypatch.setattr(table.catalog, "load_table", restarting)
    catalogue.answers = [take_and_restart]
    appended = append(spark, rows(spark, (1, "JFK", 0.0)), table)
    assert (ids(table), silent) == ([1], [])
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [appended.snapshot_id]


def test_lost_questions_and_refusals_are_tried_again(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """Two questions that never arrived and two refusals, then a commit: one copy, no litter."""
    lost, refuse = catalogue.lose_the_question, catalogue.refuse
    catalogue.answers = [lost, refuse, lost, refuse]
    append(spark, rows(spark, (1, "JFK", 0.0)), table)
    assert ids(table) == [1]
    assert files_in(table) == live_files(table)


def test_rows_that_another_writer_deletes_meanwhile_do_not_come_back(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """The delete is committed between two attempts, for a file that the first one has rewritten."""
    append(spark, rows(spark, (1, "JFK", 0.0), (2, "JFK", 0.0), (3, "JFK", 0.0)).coalesce(1), table)
    (path,) = live_files(table)
    other = table.catalog.load_table(table.name())

    def delete_the_first_row(*arguments: Any) -> Any:
        add_position_deletes(other, {path: [0]})
        return catalogue.refuse(*arguments)

    catalogue.answers = [delete_the_first_row]
    with pytest.raises(UnsupportedTable, match="which are not applied"):
        append(spark, rows(spark, (4, "JFK", 0.0)), table, replacing=EqualTo("id", 2))
    assert ids(table) == [2, 3]
    assert live_files(table) == {path}


def test_a_commit_that_stays_unknown_keeps_its_files(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """Nobody knows what became of it, so the files must not be taken away from it."""
    catalogue.answers = [catalogue.lose_the_question] * 5
    with pytest.raises(CommitUnknown, match=APPEND_ID):
        append(spark, rows(spark, (1, "JFK", 0.0)), table)
    assert len(files_in(table)) == 1


def test_an_append_that_cannot_commit_leaves_no_files(
    spark: SparkSession, table: Table, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused every time: a conflict, nothing committed, data and manifests removed."""
    monkeypatch.setattr("arctic_orchestration.lake.table_writer._ATTEMPTS", 3)
    catalogue.answers = [catalogue.refuse] * 3
    with pytest.raises(CommitConflict, match="other writers were first 3 times"):
        append(spark, rows(spark, (1, "JFK", 0.0)), table)
    assert files_in(table) == set()
    assert not list(Path(table.location()).rglob("*.avro"))


def test_who_may_not_commit_any_more_commits_nothing(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """Asked when the rows are written, and again before the next attempt; no files are left."""
    written: list[int] = []

    def lost_at_the_second_time() -> None:
        written.append(len(files_in(table)))
        if len(written) == 2:
            raise LeaseLost("somebody else has it")

    catalogue.answers = [catalogue.refuse]
    with pytest.raises(LeaseLost, match="somebody else has it"):
        append(spark, rows(spark, (1, "JFK", 0.0)), table, before_commit=lost_at_the_second_time)
    assert written == [1, 1]
    assert (ids(table), files_in(table)) == ([], set())
    append(spark, rows(spark, (1, "JFK", 0.0)), table, before_commit=lambda: None)
    assert ids(table) == [1]


def test_what_forbids_a_commit_is_not_taken_for_another_writer(
    spark: SparkSession, table: Table
) -> None:
    """Who asks may commit to another table, and be refused there: asked again, it would pass."""
    answers = [CommitFailedException("of another table")]

    def check_lease() -> None:
        if answers:
            raise answers.pop()

    with pytest.raises(CommitFailedException, match="of another table"):
        append(spark, rows(spark, (1, "JFK", 0.0)), table, before_commit=check_lease)
    assert (ids(table), files_in(table)) == ([], set())


def test_what_forbids_a_commit_is_not_taken_for_a_lost_answer(
    spark: SparkSession, table: Table, catalogue: Catalogue
) -> None:
    """The commit before it may have landed, for all that is known: its files stay."""
    answers: list[str] = []

    def once() -> None:
        answers.append("asked")
        if len(answers) == 2:
            raise LeaseLost("somebody else has it")

    catalogue.answers = [catalogue.lose_the_question]
    with pytest.raises(LeaseLost):
        append(spark, rows(spark, (1, "JFK", 0.0)), table, before_commit=once)
    assert answers == ["asked", "asked"]
    assert len(files_in(table)) == 1
