"""Tables that writers write to while they are compacted, and what must be in them.

Each table has a writer, a process of its own, and a model: rows by their ids, changed as the writer
is asked to change the table. A writer does one thing after the other, and tries again what another
one's commit got in the way of; so the model is what any reader must find, whoever else writes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import Table

from arctic_orchestration_tests.lake.racing_writer import NO_RETRIES, RacingWriter, racing_writers
from arctic_orchestration_tests.lake.reference_merge import (
    BY_ORIGIN,
    Row,
    new_table,
    rows_by_the_rules,
    rows_of,
)

_PREFIX = "arctic.compaction."
#: Everything is merged as soon as there are three files of a partition, and as often as it comes.
EAGER = {
    **NO_RETRIES,
    f"{_PREFIX}target-size": "1MiB",
    f"{_PREFIX}minor.min-files": "3",
    f"{_PREFIX}minor.interval": "never",
    f"{_PREFIX}major.min-files": "8",
    f"{_PREFIX}major.interval": "never",
    f"{_PREFIX}major.delete-files": "3",
    f"{_PREFIX}check-interval": "200ms",
    f"{_PREFIX}commit-interval": "0s",
    f"{_PREFIX}retry-interval": "100ms",
    # A task whose workers are killed again and again is not to blame.
    f"{_PREFIX}attempts": "100",
}


class WrittenTable(ABC):
    """A table, its writer and its model."""

    name: str
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    #: pyiceberg refuses to read a table with equality deletes
    read_by_pyiceberg = True

    def __init__(self, catalog: Catalog) -> None:
        self.table = new_table(catalog, self.name, spec=self.spec, properties=EAGER)
        self.rows: dict[int, Row] = {}
        self._next_id = 0
        self._writer: RacingWriter | None = None
        self._under_way = 0
        #: a snapshot from before any compaction, and its rows
        self.early: tuple[int, list[Row]] | None = None

    def is_written_by(self, writer: RacingWriter) -> None:
        self._writer = writer

    @abstractmethod
    def write(self) -> None:
        """Begins some changes; the model has them at once."""

    def is_written(self) -> bool:
        """Whether all changes are in the table."""
        assert self._writer is not None
        while self._under_way and self._writer.has_answered():
            self._writer.ends()
            self._under_way -= 1
        return not self._under_way

    def ends(self) -> None:
        """Waits until they are."""
        assert self._writer is not None
        for _ in range(self._under_way):
            self._writer.ends()
        self._under_way = 0

    def keep_early(self) -> None:
        """Remembers the table as it is now, before it is compacted."""
        snapshot = self.table.refresh().current_snapshot()
        assert snapshot is not None
        self.early = snapshot.snapshot_id, self.expected()

    def expected(self) -> list[Row]:
        return sorted(self.rows.values())

    def found(self) -> list[Row]:
        """What a reader of the table finds now."""
        table: Table = self.table.refresh()
        return rows_of(table) if self.read_by_pyiceberg else rows_by_the_rules(table)

    def _append(self, *origins: str) -> list[int]:
        """New rows, each a file of its own."""
        rows = []
        for origin in origins:
            rows.append((self._next_id, origin))
            self._next_id += 1
        self._append_rows(rows)
        return [row[0] for row in rows]

    def _append_rows(self, rows: Sequence[Row]) -> None:
        self._begins("append", list(rows))
        self.rows |= {row[0]: row for row in rows}

    def _delete(self, number: int) -> None:
        self._begins("delete", number)
        del self.rows[number]

    def _delete_by_value(self, number: int) -> None:
        self._begins("delete_by_value", number)
        self.rows.pop(number, None)

    def _overwrite(self, number: int) -> None:
        """The row gets another id, in the same partition."""
        row = (self._next_id, self.rows.pop(number)[1])
        self._next_id += 1
        self.rows[row[0]] = row
        self._begins("overwrite", number, [row])

    def _begins(self, what: str, *arguments: object) -> None:
        assert self._writer is not None
        self._writer.begins(what, *arguments)
        self._under_way += 1


class Appended(WrittenTable):
    """Only appended to."""

    name = "lake.appended"

    def write(self) -> None:
        self._append("JFK", "LGA", "EWR")


class Partitioned(WrittenTable):
    """Of a partition for each origin: appends, position deletes and overwrites."""

    name = "lake.partitioned"
    spec = BY_ORIGIN

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._older: list[int] = []

    def write(self) -> None:
        if self._older:
            gone, moved, *_ = self._older
            self._delete(gone)
            self._overwrite(moved)
        self._older = self._append("JFK", "JFK", "JFK", "LGA")


class Deleted(WrittenTable):
    """Deleted from by position and by value, and what was deleted by value comes again."""

    name = "lake.deleted"
    read_by_pyiceberg = False

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._older: list[int] = []

    def write(self) -> None:
        if self._older:
            again, gone, by_value = self._older
            self._delete_by_value(again)
            self._append_rows([(again, "ewr")])
            self._delete(gone)
            self._delete_by_value(by_value)
        self._older = self._append("JFK", "LGA", "EWR")


KINDS: tuple[type[WrittenTable], ...] = (Appended, Partitioned, Deleted)


@contextmanager
def written_tables(
    catalog: Catalog, lake: Path, kinds: Sequence[type[WrittenTable]] = KINDS
) -> Iterator[list[WrittenTable]]:
    """The tables with some rows and an early snapshot; their writers end with the block."""
    with ExitStack() as stack:
        tables = []
        for kind in kinds:
            table = kind(catalog)
            (writer,) = stack.enter_context(racing_writers(lake, kind.name, 1))
            table.is_written_by(writer)
            tables.append(table)
        for table in tables:
            table.write()
        for table in tables:
            table.ends()
            table.keep_early()
        yield tables
