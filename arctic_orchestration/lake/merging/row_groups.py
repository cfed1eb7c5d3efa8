"""Merges Parquet files by copying their row groups unchanged, without decoding values.

Parquet's own ``ParquetRewriter``, which is among Spark's jars, copies the pages, writes page
indexes and Bloom filters at their new places, and one footer for all. It needs a thirtieth of the
CPU time of decoding.

Limits: row groups keep their size and compression, so the result is not smaller; rows are neither
sorted nor removed; it runs in the JVM of Spark's driver, on no executor, and not through Spark
Connect, which offers no JVM. Files in a store that Spark has no file system for are copied to a
local disk first, those of one output at a time.
:mod:`arctic_orchestration.lake.merging.strategy` decides which files it suits.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.file_access import file_access
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.lake.file_sizes import outputs_wanted
from arctic_orchestration.lake.java_errors import reason_of
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.local_copies import local_copies
from arctic_orchestration.lake.parquet_footers import MAGIC, TAIL_BYTES
from arctic_orchestration.lake.replacing.path_matching import form_of
from arctic_orchestration.lake.s3_retries import open_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOOTERS_AT_ONCE = 16
#: How much of a file's end is read at first; few footers are longer.
_FIRST_READ = 64 * 1024
#: The end of a file with an encrypted footer, in place of ``PAR1``.
_ENCRYPTED = b"PARE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Footer:
    """The footer of a Parquet file."""

    path: str
    metadata: pq.FileMetaData
    #: the Thrift struct, without length and magic
    thrift: bytes
    #: the whole schema with field ids, types and nullability; equal texts mean equal schemas
    schema: str
    #: rows and uncompressed bytes of each row group
    row_groups: tuple[tuple[int, int], ...]

    @property
    def is_encrypted(self) -> bool:
        """Whether a column is encrypted: a readable footer is then signed."""
        return int(self.metadata.serialized_size) != len(self.thrift)

    @property
    def key_values(self) -> Mapping[bytes, bytes]:
        """The key-value metadata."""
        return self.metadata.metadata or {}


class FooterUnreadable(LakeError):
    """A file with an unreadable footer: not Parquet, truncated, or encrypted."""


def read_footers(io: FileIO, paths: Iterable[str]) -> list[Footer]:
    """Returns the footers in the order of the paths, read in parallel; mostly with one read a file.

    Errors:
        FooterUnreadable: a file is not Parquet, or its footer is broken or encrypted.
        LakeError: a file cannot be read.
    """
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return list(pool.map(lambda path: _footer(io, path), paths))


def append_row_groups(
    spark: "SparkSession", table: Table, group: FileGroup, directory: str, target_bytes: int
) -> list[str]:
    """Copies the files' row groups, in their order, into new files; returns their paths.

    The number of outputs brings each nearest to ``target_bytes``, but never below three quarters of
    it: such a file would be merged again forever. The result is compared with the inputs' footers:
    schema, field ids, row groups, rows. Entries of the key-value metadata are kept when all inputs
    share them.

    On failure, the output in progress has no footer, so that no reader accepts it as complete, and
    is removed; the caller removes the directory with earlier outputs.

    Args:
        directory: of this attempt alone, in the form of the table's own paths.

    Errors:
        LakeError: the files have deletes or different schemas, one is encrypted or differs from the
            table's record, the disk is full, or the outputs differ from the inputs.
    """
    if group.delete_files:
        raise LakeError("row groups are copied whole, and rows were deleted from some of the files")
    files = [file for file in group.files if file.rows]
    footers = dict(zip(files, read_footers(table.io, (file.path for file in files)), strict=True))
    _require_alike(footers)
    outputs = []
    access = file_access(spark, table.io, [directory, *(file.path for file in files)])
    for number, bin_ in enumerate(bins(files, target_bytes)):
        output = f"{directory.rstrip('/')}/appended-{number:05}.parquet"
        inputs = [footers[file] for file in bin_]
        if access.by_spark:
            sources = [access.path(footer.path) for footer in inputs]
            _copy(spark, inputs, sources, access.path(output), access.options)
        else:
            size = sum(file.size for file in bin_)
            with local_copies(table.io, [file.path for file in bin_], size) as local:
                _copy(spark, inputs, local.sources, local.output, {})
                local.publish(output)
        _require_whole(table.io, inputs, output)
        outputs.append(output)
    return outputs


def bins(files: Sequence[LiveFile], target_bytes: int) -> list[list[LiveFile]]:
    """Splits the files, in their order, where outputs of equal size would begin."""
    total = sum(file.size for file in files)
    count = outputs_wanted(total, target_bytes, files=len(files))
    found: list[list[LiveFile]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        middle = before + file.size / 2
        found[min(count - 1, int(middle * count / total))].append(file)
        before += file.size
    return [bin_ for bin_ in found if bin_]


def _footer(io: FileIO, path: str) -> Footer:
    try:
        # As a plain path: pyiceberg cuts a URL at a `?` or a `#`.
        with open_input(io, plain_path(path)) as stream:
            size = stream.seek(0, 2)
            first = min(size, _FIRST_READ)
            stream.seek(size - first)
            end = stream.read(first)
            length = int.from_bytes(end[-TAIL_BYTES:-4], "little")
            if end[-4:] == MAGIC and first < length + TAIL_BYTES <= size:
                stream.seek(size - length - TAIL_BYTES)
                end = stream.read(length + TAIL_BYTES)
    except OSError as error:
        raise LakeError(f"{path} cannot be read: {error}") from error
    if end[-4:] == _ENCRYPTED:
        raise FooterUnreadable(f"{path} is encrypted")
    if end[-4:] != MAGIC or length + TAIL_BYTES > size:
        raise FooterUnreadable(f"{path} is not a Parquet file")
    end = end[-length - TAIL_BYTES :]
    try:
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + end))
    except (OSError, pa.ArrowException) as error:
        raise FooterUnreadable(f"{path}: its footer cannot be read: {error}") from error
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return Footer(
        path=path,
        metadata=metadata,
        thrift=end[:-TAIL_BYTES],
        # The first line identifies the object in memory.
        schema=str(metadata.schema).split("\n", 1)[1],
        row_groups=tuple((group.num_rows, group.total_byte_size) for group in groups),
    )


def _require_alike(footers: Mapping[LiveFile, Footer]) -> None:
    if not footers:
        raise LakeError("row groups of files without rows cannot be copied")
    first = next(iter(footers.values()))
    for file, footer in footers.items():
        if footer.is_encrypted:
            raise LakeError(f"{file.path} is encrypted, and its row groups cannot be copied")
        if footer.schema != first.schema:
            raise LakeError(f"{file.path} and {first.path} differ in schema")
        if footer.metadata.num_rows != file.rows:
            raise LakeError(
                f"{file.path}: got {footer.metadata.num_rows} rows, "
                f"expected {file.rows} as in the table"
            )


def _require_whole(io: FileIO, inputs: Sequence[Footer], output: str) -> None:
    (written,) = read_footers(io, [output])
    row_groups = tuple(one for footer in inputs for one in footer.row_groups)
    if written.row_groups != row_groups:
        raise LakeError(f"{output}: its row groups are not those of its {len(inputs)} inputs")
    if written.schema != inputs[0].schema:
        raise LakeError(f"{output}: its schema is not that of its inputs")


def _copy(
    spark: "SparkSession",
    inputs: Sequence[Footer],
    sources: Sequence[str],
    output: str,
    options: Mapping[str, str],
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        _rewrite(spark, inputs, sources, output, options)
    except (Py4JError, PySparkException) as error:
        raise LakeError(
            f"{output} cannot be written from {len(inputs)} files: {reason_of(error)}"
        ) from error


def _rewrite(
    spark: "SparkSession",
    inputs: Sequence[Footer],
    sources: Sequence[str],
    output: str,
    options: Mapping[str, str],
) -> None:
    from arctic_orchestration.lake.spark_versions import PARQUET_WRITERS_CLOSE

    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    configuration = session.sessionState().newHadoopConf()
    if form_of(output) in ("", "file:", "file://"):
        # Hadoop's usual file system would leave a .crc file beside each output.
        configuration.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        configuration.setBoolean("fs.file.impl.disable.cache", True)
    for key, value in options.items():
        configuration.set(key, value)
    path, rewrite = jvm.org.apache.hadoop.fs.Path, jvm.org.apache.parquet.hadoop.rewrite
    files = jvm.java.util.ArrayList()
    for source in sources:
        files.add(path(source))
    built = rewrite.RewriteOptions.Builder(configuration, files, path(output)).build()
    rewriter = rewrite.ParquetRewriter(built)
    try:
        rewriter.processBlocks()
        _keep_common(_private(rewriter, "extraMetaData"), inputs)
    except BaseException:
        # The rewriter's own close() would complete the file.
        writer = _private(rewriter, "writer")
        (writer if PARQUET_WRITERS_CLOSE else _private(writer, "out")).close()
        path(output).getFileSystem(configuration).delete(path(output), False)
        raise
    rewriter.close()


def _keep_common(key_values: Any, inputs: Sequence[Footer]) -> None:
    """Drops entries that not all inputs share: the rewriter keeps the last one's."""
    first = inputs[0].key_values
    for key in {key for footer in inputs for key in footer.key_values}:
        if any(footer.key_values.get(key) != first.get(key) for footer in inputs):
            key_values.remove(key.decode())


def _private(thing: Any, name: str) -> Any:
    field = thing.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(thing)
