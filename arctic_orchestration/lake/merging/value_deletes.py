"""Equality deletes with Arrow: which rows have the values of a delete that reaches their file.

Equality is that of the specification: nulls are equal, a NaN equals a NaN, zero and minus zero
differ.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from arctic_orchestration.lake.arrow_rows import rows_of
from arctic_orchestration.lake.merging.deletes import EqualityChain
from arctic_orchestration.lake.schema import path_of

#: The maximum number of deletes of one chain in memory.
MOST_HASHED = 1_000_000
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

    def delete(self, rows: pa.Table, file: str) -> npt.NDArray[np.bool_] | None:
        """Returns for each row of a data file whether it is deleted; None: no delete applies."""
        need = self.chain.need.get(file)
        if need is None:
            return None
        columns = [_comparable(rows, path) for path in self.paths]
        numbers = _numbers(columns[0], self.known[0])
        for one, found, pairs in zip(columns[1:], self.known[1:], self.pairs, strict=True):
            number = _numbers(one, found)
            pair = np.where((numbers < 0) | (number < 0), -1, numbers * len(found) + number)
            place = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
            numbers = np.where(pairs[place] == pair, place, -1)
        gone: npt.NDArray[np.bool_] = (numbers >= 0) & (self.reach[numbers] >= need)
        return gone


def deleted_by_value(
    deletes: Sequence[ValueDeletes], rows: Iterable[pa.Table], file: str
) -> npt.NDArray[np.bool_] | None:
    """Returns for each row whether any delete applies to it; None: none applies to the file.

    Args:
        rows: the compared columns of each of the chains.
    """
    found = [one.delete(table, file) for one, table in zip(deletes, rows, strict=True)]
    some = [gone for gone in found if gone is not None]
    return np.logical_or.reduce(some) if some else None


def _numbers(values: pa.Array, known: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the place of each value among the known ones; -1: it is none of them."""
    found = pc.index_in(values, value_set=known).fill_null(-1)
    return np.asarray(found.to_numpy(), np.int64)


def _comparable(table: pa.Table, path: tuple[str, ...]) -> pa.Array:
    """Returns a column in a type whose equality is that of the specification."""
    values: Any = table.column(path[0]).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    for name in path[1:]:
        values = pc.struct_field(values, [name])
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if not pa.types.is_floating(values.type):
        return values
    floats = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(bits, mask=mask)
