"""Parquet files that Arrow reads in pieces and writes, through pyiceberg's ``FileIO``.

Memory is bounded: a piece of the input, the encoded bytes of an input row group (or parts of it, if
it is large), and one row group that is being filled.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.name_mapping import id_of
from arctic_orchestration.lake.s3_retries import open_input

MIB = 1 << 20
#: Decoded bytes of a row group, and the maximum for a table's property.
ROW_GROUP_BYTES, MOST_ROW_GROUP_BYTES = 128 * MIB, 256 * MIB
_ROW_GROUP_ROWS = 1_000_000
#: The maximum decoded at a time; the first pieces of a file have few rows, as their width is
#: unknown. They may have more if the width in another file is known.
PIECE_BYTES, _FIRST_ROWS, _NEXT_FIRST_ROWS = 32 * MIB, 8192, 32_768
#: A row group of more encoded bytes is not read as a whole, but through a buffer a column.
_MOST_HELD, _BUFFER = 64 * MIB, MIB
#: A dictionary is worth its hashes if columns take less than this part of their plain size with it;
#: compression makes up for less than that.
_WORTH_A_DICTIONARY = 0.75
#: Texts that take no more bytes a value in any input stay dictionaries from input to output, if
#: their dictionaries have no more bytes in the file: each piece of a row group has a copy.
_SMALL_TEXT, _SMALL_DICTIONARY = 3, 32 * 1024
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_ARROW_VERSION = re.compile(r"parquet-cpp(?:-arrow)? version (\d+)")
#: the first version of Arrow with an INT96 that all readers understand
_WRITES_INT96 = 23
#: parquet-java's own level, which Spark and Iceberg's other writers share.
ZSTD_LEVEL = 3


@dataclass(frozen=True, kw_only=True)
class Writing:
    """The parameters of the outputs."""

    columns: pa.Schema
    #: the paths of the leaf columns with statistics, or whether all have them
    statistics: bool | list[str] = True
    rows_per_file: int
    row_group_bytes: int = ROW_GROUP_BYTES
    zstd_level: int = ZSTD_LEVEL


@dataclass
class Observed:
    """What the input files that were read so far have shown."""

    #: the decoded bytes of a row, in the last file; zero: none was read
    width: float = 0.0
    #: of columns with a dictionary, by field id: encoded bytes before compression, and values
    encoded: Counter[int] = field(default_factory=Counter)
    values: Counter[int] = field(default_factory=Counter)
    #: the field ids of texts that stay dictionaries, and their names in the last file
    texts: frozenset[int] = frozenset()
    text_names: Sequence[str] = ()

    def add(self, metadata: pq.FileMetaData, ids: Mapping[str, int | None]) -> None:
        """Adds the sizes of a file's columns, of which the paths have these field ids."""
        self.text_names = [name for name, field_id in ids.items() if field_id in self.texts]
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                field_id = ids.get(column.path_in_schema)
                if field_id is not None and column.has_dictionary_page:
                    self.encoded[field_id] += column.total_uncompressed_size
                    self.values[field_id] += column.num_values

    def is_worth_a_dictionary(self, field_id: int | None, values: pa.ChunkedArray) -> bool:
        """Whether dictionaries made a column smaller, of which these are values; if in doubt, yes.

        Arrow gives a dictionary up once it is large, and has computed a hash of each value by then.
        """
        if values.type == _DICTIONARY:
            return True
        if field_id is None or not self.values[field_id] or not len(values):
            return True
        encoded = self.encoded[field_id] / self.values[field_id]
        return bool(encoded < _WORTH_A_DICTIONARY * values.nbytes / len(values))

    def read_as(self, columns: pa.Schema) -> pa.Schema:
        """Returns the columns with the types that pieces have: some texts are dictionaries."""
        fields = (
            one.with_type(_DICTIONARY) if id_of(one) in self.texts else one for one in columns
        )
        return pa.schema(fields)


def small_texts(
    files: Iterable[tuple[pq.FileMetaData, Mapping[str, int | None]]], texts: Collection[int]
) -> frozenset[int]:
    """Returns which columns of texts all files that have them store in small dictionaries.

    Args:
        files: with the field ids of the columns by name.
        texts: the field ids of the columns in question.
    """
    small: set[int] = set()
    others: set[int] = set()
    for metadata, ids in files:
        paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
        known = [(place, ids.get(path)) for place, path in enumerate(paths)]
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for place, field_id in known if group.num_rows else ():
                if field_id is not None and field_id in texts and field_id not in others:
                    (small if _is_small_text(group.column(place)) else others).add(field_id)
    return frozenset(small - others)


def _is_small_text(column: pq.ColumnChunkMetaData) -> bool:
    return bool(
        column.physical_type == "BYTE_ARRAY"
        and column.has_dictionary_page
        and column.dictionary_page_offset is not None
        and column.data_page_offset - column.dictionary_page_offset <= _SMALL_DICTIONARY
        and column.total_uncompressed_size <= _SMALL_TEXT * column.num_values
    )


def _with_one_dictionary(rows: pa.Table) -> pa.Table:
    """Gives each column of dictionaries one, of the values that it has.

    Arrow's writer takes it as it is, also with what deleted rows or rows of other files had.
    """
    rows = rows.unify_dictionaries()
    for place, column in enumerate(rows.columns):
        if column.type != _DICTIONARY or not column.num_chunks:
            continue
        dictionary = column.chunk(0).dictionary
        indices = pa.chunked_array([one.indices for one in column.chunks])
        used = pc.unique(indices).drop_null()
        if len(used) < len(dictionary):
            kept = dictionary.take(used)
            chunks = pc.index_in(indices, value_set=used).chunks
            column = pa.chunked_array(
                [pa.DictionaryArray.from_arrays(one, kept) for one in chunks], _DICTIONARY
            )
            rows = rows.set_column(place, rows.schema.field(place), column)
    return rows


def why_misread(metadata: pq.FileMetaData) -> str | None:
    """Returns why Arrow would read old dates of a file otherwise than Spark; None: it would not.

    Days before 1582 are Julian in files of Spark before 3.0, in INT96 before 3.1, and where a later
    Spark notes it. INT96 before 1970 has a negative time of day in files of Arrow before 23, which
    Arrow itself misreads (apache/arrow#48246).
    """
    key_values = metadata.metadata or {}
    spark = key_values.get(b"org.apache.spark.version", b"")
    if (
        b"org.apache.spark.legacyDateTime" in key_values
        or b"org.apache.spark.legacyINT96" in key_values
        or spark.startswith((b"1.", b"2."))
        or (spark.startswith(b"3.0.") and any(_int96(metadata)))
    ):
        return "was written by a Spark that counted old dates otherwise"
    arrow = _ARROW_VERSION.match(metadata.created_by or "")
    if arrow is not None and int(arrow[1]) < _WRITES_INT96 and any(_int96(metadata)):
        return f"has INT96 by Arrow {arrow[1]}, which wrote times before 1970 otherwise"
    return None


def schema_as_read(metadata: pq.FileMetaData) -> pa.Schema:
    """Returns the columns with the types that :func:`pieces` reads them with.

    INT96 within other columns has nanoseconds here.
    """
    found = metadata.schema.to_arrow_schema()
    for path in _int96(metadata):
        # A name with a dot could be mistaken for a path.
        place = -1 if "." in path else found.get_field_index(path)
        if place >= 0:
            found = found.set(place, found.field(place).with_type(pa.timestamp("us", "UTC")))
    return found


def _int96(metadata: pq.FileMetaData) -> Iterator[str]:
    """Yields the paths of timestamps of 96 bits, which are moments in UTC."""
    leaves = metadata.schema
    for leaf in map(leaves.column, range(len(leaves))):
        if leaf.physical_type == "INT96":
            yield leaf.path


def pieces(
    io: FileIO,
    path: str,
    most_bytes: int,
    convert: Callable[[pa.Table], pa.Table],
    columns: Callable[[pq.FileMetaData], Sequence[str] | None] = lambda _: None,
    observed: Observed | None = None,
) -> Iterator[pa.Table]:
    """Yields the rows of a file in pieces of about ``most_bytes``, and converted.

    Args:
        columns: the names of the columns that are read; None: all of them.
        observed: of the files before; it notes the width of this one's rows, and tells which
            columns are decoded as dictionaries.

    Errors:
        OSError, ArrowException: the file cannot be read.
    """
    # As a plain path: pyiceberg cuts a URL at a `?` or a `#`.
    with open_input(io, plain_path(path)) as stream:
        metadata = pq.read_metadata(stream)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        encoded = [
            sum(group.column(number).total_compressed_size for number in range(group.num_columns))
            for group in groups
        ]
        large = max(encoded, default=0) > _MOST_HELD
        names = columns(metadata)
        observed = observed or Observed()
        file = pq.ParquetFile(
            stream,
            metadata=metadata,
            buffer_size=_BUFFER if large else 0,
            pre_buffer=not large,
            coerce_int96_timestamp_unit="us",
            read_dictionary=observed.text_names,
        )
        width, expected = 0.0, observed.width
        most_rows = _NEXT_FIRST_ROWS if expected else _FIRST_ROWS
        decoded_bytes = decoded_rows = 0
        for number, group in enumerate(groups):
            if not group.num_rows:
                continue
            width = max(width, group.total_byte_size / group.num_rows)
            rows = min(max(1, int(most_bytes / max(width, expected))), most_rows)
            if rows >= group.num_rows:
                found: Iterable[Any] = [
                    file.read_row_group(number, columns=names, use_threads=False)
                ]
            else:
                batches = file.iter_batches(
                    rows, row_groups=[number], columns=names, use_threads=False
                )
                found = (pa.Table.from_batches([batch]) for batch in batches)
            for one in found:
                # As it is decoded: what is converted may have fewer columns and rows.
                width = max(width, one.nbytes / max(1, len(one)))
                decoded_bytes, decoded_rows = decoded_bytes + one.nbytes, decoded_rows + len(one)
                piece = convert(one)
                if len(piece):
                    yield piece
            expected, most_rows = 0.0, _ROW_GROUP_ROWS
        observed.width = decoded_bytes / max(1, decoded_rows)


class OutputFiles:
    """The output files, written in sequence."""

    def __init__(
        self, io: FileIO, prefix: str, writing: Writing, observed: Observed | None = None
    ) -> None:
        self.paths: list[str] = []
        self._io = io
        self._prefix = prefix
        self._writing = writing
        self._observed = observed or Observed()
        groups = -(-writing.rows_per_file // _ROW_GROUP_ROWS)
        #: avoids a file that ends in a row group of a few rows
        self._rows_per_group = -(-writing.rows_per_file // groups)
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0

    def add(self, piece: pa.Table) -> None:
        """Adds rows, and writes a row group whenever there are enough of them."""
        while len(piece):
            room = min(
                self._writing.rows_per_file - self._rows,
                self._rows_per_group - self._waiting_rows,
            )
            taken, piece = piece.slice(0, room), piece.slice(room)
            self._waiting.append(taken)
            self._rows += len(taken)
            self._waiting_rows += len(taken)
            self._waiting_bytes += taken.nbytes
            full = self._rows == self._writing.rows_per_file
            if (
                full
                or self._waiting_rows == self._rows_per_group
                or self._waiting_bytes >= self._writing.row_group_bytes
            ):
                self._write()
            if full:
                self._close()

    def finish(self) -> None:
        """Writes the waiting rows, and ends the last file; more rows begin another one."""
        if self._waiting:
            self._write()
        if self._writer is not None:
            self._close()

    def abandon(self) -> None:
        """Removes all files, as far as possible; the open one gets no footer."""
        if self._stream is not None:
            with contextlib.suppress(Exception):
                self._stream.close()
        if self._writer is not None:
            # Closing it on destruction would write the footer.
            self._writer.is_open = False
        for path in self.paths:
            with contextlib.suppress(Exception):
                self._io.delete(plain_path(path))

    def _write(self) -> None:
        rows = _with_one_dictionary(pa.concat_tables(self._waiting))
        if self._writer is None:
            self._open(rows)
        assert self._writer is not None
        self._writer.write_table(rows, self._waiting_rows)
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0

    def _open(self, first: pa.Table) -> None:
        path = f"{self._prefix}-{len(self.paths):05}.parquet"
        self.paths.append(path)
        # The path is new: searching an object store for it is a wasted request.
        self._stream = self._io.new_output(plain_path(path)).create(overwrite=True)
        self._writer = pq.ParquetWriter(
            self._stream,
            self._observed.read_as(self._writing.columns),
            compression="zstd",
            compression_level=self._writing.zstd_level,
            use_dictionary=self._with_dictionary(first),
            write_statistics=self._writing.statistics,
            write_page_index=True,
            # As the specification of Iceberg requires.
            store_decimal_as_integer=True,
            # Useless to other readers, and redundant beside the schema.
            store_schema=False,
        )

    def _with_dictionary(self, rows: pa.Table) -> list[str] | bool:
        """Returns the paths of the leaf columns that get a dictionary, or that all do."""
        columns = self._writing.columns
        without = {
            column.name
            for column in columns
            if not pa.types.is_nested(column.type)
            and not self._observed.is_worth_a_dictionary(id_of(column), rows.column(column.name))
        }
        if not without:
            return True
        empty = pa.BufferOutputStream()
        pq.ParquetWriter(empty, columns).close()
        schema = pq.ParquetFile(empty.getvalue()).schema
        paths = (schema.column(number).path for number in range(len(schema.names)))
        return [path for path in paths if path not in without]

    def _close(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self._stream.close()
        self._writer = self._stream = None
        self._rows = 0
