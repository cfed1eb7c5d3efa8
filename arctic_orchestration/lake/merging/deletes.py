"""Which rows of data files are deleted, by their delete files.

Planning has determined which delete applies to which file; a delete counts for the files that list
it, and for no others.

*Position deletes* become one bitmap for each data file, so that millions of them fit into memory:
an eighth of a byte a row, however often a position is repeated. Their paths are compared literally,
as Iceberg's readers do; see :mod:`~arctic_orchestration.lake.replacing.path_matching`.

*Equality deletes* stay in their files. Deletes over the same columns form chains: in a chain, each
delete applies to all data files of the deletes before it. As deletes apply to older files, there is
hardly ever more than one chain, and then a row is deleted if the farthest-reaching delete with its
values reaches its file: one number for each value.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from arctic_orchestration.errors import LakeError, UnsupportedFile
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, LiveFile
from arctic_orchestration.lake.manifest_fields import DELETED_PATH
from arctic_orchestration.lake.merging.deletion_vectors import vector_positions
from arctic_orchestration.lake.name_mapping import id_of
from arctic_orchestration.lake.replacing.path_matching import file_key
from arctic_orchestration.lake.s3_retries import open_input

#: The field id that the specification reserves for the positions in a file of position deletes.
_DELETED_POSITION = 2147483545

_BATCH_ROWS = 256 * 1024
_LOCAL = re.compile(r"^file:(?://(?:localhost)?)?(?=/)")


def plain_path(path: str) -> str:
    """Returns a local path without its scheme: ``file:/a``, ``file:///a`` and ``/a`` are one file.

    Nothing is decoded: in Iceberg, a ``%20`` is three characters of a name.
    """
    return _LOCAL.sub("", path)


@dataclass(frozen=True, eq=False, slots=True)
class DeletedPositions:
    """The positions of the deleted rows of a data file."""

    #: position 0 is the lowest bit of the first word
    words: npt.NDArray[np.uint64]

    @classmethod
    def none_of(cls, rows: int) -> "DeletedPositions":
        """Returns the positions of a file with this number of rows, none of them deleted."""
        return cls(np.zeros((rows + 63) // 64, np.uint64))

    def add(self, positions: npt.NDArray[np.int64]) -> None:
        """Adds positions of the file."""
        bits = np.left_shift(np.uint64(1), (positions & 63).astype(np.uint64))
        np.bitwise_or.at(self.words, positions >> 6, bits)

    def kept(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Returns for each position of a range whether it is not deleted."""
        some = self.words[start >> 6 : (end + 63) >> 6].astype("<u8").view(np.uint8)
        bits: npt.NDArray[np.bool_] = np.unpackbits(some, bitorder="little") == 0
        first = start & 63
        return bits[first : first + end - start]

    def __len__(self) -> int:
        """Returns the number of different positions."""
        return int.from_bytes(self.words.tobytes(), "little").bit_count()


def deleted_positions(io: FileIO, files: Sequence[LiveFile]) -> dict[str, DeletedPositions]:
    """Returns the deleted positions by the paths of the files; omits files without any.

    Each delete file is read once, in batches. Positions that a file does not have are ignored, as
    readers do.

    Errors:
        UnsupportedFile: a delete file is neither Parquet nor a deletion vector, or contains the
            path of one of the files in another form than the table.
        LakeError: a delete file is missing, broken or not one of position deletes.
    """
    reached: dict[DeleteFile, list[LiveFile]] = defaultdict(list)
    found: dict[str, DeletedPositions] = {}
    for file in files:
        for delete in file.deletes:
            if delete.kind == DeleteKind.POSITION:
                reached[delete].append(file)
            elif delete.kind == DeleteKind.VECTOR:
                found[file.path] = _of_vector(io, delete, file)
    for delete, targets in reached.items():
        rows = 0
        named = {file.path: file for file in targets}
        keys = {file_key(file.path): file.path for file in targets}
        for path, positions in _named_positions(io, delete.path):
            rows += len(positions)
            target = named.get(path)
            if target is None:
                if other := keys.get(file_key(path)):
                    raise UnsupportedFile(
                        f"{delete.path} deletes rows of {path}, expected {other}, as the table has "
                        "it: some readers take this for one file, and others, Iceberg's own among "
                        "them, do not, so a merge would change the rows of either"
                    )
                continue
            inside = positions[(positions >= 0) & (positions < target.rows)]
            if len(inside):
                if target.path not in found:
                    found[target.path] = DeletedPositions.none_of(target.rows)
                found[target.path].add(inside)
        if rows != delete.rows:
            raise LakeError(f"{delete.path} has {rows} deletes, the table knows of {delete.rows}")
    return found


def _of_vector(io: FileIO, delete: DeleteFile, file: LiveFile) -> DeletedPositions:
    if delete.referenced != file.path:
        raise UnsupportedFile(
            f"{delete.path} deletes rows of {delete.referenced}, expected {file.path}, as the "
            "table has it: Iceberg's own readers do not take this for one file"
        )
    positions = vector_positions(io, plain_path(delete.path), delete)
    found = DeletedPositions.none_of(file.rows)
    found.add(positions[positions < file.rows])
    return found


def _named_positions(io: FileIO, path: str) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yields paths of data files, each with some positions in it."""
    try:
        with open_input(io, plain_path(path)) as stream:
            # The paths repeat: in a dictionary, each costs one number a row.
            names = _column_names(pq.ParquetFile(stream).schema_arrow, path)
            stream.seek(0)
            file = pq.ParquetFile(stream, read_dictionary=[names[0]])
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(names)):
                yield from _by_path(batch.column(names[0]), batch.column(names[1]), path)
    except pa.ArrowInvalid as error:
        raise UnsupportedFile(f"{path}: position deletes that are not Parquet: {error}") from error
    except OSError as error:
        raise LakeError(f"{path} cannot be read: {error}") from error


def _column_names(schema: pa.Schema, path: str) -> tuple[str, str]:
    by_id = {id_of(field): field.name for field in schema}
    # The names are as reserved as the ids, and some writers omit the ids.
    names = (by_id.get(DELETED_PATH, "file_path"), by_id.get(_DELETED_POSITION, "pos"))
    if not set(names) <= set(schema.names):
        raise LakeError(f"{path} has the columns {schema.names}, expected position deletes")
    return names


def _by_path(
    paths: pa.Array, positions: pa.Array, source: str
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    if paths.null_count or positions.null_count:
        raise LakeError(f"{source} holds a position delete without a path or a position")
    if not isinstance(paths, pa.DictionaryArray):
        paths = paths.dictionary_encode()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    sorted_positions = positions.to_numpy(zero_copy_only=False).astype(np.int64)[order]
    # The next path begins where the sorted codes change.
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    if not len(starts):
        return
    for start, some in zip(starts, np.split(sorted_positions, starts[1:]), strict=True):
        yield paths.dictionary[int(codes[order[start]])].as_py(), some


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualityChain:
    """Equality deletes over the same columns, each reaching all files of the shorter ones.

    A row of a data file is deleted if a delete with its values has at least the reach that the file
    needs.
    """

    field_ids: tuple[int, ...]
    deletes: tuple[DeleteFile, ...]
    #: by the paths of the delete files
    reach: Mapping[str, int]
    #: by the paths of data files to which any of the deletes applies
    need: Mapping[str, int]

    @property
    def rows(self) -> int:
        """The maximum number of values."""
        return sum(delete.rows for delete in self.deletes)


def equality_chains(files: Sequence[LiveFile]) -> list[EqualityChain]:
    """Returns the equality deletes of the files, in as few chains as a greedy search finds.

    Errors:
        LakeError: an equality delete does not name the columns that it compares.
    """
    reached: dict[DeleteFile, set[str]] = defaultdict(set)
    for file in files:
        for delete in file.deletes:
            if delete.kind == DeleteKind.EQUALITY:
                if not delete.equality_ids:
                    raise LakeError(f"{delete.path}: equality deletes over no columns")
                reached[delete].add(file.path)
    chains: dict[tuple[int, ...], list[list[DeleteFile]]] = defaultdict(list)
    for delete in sorted(reached, key=lambda one: (len(reached[one]), one.path)):
        same = chains[tuple(sorted(set(delete.equality_ids)))]
        for chain in same:
            if reached[chain[-1]] <= reached[delete]:
                chain.append(delete)
                break
        else:
            same.append([delete])
    return [
        _chain(field_ids, chain, reached) for field_ids, same in chains.items() for chain in same
    ]


def _chain(
    field_ids: tuple[int, ...], chain: Sequence[DeleteFile], reached: Mapping[DeleteFile, set[str]]
) -> EqualityChain:
    need: dict[str, int] = {}
    for delete in chain:
        for path in reached[delete]:
            need.setdefault(path, len(reached[delete]))
    return EqualityChain(
        field_ids=field_ids,
        deletes=tuple(chain),
        reach={delete.path: len(reached[delete]) for delete in chain},
        need=need,
    )
