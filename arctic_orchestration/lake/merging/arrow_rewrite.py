"""Decodes plain files with Arrow, in a Python worker of Spark, and rewrites them as larger ones.

For unchanged rows, Arrow needs a third of the CPU time of Spark's rows: values stay in columns from
file to file. It is a Spark job of one task, so it runs where Spark's tasks run, on a cluster too,
and in parallel with other groups.

Memory: the worker is a process beside the JVM. It holds one row group that is being filled (128 MiB
decoded, see :func:`rewrite_files`), a piece of the input (32 MiB) and the encoded bytes of an input
row group (parts of it, if it is large): with Python itself 450 MB were measured for 16 files of 14
MB. Executors need as much in ``spark.executor.memoryOverhead`` for each of their cores; 1 GB is on
the safe side, unless rows become far wider within a row group. They also need this package, pyarrow
and pyiceberg; without them Spark's own rows are used, and the reason is reported.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyspark import TaskContext
from pyspark.errors import PySparkException

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_sizes import outputs_wanted
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.lineage import with_values
from arctic_orchestration.lake.merging.parquet_properties import row_group_bytes, zstd_level
from arctic_orchestration.lake.merging.plain_files import PlainFiles
from arctic_orchestration.lake.row_lineage import Inherited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MIB = 1 << 20
#: Decoded bytes of a row group, and the maximum for a table's property.
_ROW_GROUP_BYTES, _MOST_ROW_GROUP_BYTES = 128 * _MIB, 256 * _MIB
_ROW_GROUP_ROWS = 1_000_000
#: The maximum decoded at a time; the first piece has few rows, as their width is unknown.
_PIECE_BYTES, _FIRST_ROWS = 32 * _MIB, 8192
#: A row group of more encoded bytes is not read as a whole, but through a buffer a column.
_MOST_HELD, _BUFFER = 64 * _MIB, _MIB
#: parquet-java's own level, which Spark and Iceberg's other writers share.
_ZSTD_LEVEL = 3

#: The errors of a worker that cannot run Python code of this package.
_UNABLE = ("ModuleNotFoundError", "ImportError", "PYTHON_VERSION_MISMATCH", "Cannot run program")
#: The reason, by the reader of the files: determined once in a session.
_unable: "WeakKeyDictionary[SparkSession, dict[type[FileIO], str]]" = WeakKeyDictionary()


#: The function of the worker: from the rows of its task to the paths of the outputs or an error.
_Work = Callable[[Iterable[object]], Iterator[list[str] | str]]
_ANSWER = "paths array<string>, problem string"


class WorkersUnable(Exception):
    """The executors cannot run this; the message contains the reason."""


@dataclass(frozen=True, kw_only=True)
class Writing:
    """The parameters of the outputs."""

    columns: pa.Schema
    #: what the rows of each input inherit; None: the rows have no lineage
    lineage: Sequence[Inherited] | None = None
    #: the paths of the leaf columns with statistics, or whether all have them
    statistics: bool | list[str] = True
    rows_per_file: int
    row_group_bytes: int = _ROW_GROUP_BYTES
    zstd_level: int = _ZSTD_LEVEL


def rewritten(
    spark: "SparkSession",
    table: Table,
    group: FileGroup,
    plain: PlainFiles,
    directory: str,
    target_bytes: int,
) -> list[str]:
    """Rewrites the rows of plain files, in group order, into new files; returns their paths.

    All outputs but the last have the same number of rows. The caller removes what a failed or
    repeated task left in the directory: with the directory, or all files that are not returned.

    Errors:
        LakeError: a file is missing or broken, or the disk is full.
        InvalidInput: a property of the table is invalid.
        WorkersUnable: an executor lacks Python, this package or what it needs.
        PySparkException, Py4JError: Spark failed.
    """
    unable = _unable.setdefault(spark, {})
    if reason := unable.get(type(table.io)):
        raise WorkersUnable(reason)
    size = sum(file.size for file in group.files)
    count = outputs_wanted(size, target_bytes, files=len(group.files))
    writing = Writing(
        columns=plain.columns,
        lineage=plain.lineage,
        statistics=plain.statistics,
        rows_per_file=max(1, -(-group.rows // count)),
        row_group_bytes=min(row_group_bytes(table) or _ROW_GROUP_BYTES, _MOST_ROW_GROUP_BYTES),
        zstd_level=zstd_level(table) or _ZSTD_LEVEL,
    )
    paths = [file.path for file in group.files]
    work = partial(_in_worker, table.io, paths, directory.rstrip("/"), writing)
    try:
        answer = _run_over_connect(spark, work) if is_over_connect(spark) else _run(spark, work)
    except (PySparkException, Py4JError) as error:
        if reason := _inability(str(error)):
            unable[type(table.io)] = reason
            raise WorkersUnable(reason) from error
        raise
    if isinstance(answer, str):
        raise LakeError(f"{'.'.join(table.name())}: merging {len(paths)} files failed: {answer}")
    found: list[str] = answer
    return found


def rewrite_files(
    io: FileIO, paths: Sequence[str], directory: str, writing: Writing, *, name: str
) -> list[str]:
    """Reads Parquet files in sequence and writes their rows into new ones.

    Columns are matched by name and have the same types in all files. Row groups have at most a
    million rows and end once they reach ``row_group_bytes`` of decoded values. A failure leaves
    nothing: an unfinished file has no footer, and is removed with the finished ones.

    Args:
        directory: the directory of the outputs.
        name: the prefix of the outputs' names; of this attempt alone.

    Errors:
        OSError, ArrowException: a file cannot be read or written.
    """
    outputs = _Outputs(io, f"{directory}/{name}", writing)
    try:
        lineage = itertools.repeat(None) if writing.lineage is None else writing.lineage
        for path, inherited in zip(paths, lineage, strict=False):
            for piece in _pieces(io, path, writing, inherited):
                outputs.add(piece)
        outputs.finish()
    except BaseException:
        outputs.abandon()
        raise
    finally:
        # The worker stays, and may wait long for its next task.
        pa.default_memory_pool().release_unused()
    return outputs.paths


def _run(spark: "SparkSession", work: "_Work") -> list[str] | str:
    """Returns the answer of one task; faster than ``mapInArrow``, above all the first time."""
    (answer,) = spark.sparkContext.parallelize([0], 1).mapPartitions(work).collect()
    found: list[str] | str = answer
    return found


def _run_over_connect(spark: "SparkSession", work: "_Work") -> list[str] | str:
    """Returns the answer of one task, in a session without RDDs."""
    task = spark.range(0, 1, 1, 1).mapInArrow(partial(_as_batch, work), _ANSWER)
    (answer,) = task.collect()
    return answer.problem if answer.problem is not None else list(answer.paths)


def _as_batch(work: "_Work", rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for answer in work(rows):
        paths, problem = (None, answer) if isinstance(answer, str) else (answer, None)
        yield pa.RecordBatch.from_arrays(
            [pa.array([paths], pa.list_(pa.string())), pa.array([problem], pa.string())],
            names=["paths", "problem"],
        )


def _in_worker(
    io: FileIO, paths: Sequence[str], directory: str, writing: Writing, rows: Iterable[object]
) -> Iterator[list[str] | str]:
    """Yields the outputs' paths, or the error, which Spark would hide in a stack of Java's."""
    # A worker that did not read to the end is not reused, and the next one starts cold.
    list(rows)
    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    try:
        yield rewrite_files(io, paths, directory, writing, name=f"arrow-{attempt:05}")
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        yield f"{type(error).__name__}: {first}"


def _inability(message: str) -> str | None:
    for line in message.splitlines():
        if any(sign in line for sign in _UNABLE):
            return line.strip()
    return None


def _pieces(
    io: FileIO, path: str, writing: Writing, inherited: Inherited | None
) -> Iterator[pa.Table]:
    """Yields the rows of a file in pieces of about :data:`_PIECE_BYTES`, in the outputs' schema."""
    most = min(_PIECE_BYTES, writing.row_group_bytes)
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
            stream, metadata=metadata, buffer_size=_BUFFER if large else 0, pre_buffer=not large
        )
        width, position = 0.0, 0
        for number, group in enumerate(groups):
            if not group.num_rows:
                continue
            width = max(width, group.total_byte_size / group.num_rows)
            rows = int(most / width) if number else min(_FIRST_ROWS, int(most / width))
            rows = min(max(1, rows), _ROW_GROUP_ROWS)
            if rows >= group.num_rows:
                found: Iterable[Any] = [file.read_row_group(number, use_threads=False)]
            else:
                batches = file.iter_batches(rows, row_groups=[number], use_threads=False)
                found = (pa.Table.from_batches([batch]) for batch in batches)
            for one in found:
                if inherited is not None:
                    one = with_values(one, inherited, position)
                    position += len(one)
                piece = one.select(writing.columns.names).cast(writing.columns)
                width = max(width, piece.nbytes / len(piece))
                yield piece


class _Outputs:
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
        """Writes the waiting rows, and ends the last file."""
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
        self._stream = self._io.new_output(plain_path(path)).create()
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
