"""A catalog that goes away while a table is tidied up is asked again, and then it is said."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.errors import CatalogUnavailable, LakeError
from arctic_orchestration.lake import catalog_answers, ensure_table
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots, remove_orphans

SCHEMA = Schema(NestedField(1, "id", LongType()))
LATER = datetime.now(UTC) + timedelta(days=1)


def expire(table: Table) -> int:
    return len(expire_snapshots(table, older_than=LATER, keep_last=1).snapshot_ids)


def orphans(table: Table) -> int:
    return len(remove_orphans(table, older_than=LATER, any_age=True).files)


@pytest.fixture
def table(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Table:
    """With one snapshot that can expire, and one file that nobody knows."""
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)
    made = ensure_table(catalog, "lake.flights", SCHEMA)
    for number in range(2):
        made.append(pa.table({"id": [number]}, schema=SCHEMA.as_arrow()))
    (Path(made.location()) / "data" / "lost.parquet").write_bytes(b"x")
    return made


def failing(
    monkeypatch: pytest.MonkeyPatch,
    catalog: Catalog,
    name: str,
    errors: list[Exception],
    *,
    after: int,
) -> None:
    """After so many answers, the catalog raises the errors one after the other."""
    method: Callable[..., object] = getattr(catalog, name)
    left = [after]

    def answer(*arguments: object) -> object:
        if left[0] == 0 and errors:
            raise errors.pop(0)
        left[0] = max(0, left[0] - 1)
        return method(*arguments)

    monkeypatch.setattr(catalog, name, answer)


DOWN = ConnectionError("connection refused")
#: what is done, which question is not answered, and how many of its kind are before
each_question = pytest.mark.parametrize(
    ("tidy", "question", "after"),
    [
        (expire, "load_table", 0),
        (orphans, "load_table", 0),
        (orphans, "list_namespaces", 0),
        (orphans, "list_tables", 0),
        (orphans, "load_table", 1),
        (orphans, "load_table", 2),
    ],
)


@each_question
def test_a_catalog_that_stays_away_is_named_and_nothing_is_changed(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    tidy: Callable[[Table], int],
    question: str,
    after: int,
) -> None:
    """One error that every command can tell; what it would have removed is still there."""
    errors: list[Exception] = [DOWN] * 5
    with monkeypatch.context() as patched:
        failing(patched, table.catalog, question, errors, after=after)
        with pytest.raises(CatalogUnavailable, match="tried 5 times: connection refused"):
            tidy(table)
    assert errors == []
    assert tidy(table) == 1


@each_question
def test_a_catalog_that_comes_back_is_all_that_is_needed(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    tidy: Callable[[Table], int],
    question: str,
    after: int,
) -> None:
    errors: list[Exception] = [DOWN] * 4
    failing(monkeypatch, table.catalog, question, errors, after=after)
    assert tidy(table) == 1
    assert errors == []


@pytest.mark.parametrize("tidy", [expire, orphans])
def test_a_table_that_is_dropped_meanwhile_is_reported(
    table: Table, monkeypatch: pytest.MonkeyPatch, tidy: Callable[[Table], int]
) -> None:
    gone: list[Exception] = [NoSuchTableError("Table does not exist: lake.flights")]
    failing(monkeypatch, table.catalog, "load_table", gone, after=0)
    with pytest.raises(LakeError, match=r"lake\.flights: the table was dropped meanwhile"):
        tidy(table)


@pytest.mark.parametrize("tidy", [expire, orphans])
def test_metadata_that_cannot_be_read_is_reported_at_once(
    table: Table, monkeypatch: pytest.MonkeyPatch, tidy: Callable[[Table], int]
) -> None:
    """A file that is gone does not come back by asking again."""
    lost: list[Exception] = [FileNotFoundError("00002.metadata.json")]
    failing(monkeypatch, table.catalog, "load_table", lost, after=0)
    with pytest.raises(LakeError, match=r"lake\.flights: its metadata cannot be read: 00002"):
        tidy(table)
