"""Decodes plain files with Arrow, in a Python worker of Spark, and rewrites them as larger ones.

Arrow needs a third of the CPU time of Spark's rows: values stay in columns from file to file. It is
a Spark job of one task, so it runs where Spark's tasks run, on a cluster too, and in parallel with
other groups.

Memory: the worker is a process beside the JVM. It holds one row group that is being filled (128 MiB
decoded, see :func:`rewrite_files`), a piece of the input (32 MiB) and the encoded bytes of an input
row group (parts of it, if it is large): with Python itself 450 MB were measured for 16 files of 14
MB, and 160 MB more where rows are sorted. Executors need as much in
``spark.executor.memoryOverhead`` for each of their cores; 1 GB is on the safe side, unless rows
become far wider within a row group. They also need this package, pyarrow and pyiceberg; without
them Spark's own rows are used, and the reason is reported.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark import TaskContext
from pyspark.errors import PySparkException

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.arrow_files import PIECE_BYTES, Observed, OutputFiles, Writing
from arctic_orchestration.lake.arrow_rows import rows_of
from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.file_access import sendable_io
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_sizes import outputs_wanted
from arctic_orchestration.lake.merging.arrow_sorting import sorted_rows
from arctic_orchestration.lake.merging.deletes import deleted_positions
from arctic_orchestration.lake.merging.lineage import with_values
from arctic_orchestration.lake.merging.plain_files import PlainFile, PlainFiles, writing_of
from arctic_orchestration.lake.merging.value_deletes import ValueDeletes, without_deleted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The errors of a worker that cannot run Python code of this package.
_UNABLE = ("ModuleNotFoundError", "ImportError", "PYTHON_VERSION_MISMATCH", "Cannot run program")
#: The reason, by the reader of the files: determined once in a session.
_unable: "WeakKeyDictionary[SparkSession, dict[type[FileIO], str]]" = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """The outputs of a group."""

    paths: list[str]
    #: the rows without those that are deleted by position
    seen: int
    #: how many of these are deleted by value
    deleted: int


#: The function of the worker: from the rows of its task to the outputs or an error.
_Work = Callable[[Iterable[object]], Iterator[Rewritten | str]]
_ANSWER_COLUMNS = pa.schema(
    {"paths": pa.list_(pa.string()), "seen": pa.int64(), "deleted": pa.int64()}
    | {"problem": pa.string()}
)
_ANSWER = "paths array<string>, seen bigint, deleted bigint, problem string"


class WorkersUnable(Exception):
    """The executors cannot run this; the message contains the reason."""


def rewritten(
    spark: "SparkSession",
    table: Table,
    group: FileGroup,
    plain: PlainFiles,
    directory: str,
    target_bytes: int,
) -> tuple[list[str], int]:
    """Rewrites the live rows of plain files into new files; returns their paths.

    Also returns the number of deleted rows. Rows stay in their order, or are sorted. All outputs
    but the last have the same number of rows. The caller removes what a failed or
    repeated task left in the directory: with the directory, or all files that are not returned.

    Errors:
        LakeError: a file is missing or broken, has another number of rows than the table records,
            or the disk is full.
        UnsupportedFile: a position delete names a data file in another form than the table.
        InvalidInput: a property of the table is invalid.
        WorkersUnable: an executor lacks Python, this package or what it needs.
        PySparkException, Py4JError: Spark failed.
    """
    unable = _unable.setdefault(spark, {})
    if reason := unable.get(type(table.io)):
        raise WorkersUnable(reason)
    positions = deleted_positions(table.io, group.files)
    deleted = sum(map(len, positions.values()))
    size = sum(file.size for file in group.files)
    count = outputs_wanted(size, target_bytes, files=len(group.files))
    writing = replace(
        writing_of(table, max(1, -(-(group.rows - deleted) // count)), schema=plain.schema),
        statistics=plain.statistics,
    )
    files = [replace(file, deleted=positions.get(file.path)) for file in plain.files]
    inputs = replace(plain, files=tuple(files))
    work = partial(_in_worker, sendable_io(table.io), inputs, directory.rstrip("/"), writing)
    try:
        answer = _run_over_connect(spark, work) if is_over_connect(spark) else _run(spark, work)
    except (PySparkException, Py4JError) as error:
        if reason := _inability(str(error)):
            unable[type(table.io)] = reason
            raise WorkersUnable(reason) from error
        raise
    name = ".".join(table.name())
    if isinstance(answer, str):
        raise LakeError(f"{name}: merging {len(files)} files failed: {answer}")
    if answer.seen != group.rows - deleted:
        raise LakeError(
            f"{name}: of {group.rows} rows with {deleted} deleted positions {answer.seen} were left"
        )
    return answer.paths, deleted + answer.deleted


def rewrite_files(
    io: FileIO, inputs: PlainFiles, directory: str, writing: Writing, *, name: str
) -> Rewritten:
    """Reads Parquet files in sequence and writes their rows into new ones, sorted if required.

    Row groups have at most a million rows and end once they reach ``row_group_bytes`` of decoded
    values. A failure leaves nothing: an unfinished file has no footer, and is removed with the
    finished ones.

    Args:
        directory: the directory of the outputs.
        name: the prefix of the outputs' names; of this attempt alone.

    Errors:
        OSError, ArrowException: a file cannot be read or written.
    """
    observed = Observed(texts=inputs.texts)
    outputs = OutputFiles(io, f"{directory}/{name}", writing, observed)
    most = min(PIECE_BYTES, writing.row_group_bytes)
    compared = [columns for _, columns in inputs.chains]
    deletes = [ValueDeletes.read(io, chain, columns) for chain, columns in inputs.chains]
    known = inputs.schema.fields
    counted: Counter[str] = Counter()

    def rows(names: list[str] | None) -> Generator[pa.Table, None, None]:
        if names is None and deletes:
            return without_deleted(pieces_of(None), deletes, counted)
        return pieces_of(names)

    def pieces_of(names: list[str] | None) -> Generator[pa.Table, None, None]:
        schema = Schema(*(one for one in known if names is None or one.name in names))
        columns = pa.schema([writing.columns.field(one.name) for one in schema.fields])
        for file in inputs.files:
            if names is None:
                live = _live_rows(file, columns, deletes, counted, observed)
                schemas = (schema, *compared)
                yield from rows_of(io, file.path, schemas, inputs.names, most, live, observed)
            else:
                fill = partial(_filled, file)
                yield from rows_of(io, file.path, (schema,), inputs.names, most, fill)

    order = inputs.order
    try:
        with contextlib.closing(rows(None) if order is None else sorted_rows(rows, order)) as found:
            for piece in found:
                outputs.add(piece)
        outputs.finish()
    except BaseException:
        outputs.abandon()
        raise
    finally:
        # The worker stays, and may wait long for its next task.
        pa.default_memory_pool().release_unused()
    return Rewritten(paths=outputs.paths, seen=counted["seen"], deleted=counted["deleted"])


def _live_rows(
    file: PlainFile,
    columns: pa.Schema,
    deletes: Sequence[ValueDeletes],
    counted: Counter[str],
    observed: Observed,
) -> Callable[..., pa.Table]:
    """Returns what completes the pieces of a file, in turn, without rows deleted by position.

    What the deletes by value compare is appended.
    """
    position = 0

    def live(piece: pa.Table, *compared: pa.Table) -> pa.Table:
        nonlocal position
        start, position = position, position + len(piece)
        piece = _filled(file, piece)
        if file.inherited is not None:
            piece = with_values(piece, file.inherited, start)
        piece = piece.cast(observed.read_as(columns))
        for one, table in zip(deletes, compared, strict=True):
            for values in one.columns(_filled(file, table), file.path):
                piece = piece.append_column("", values)
        kept = None if file.deleted is None else file.deleted.kept(start, position)
        if kept is not None and not kept.all():
            piece = piece.filter(pa.array(kept))
        counted["seen"] += len(piece)
        return piece

    return live


def _filled(file: PlainFile, piece: pa.Table) -> pa.Table:
    """Adds the known values of columns that the file lacks."""
    for name, value in file.lacking.items():
        place = piece.schema.get_field_index(name)
        if place >= 0:
            piece = piece.set_column(place, name, pa.repeat(value[0], len(piece)))
    return piece


def _run(spark: "SparkSession", work: "_Work") -> Rewritten | str:
    """Returns the answer of one task; faster than ``mapInArrow``, above all the first time."""
    (answer,) = spark.sparkContext.parallelize([0], 1).mapPartitions(work).collect()
    found: Rewritten | str = answer
    return found


def _run_over_connect(spark: "SparkSession", work: "_Work") -> Rewritten | str:
    """Returns the answer of one task, in a session without RDDs."""
    task = spark.range(0, 1, 1, 1).mapInArrow(partial(_as_batch, work), _ANSWER)
    (answer,) = task.collect()
    if answer.problem is not None:
        return str(answer.problem)
    return Rewritten(paths=list(answer.paths), seen=answer.seen, deleted=answer.deleted)


def _as_batch(work: "_Work", rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for answer in work(rows):
        row = {"problem": answer} if isinstance(answer, str) else asdict(answer)
        yield pa.RecordBatch.from_pylist([row], _ANSWER_COLUMNS)


def _in_worker(
    io: FileIO, inputs: PlainFiles, directory: str, writing: Writing, rows: Iterable[object]
) -> Iterator[Rewritten | str]:
    """Yields the outputs, or the error, which Spark would hide in a stack of Java's."""
    # A worker that did not read to the end is not reused, and the next one starts cold.
    list(rows)
    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    try:
        yield rewrite_files(io, inputs, directory, writing, name=f"arrow-{attempt:05}")
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        yield f"{type(error).__name__}: {first}"


def _inability(message: str) -> str | None:
    for line in message.splitlines():
        if any(sign in line for sign in _UNABLE):
            return line.strip()
    return None
