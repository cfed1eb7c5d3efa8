"""Parquet files that Arrow reads in pieces and writes, through pyiceberg's ``FileIO``.

Memory is bounded: a piece of the input, the encoded bytes of an input row group (or parts of it, if
it is large), and one row group that is being filled.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from arctic_orchestration.lake.merging.deletes import plain_path

MIB = 1 << 20
#: Decoded bytes of a row group, and the maximum for a table's property.
ROW_GROUP_BYTES, MOST_ROW_GROUP_BYTES = 128 * MIB, 256 * MIB
_ROW_GROUP_ROWS = 1_000_000
#: The maximum decoded at a time; the first piece has few rows, as their width is unknown.
PIECE_BYTES, _FIRST_ROWS = 32 * MIB, 8192
#: A row group of more encoded bytes is not read as a whole, but through a buffer a column.
_MOST_HELD, _BUFFER = 64 * MIB, MIB
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


def pieces(
    io: FileIO,
    path: str,
    most_bytes: int,
    convert: Callable[[pa.Table], pa.Table],
    columns: Callable[[pq.ParquetFile], Sequence[str] | None] = lambda _: None,
) -> Iterator[pa.Table]:
    """Yields the rows of a file in pieces of about ``most_bytes``, and converted.

    Args:
        columns: the names of the columns that are read; None: all of them.

    Errors:
        OSError, ArrowException: the file cannot be read.
    """
    # As a plain path: pyiceberg cuts a URL at a `?` or a `#`.
    with io.new_input(plain_path(path)).open() as stream:
        metadata = pq.read_metadata(stream)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        encoded = [
            sum(group.column(number).total_compressed_size for number in range(group.num_columns))
            for group in groups
        ]
        large = max(encoded, default=0) > _MOST_HELD
        file = pq.ParquetFile(
            stream,
            metadata=metadata,
            buffer_size=_BUFFER if large else 0,
            pre_buffer=not large,
            coerce_int96_timestamp_unit="us",
        )
        names = columns(file)
        width = 0.0
        for number, group in enumerate(groups):
            if not group.num_rows:
                continue
            width = max(width, group.total_byte_size / group.num_rows)
            rows = int(most_bytes / width) if number else min(_FIRST_ROWS, int(most_bytes / width))
            rows = min(max(1, rows), _ROW_GROUP_ROWS)
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
                piece = convert(one)
                if len(piece):
                    yield piece


class OutputFiles:
    """The output files, written in sequence."""

    def __init__(self, io: FileIO, prefix: str, writing: Writing) -> None:
        self.paths: list[str] = []
        self._io = io
        self._prefix = prefix
        self._writing = writing
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
        if self._writer is None:
            self._open()
        assert self._writer is not None
        self._writer.write_table(pa.concat_tables(self._waiting), self._waiting_rows)
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0

    def _open(self) -> None:
        path = f"{self._prefix}-{len(self.paths):05}.parquet"
        self.paths.append(path)
        # The path is new: searching an object store for it is a wasted request.
        self._stream = self._io.new_output(plain_path(path)).create(overwrite=True)
        self._writer = pq.ParquetWriter(
            self._stream,
            self._writing.columns,
            compression="zstd",
            compression_level=self._writing.zstd_level,
            write_statistics=self._writing.statistics,
            write_page_index=True,
            # As the specification of Iceberg requires.
            store_decimal_as_integer=True,
            # Useless to other readers, and redundant beside the schema.
            store_schema=False,
        )

    def _close(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self._stream.close()
        self._writer = self._stream = None
        self._rows = 0
