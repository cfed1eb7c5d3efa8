"""Equality deletes with Arrow: which rows have the values of a delete that reaches their file.

Equality is that of the specification: nulls are equal, a NaN equals a NaN, zero and minus zero
differ.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from arctic_orchestration.lake.arrow_rows import rows_of
from arctic_orchestration.lake.merging.arrow_sorting import together
from arctic_orchestration.lake.merging.deletes import EqualityChain
from arctic_orchestration.lake.merging.sort_keys import field_values, float_bits, one_array
from arctic_orchestration.lake.schema import path_of

#: The maximum number of deletes in memory, and of their decoded bytes: for a moment, a worker has
#: five times as many.
MOST_HASHED, MOST_HASHED_BYTES = 1_000_000, 64 << 20
#: The need of a file to which no delete applies.
_NEVER = np.iinfo(np.int64).max
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, eq=False)
class ValueDeletes:
    """The deletes of a chain, by their values.

    The values of the columns become numbers, and pairs of numbers become a number, one column after
    the other.
    """

    chain: EqualityChain
    paths: tuple[tuple[str, ...], ...]
    #: the different values of each column
    known: tuple[pa.Array, ...]
    #: the sorted pairs of the number so far and that of the next column
    pairs: tuple[npt.NDArray[np.int64], ...]
    #: how far the deletes with the last number reach
    reach: npt.NDArray[np.int64]

    @classmethod
    def read(cls, io: FileIO, chain: EqualityChain, columns: Schema) -> "ValueDeletes":
        """Reads the delete files of a chain.

        Errors:
            LakeError, OSError, ArrowException: a file cannot be read.
        """
        paths = tuple(path_of(columns, field_id) for field_id in chain.field_ids)
        tables, reaches = [], []
        for delete in chain.deletes:
            for table in rows_of(io, delete.path, (columns,), None, _PIECE_BYTES):
                tables.append(table)
                reaches.append(np.full(len(table), chain.reach[delete.path], np.int64))
        values = [
            pa.concat_arrays([_comparable(table, path) for table in tables]) for path in paths
        ]
        known = tuple(pc.unique(one) for one in values)
        numbers = _numbers(values[0], known[0])
        pairs = []
        for one, found in zip(values[1:], known[1:], strict=True):
            pair = numbers * len(found) + _numbers(one, found)
            pairs.append(np.unique(pair))
            numbers = np.searchsorted(pairs[-1], pair)
        reach = np.zeros(len(pairs[-1] if pairs else known[0]), np.int64)
        np.maximum.at(reach, numbers, np.concatenate(reaches))
        return cls(chain, paths, known, tuple(pairs), reach)

    def columns(self, rows: pa.Table, file: str) -> list[pa.Array]:
        """Returns what :meth:`deleted` compares of the rows of a data file."""
        need = pa.repeat(pa.scalar(self.chain.need.get(file, _NEVER), pa.int64()), len(rows))
        return [*(_comparable(rows, path) for path in self.paths), need]

    def deleted(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Returns for each row whether it is deleted; rows may be of several files."""
        *values, need = columns
        needed = need.to_numpy()
        if not len(needed) or needed.min() == _NEVER:
            return np.zeros(len(needed), np.bool_)
        numbers = _numbers(values[0], self.known[0])
        for one, found, pairs in zip(values[1:], self.known[1:], self.pairs, strict=True):
            number = _numbers(one, found)
            pair = np.where((numbers < 0) | (number < 0), -1, numbers * len(found) + number)
            place = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
            numbers = np.where(pairs[place] == pair, place, -1)
        gone: npt.NDArray[np.bool_] = (numbers >= 0) & (self.reach[numbers] >= needed)
        return gone


def without_deleted(
    tables: Iterable[pa.Table], deletes: Sequence[ValueDeletes], counted: Counter[str]
) -> Generator[pa.Table, None, None]:
    """Yields the rows that no delete deletes, without the columns that are compared.

    The values of the deletes are hashed for each piece, so that small ones are put together.

    Args:
        tables: their last columns are :meth:`ValueDeletes.columns`, for one after the other.
        counted: the number of rows is added as ``deleted``.
    """
    width = sum(len(one.paths) + 1 for one in deletes)
    for table in together(tables):
        compared = [one_array(column) for column in table.columns[table.num_columns - width :]]
        gone = np.zeros(len(table), np.bool_)
        for one in deletes:
            own, compared = compared[: len(one.paths) + 1], compared[len(one.paths) + 1 :]
            gone |= one.deleted(own)
        counted["deleted"] += int(gone.sum())
        rows = table.select(range(table.num_columns - width))
        if gone.any():
            rows = rows.filter(pa.array(~gone))
        if len(rows):
            yield rows


def _numbers(values: pa.Array, known: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the place of each value among the known ones; -1: it is none of them."""
    found = pc.index_in(values, value_set=known).fill_null(-1)
    return np.asarray(found.to_numpy(), np.int64)


def _comparable(table: pa.Table, path: tuple[str, ...]) -> pa.Array:
    """Returns a column in a type whose equality is that of the specification."""
    values = field_values(table, path)
    return float_bits(values) if pa.types.is_floating(values.type) else values
