"""Random tables, and what must be in them: rows, deletes, and columns and partitions that change.

The model keeps the rows by itself and applies the deletes to them, so that it knows what a reader
must find; only which file has which rows, and in which partition, it reads from the table.
"""

import datetime as dt
import decimal
import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from arctic_orchestration_tests.lake.delete_writer import (
    Scope,
    add_equality_deletes,
    add_position_deletes,
)

_names = itertools.count(1)

_INNER = StructType(
    NestedField(101, "a", IntegerType()),
    NestedField(102, "b", ListType(103, StringType(), element_required=False)),
)
COLUMNS: list[tuple[str, IcebergType]] = [
    ("key", IntegerType()),
    ("text", StringType()),
    ("day", DateType()),
    ("flag", BooleanType()),
    ("big", LongType()),
    ("single", FloatType()),
    ("double", DoubleType()),
    ("price", DecimalType(9, 2)),
    ("huge", DecimalType(38, 10)),
    ("wall", TimestampType()),
    ("moment", TimestamptzType()),
    ("raw", BinaryType()),
    ("struct", _INNER),
    ("list", ListType(110, _INNER, element_required=False)),
    ("map", MapType(120, StringType(), 121, _INNER, value_required=False)),
    ("row", LongType()),
]
SCHEMA = Schema(
    *(NestedField(number, name, kind) for number, (name, kind) in enumerate(COLUMNS, 1))
)
#: Columns by whose values rows are deleted; few values, so that some are hit.
KEYS = ("key", "text", "day", "price")

small = st.integers(-3, 3)
texts = st.sampled_from(["", "a", "b", "ab", "é 日%20", "x" * 40])
days = st.integers(-2, 2).map(lambda number: dt.date(1970, 1, 1) + dt.timedelta(number))
walls = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
prices = st.integers(-(10**9) + 1, 10**9 - 1) | st.just(100)
inner = st.fixed_dictionaries(
    {"a": st.none() | small, "b": st.none() | st.lists(st.none() | texts, max_size=3)}
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "key": small,
    "text": texts,
    "day": days,
    "flag": st.booleans(),
    "big": st.integers(-(2**63), 2**63 - 1),
    "single": st.floats(width=32),
    "double": st.floats(),
    "price": prices.map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
    "huge": st.integers(-(10**37), 10**37).map(lambda n: decimal.Decimal(n).scaleb(-10)),
    "wall": walls,
    "moment": walls.map(lambda wall: wall.replace(tzinfo=dt.UTC)),
    "raw": st.binary(max_size=6),
    "struct": inner,
    "list": st.lists(st.none() | inner, max_size=3),
    "map": st.dictionaries(texts, st.none() | inner, max_size=3),
}
#: Field 16, the number of a row, is never null and never changed.
NUMBER = "row"
#: What a partition may be by: the field's name and transform, and the number of its column.
PARTITIONS: dict[str, tuple[str, Transform[Any, Any], int]] = {
    "text": ("text_part", IdentityTransform(), 2),
    "wall": ("wall_day", DayTransform(), 10),
    "key": ("key_bucket", BucketTransform(2), 1),
}
CHANGES = ("rename", "drop", "add", "widen", "move", "add inside", "rename inside")


def spec_by(source: str | None) -> PartitionSpec:
    """Without partitions, or with those of one column."""
    if source is None:
        return PartitionSpec()
    name, transform, number = PARTITIONS[source]
    return PartitionSpec(PartitionField(number, 1000, transform, name))


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One to eight rows of all columns, in which any value may be missing."""
    some = {name: st.none() | values for name, values in VALUES.items()}
    # Days far apart would be a partition for each row.
    some["wall"] = st.none() | st.sampled_from(
        [dt.datetime(1969, 12, 31, 23), dt.datetime(2020, 1, 1)]
    )
    return draw(st.lists(st.fixed_dictionaries(some), min_size=1, max_size=8))


@dataclass
class File:
    """A data file as the test knows it: its rows' numbers in order."""

    path: str
    place: tuple[int, tuple[Any, ...]]
    rows: list[int]


@dataclass
class Known:
    """What is in the table; columns by the names that they had at first."""

    files: list[File] = field(default_factory=list)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    #: the name that a column has now
    names: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=lambda: {"a": "a", "b": "b"})
    #: names that columns had, and those in the list's structs
    free: set[str] = field(default_factory=set)
    free_inside: set[str] = field(default_factory=set)
    by_value: bool = False
    #: columns that a partition is by, or was: they are neither dropped nor widened
    sources: set[str] = field(default_factory=set)

    def live(self, files: list[File]) -> list[int]:
        """The numbers of the rows that no delete took, in the order of the files."""
        return [number for file in files for number in file.rows if number not in self.gone]

    def all_rows(self) -> list[dict[str, Any]]:
        """The live rows of the table, in the order of their numbers."""
        return [marked(self.row(number)) for number in sorted(self.live(self.files))]

    def row(self, number: int) -> dict[str, Any]:
        """A row with the columns that the table has now."""
        found = self.rows[number]
        row = {now: found.get(first) for first, now in self.names.items()}
        for first in ("struct", "list", "map"):
            if first in self.names:
                row[self.names[first]] = self._nested(first, found.get(first))
        return row

    def _nested(self, first: str, value: Any) -> Any:
        if value is None:
            return None
        if first == "list":
            return [self._inner(one) if one is not None else None for one in value]
        return value

    def _inner(self, value: dict[str, Any]) -> dict[str, Any]:
        return {now: value.get(first) for first, now in self.inside.items()}


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose floats are texts, so that NaN equals itself, and 0.0 not -0.0."""
    return {name: repr(value) if isinstance(value, float) else value for name, value in row.items()}


def append(table: Table, known: Known, rows: list[dict[str, Any]]) -> None:
    """Appends rows, and sees which files they are in, and where."""
    values = []
    for row in rows:
        number = len(known.rows)
        known.rows[number] = {
            first: value for first, value in row.items() if first in known.names
        } | {NUMBER: number}
        values.append(known.row(number))
    schema = schema_to_pyarrow(table.refresh().schema())
    table.append(pa.Table.from_pylist(values, schema))
    seen = {file.path for file in known.files}
    for manifest in table.current_snapshot().manifests(table.io):  # type: ignore[union-attr]
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            if file.content == DataFileContent.DATA and file.file_path not in seen:
                numbers = pq.read_table(file.file_path, columns=[NUMBER])[NUMBER].to_pylist()
                place = (manifest.partition_spec_id, tuple(file.partition._data))
                known.files.append(File(file.file_path, place, numbers))
                # pyiceberg writes an empty list or map of structs for a null one.
                exact = pa.Table.from_pylist([known.row(one) for one in numbers], schema)
                pq.write_table(exact, file.file_path)


def delete_positions(data: st.DataObject, table: Table, known: Known) -> None:
    """Some positions of one or two files, also such as were deleted before."""
    files = data.draw(st.lists(st.sampled_from(known.files), min_size=1, max_size=2, unique_by=id))
    positions = {
        file.path: data.draw(
            st.lists(st.integers(0, len(file.rows) - 1), min_size=1, max_size=3, unique=True)
        )
        for file in files
    }
    add_position_deletes(table, positions, scope=data.draw(st.sampled_from(Scope)))
    for file in files:
        known.gone.update(file.rows[position] for position in positions[file.path])


def delete_values(data: st.DataObject, table: Table, known: Known) -> None:
    """Rows with the values of some that are there, in the partition of one file.

    Without partitions it is everywhere, also in the partitions of other specs.
    """
    keys = [first for first in KEYS if first in known.names]
    if not keys:
        return
    columns = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True))
    file = data.draw(st.sampled_from(known.files))
    numbers = data.draw(st.lists(st.sampled_from(range(len(known.rows))), min_size=1, max_size=3))
    gone = {tuple(known.rows[number].get(first) for first in columns) for number in numbers}
    names = [known.names[first] for first in columns]
    schema = pa.schema([table.refresh().schema().as_arrow().field(name) for name in names])
    values = [dict(zip(names, value, strict=True)) for value in gone]
    spec_id, partition = file.place
    add_equality_deletes(
        table,
        pa.Table.from_pylist(values, schema),
        names,
        partition=partition or None,
        spec_id=spec_id,
    )
    known.by_value = True
    for other in known.files:
        if not partition or other.place == file.place:
            known.gone.update(
                number
                for number in other.rows
                if tuple(known.rows[number].get(first) for first in columns) in gone
            )


def change_partitions(data: st.DataObject, table: Table, known: Known) -> None:
    """What the partitions of later appends are by: a column more, or one less."""
    source = data.draw(st.sampled_from(sorted(PARTITIONS)))
    if source not in known.names:
        return
    name, transform, _ = PARTITIONS[source]
    now = {one.name for one in table.refresh().spec().fields}
    with table.update_spec() as update:
        if name in now:
            update.remove_field(name)
        else:
            update.add_field(known.names[source], transform, name)
    known.sources.add(source)


def change(data: st.DataObject, table: Table, known: Known) -> None:
    """Changes the columns in one of several ways."""
    first = data.draw(st.sampled_from(sorted(known.names.keys() - {NUMBER})))
    how = data.draw(st.sampled_from(CHANGES))
    added = f"new {next(_names)}"
    # A name may have been another column's, of another type.
    fresh = data.draw(st.sampled_from([added, *sorted(known.free)]))
    within = data.draw(st.sampled_from([added, *sorted(known.free_inside)]))
    with table.refresh().update_schema(allow_incompatible_changes=True) as update:
        match how:
            case "rename":
                update.rename_column(known.names[first], fresh)
                known.free = (known.free | {known.names[first]}) - {fresh}
                known.names[first] = fresh
            case "drop" if first not in known.sources:
                update.delete_column(known.names[first])
                known.free.add(known.names.pop(first))
            case "add":
                update.add_column(fresh, LongType())
                known.free.discard(fresh)
                known.names[added] = fresh
            case "widen":
                wider = {"key": LongType(), "single": DoubleType(), "price": DecimalType(20, 2)}
                for one in wider.keys() & known.names.keys() - known.sources:
                    update.update_column(known.names[one], wider[one])
            case "move":
                update.move_first(known.names[first])
            case "add inside" if "list" in known.names:
                update.add_column((known.names["list"], within), StringType())
                known.free_inside.discard(within)
                known.inside[added] = within
            case "rename inside" if "list" in known.names:
                update.rename_column((known.names["list"], "element", known.inside["a"]), within)
                known.free_inside = (known.free_inside | {known.inside["a"]}) - {within}
                known.inside["a"] = within
