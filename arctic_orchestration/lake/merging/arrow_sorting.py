"""Sorts rows with Arrow in bounded memory; what exceeds it passes through local files.

A sample of the keys parts the rows into ranges, each of which is sorted in memory. A range that is
still too large is parted again, by the next key if all its rows have the same value.

Source: W. D. Frazer, A. C. McKellar, Samplesort: A Sampling Approach to Minimal Storage Tree
Sorting (1970). G. M. Morton, A Computer Oriented Geodetic Data Base (1966), for curves.
"""

import itertools
import math
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType

from arctic_orchestration.lake.merging.sort_keys import Key, Order, key_values, one_array

MIB = 1 << 20
#: Decoded bytes that are sorted in memory; they are held twice for a moment.
SORTED_BYTES = 64 * MIB
#: Rows are parted into at most so many ranges, by a sample of at most so many keys and bytes.
_PARTS, _SAMPLED, _SAMPLED_BYTES = 64, 40_000, 16 * MIB
#: A curve takes so many bits of the rank of a value among all.
CURVE_BITS = 6
SLICE_BYTES = 16 * MIB


#: the place on a curve
_PLACE = Key(path=(), kind=LongType())


#: Reads the rows from the beginning: all columns, or only those with these names.
Source = Callable[[list[str] | None], Iterator[pa.Table]]


def sorted_rows(
    source: Source, order: Order, most_bytes: int = SORTED_BYTES
) -> Generator[pa.Table, None, None]:
    """Yields the rows in pieces of about 16 MiB, sorted; floats as Iceberg orders them.

    The columns of the keys are read twice if a sample is needed. Local files are written where
    Spark's workers have theirs, as many decoded bytes as there are, and removed.

    Args:
        most_bytes: how many decoded bytes are sorted in memory.

    Errors:
        OSError, ArrowException: rows cannot be read, or local files not be written.
    """
    keys = order.keys
    if order.curve:
        on_curve = _curve(source, keys)
        keys = (_PLACE,)

    def keyed(table: pa.Table) -> pa.Table:
        for key in keys:
            values = on_curve(table) if order.curve else key_values(table, key)
            table = table.append_column("", values)
        return table

    def first_key() -> Iterator[pa.Array]:
        for table in source(_names(order.keys if order.curve else keys[:1])):
            yield on_curve(table) if order.curve else key_values(table, keys[0])

    tables = map(keyed, together(source(None)))
    held: list[pa.Table] = []
    held_bytes = 0
    while held_bytes <= most_bytes:
        table = next(tables, None)
        if table is None:
            yield from _sorted_in_memory(held, keys)
            return
        held.append(table)
        held_bytes += table.nbytes
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with tempfile.TemporaryDirectory(prefix="arctic-sort-", dir=folder) as local:
        bounds = _Bounds.of(first_key())
        everything = itertools.chain(_taken(held), tables)
        yield from _Sorter(Path(local), keys, most_bytes).sorted_by_parts(everything, 0, bounds)


def _taken(held: list[pa.Table]) -> Iterator[pa.Table]:
    """Yields and releases the tables."""
    while held:
        yield held.pop(0)


def _names(keys: Sequence[Key]) -> list[str]:
    return list(dict.fromkeys(key.path[0] for key in keys))


class _Sample:
    """Values at equal distances, the fewer the more there are."""

    def __init__(self) -> None:
        self._step = 1
        self._seen = 0
        self._kept: list[pa.Array] = []
        self._count = self._bytes = 0

    def add(self, values: pa.Array) -> None:
        first = -self._seen % self._step
        self._seen += len(values)
        self._keep(values, first, self._step)
        while self._count > _SAMPLED or (self._bytes > _SAMPLED_BYTES and self._count > 1):
            whole = pa.concat_arrays(self._kept)
            self._kept = []
            self._count = self._bytes = 0
            self._keep(whole, 0, 2)
            self._step *= 2

    def _keep(self, values: pa.Array, first: int, step: int) -> None:
        kept = values.take(pa.array(np.arange(first, len(values), step)))
        self._kept.append(kept)
        self._count += len(kept)
        self._bytes += kept.nbytes

    def in_order(self) -> pa.Array:
        """Returns the values without nulls, sorted."""
        values = (
            pa.concat_arrays(self._kept).drop_null() if self._kept else pa.array([], pa.int64())
        )
        return values.take(pc.sort_indices(values))


def _evenly(values: pa.Array, count: int) -> pa.Array:
    """Returns the values that part sorted ones into equal shares; frequent ones come twice."""
    if not len(values):
        return values
    shares = np.arange(1, count) / count
    return values.take(pa.array(np.ceil(shares * len(values)).astype(np.int64) - 1))


@dataclass(frozen=True)
class _Bounds:
    """The values between ranges; a frequent one has a range of its own."""

    above: pa.Array
    frequent: pa.Array

    @staticmethod
    def of(keys: Iterable[pa.Array], parts: int = _PARTS) -> "_Bounds":
        sample = _Sample()
        for values in keys:
            sample.add(values)
        found = pc.value_counts(_evenly(sample.in_order(), parts))
        values, counts = found.field("values"), found.field("counts")
        return _Bounds(values, values.filter(pc.greater(counts, 1)))

    def ranges(self, values: pa.Array, key: Key) -> Any:
        """Returns the number of each row's range, in the wanted order."""
        numbers = _count(self.above, values, pc.greater)
        numbers += _count(self.frequent, values, pc.greater_equal)
        most = len(self.above) + len(self.frequent)
        if key.descending:
            numbers = most - numbers
        if values.null_count:
            nulls = values.is_null().to_numpy(zero_copy_only=False)
            numbers = np.where(nulls, 0 if key.nulls_first else most + 2, numbers + 1)
        else:
            numbers += 1
        return numbers.astype(np.int16)


def _count(bounds: pa.Array, values: pa.Array, compare: Callable[..., Any]) -> Any:
    """Returns how many of the sorted bounds each value exceeds; of nulls any number."""
    if pa.types.is_integer(values.type):
        known = values.fill_null(0).to_numpy()
        return np.searchsorted(
            bounds.to_numpy(), known, side="left" if compare is pc.greater else "right"
        )
    encoded = values.dictionary_encode()
    numbers = np.zeros(len(encoded.dictionary) + 1, np.int64)
    for bound in bounds:
        numbers[:-1] += compare(encoded.dictionary, bound).to_numpy(zero_copy_only=False)
    return numbers[encoded.indices.fill_null(-1).to_numpy()]


def _curve(source: Source, keys: Sequence[Key]) -> Callable[[pa.Table], pa.Array]:
    """Returns what computes the places of rows on the curve, as whole numbers.

    They are the bits of a row's ranks in turn, the highest first. Of ranks instead of values, which
    are seldom spread evenly; a null has the lowest.
    """
    samples = [_Sample() for _ in keys]
    for table in source(_names(keys)):
        for key, sample in zip(keys, samples, strict=True):
            sample.add(key_values(table, key))
    bounds = [_evenly(sample.in_order(), 1 << CURVE_BITS) for sample in samples]

    def places(table: pa.Table) -> pa.Array:
        place = np.zeros(len(table), np.int64)
        for number, (key, known) in enumerate(zip(keys, bounds, strict=True)):
            values = key_values(table, key)
            ranks = _count(known, values, pc.greater)
            if values.null_count:
                ranks[values.is_null().to_numpy(zero_copy_only=False)] = 0
            for bit in range(CURVE_BITS):
                # Of two bits with the same weight, that of the earlier column is the higher one.
                to = bit * len(keys) + len(keys) - 1 - number
                place |= (ranks >> bit & 1) << to
        return pa.array(place)

    return places


def _sorted_in_memory(tables: list[pa.Table], keys: Sequence[Key]) -> Iterator[pa.Table]:
    """Yields the rows without the keys, which are the last columns."""
    if not tables:
        return
    whole = pa.concat_tables(tables).combine_chunks()
    tables.clear()
    first = whole.num_columns - len(keys)
    columns: dict[str, Any] = {}
    order = []
    for number, key in enumerate(keys):
        values = whole.column(first + number)
        if values.null_count:
            columns[f"known {number}"] = values.is_valid().cast(pa.int8())
            order.append((f"known {number}", "ascending" if key.nulls_first else "descending"))
        columns[f"value {number}"] = values
        order.append((f"value {number}", "descending" if key.descending else "ascending"))
    places = pc.sort_indices(pa.table(columns), sort_keys=order)
    columns.clear()
    whole = whole.select(range(first))
    most = max(1, int(SLICE_BYTES / max(1, whole.nbytes) * len(whole)))
    for start in range(0, len(whole), most):
        yield whole.take(places.slice(start, most))


def together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields tables of one chunk and about 16 MiB."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size >= SLICE_BYTES:
            yield pa.concat_tables(held).combine_chunks()
            held, size = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


class _Part:
    """The rows of a range, in a local file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = self.bytes = 0
        self._path = path
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._file, schema)

    def add(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self.rows += len(table)
        self.bytes += table.nbytes

    def close(self) -> None:
        self._writer.close()
        self._file.close()

    def tables(self) -> Iterator[pa.Table]:
        with pa.memory_map(str(self._path)) as file:
            for batch in pa.ipc.open_stream(file):
                yield pa.Table.from_batches([batch])

    def remove(self) -> None:
        self._path.unlink()


class _Sorter:
    """Sorts more rows than fit into memory; the keys are the last columns."""

    def __init__(self, folder: Path, keys: Sequence[Key], most_bytes: int) -> None:
        self._folder = folder
        self._keys = keys
        self._most_bytes = most_bytes
        self._names = itertools.count()

    def sorted_by_parts(
        self, tables: Iterable[pa.Table], number: int, bounds: _Bounds
    ) -> Iterator[pa.Table]:
        """Yields the rows without the keys.

        Args:
            number: of the key that has the bounds; all rows agree in those before it.
        """
        small: list[_Part] = []
        for part in self._parted(tables, number, bounds):
            if sum(one.bytes for one in (*small, part)) > self._most_bytes:
                yield from self._in_memory(small)
            if part.bytes <= self._most_bytes:
                small.append(part)
            else:
                yield from self._large(part, number)
        yield from self._in_memory(small)

    def _parted(self, tables: Iterable[pa.Table], number: int, bounds: _Bounds) -> list[_Part]:
        """Writes the rows into a file for each range; returns these in their order."""
        parts: dict[int, _Part] = {}
        for table in tables:
            ranges = bounds.ranges(self._key(table, number), self._keys[number])
            places = np.argsort(ranges, kind="stable")
            ranges = ranges[places]
            if ranges[0] != ranges[-1]:
                table = table.take(pa.array(places))
            found, starts = np.unique(ranges, return_index=True)
            for one, start, end in zip(found, starts, [*starts[1:], len(ranges)], strict=True):
                if one not in parts:
                    parts[one] = _Part(self._folder / str(next(self._names)), table.schema)
                parts[one].add(table.slice(start, end - start))
        for part in parts.values():
            part.close()
        return [parts[number] for number in sorted(parts)]

    def _key(self, table: pa.Table, number: int) -> pa.Array:
        return one_array(table.column(table.num_columns - len(self._keys) + number))

    def _in_memory(self, parts: list[_Part]) -> Iterator[pa.Table]:
        tables = [table for part in parts for table in part.tables()]
        yield from _sorted_in_memory(tables, self._keys)
        for part in parts:
            part.remove()
        parts.clear()

    def _large(self, part: _Part, number: int) -> Iterator[pa.Table]:
        """Parts it again, by the next key if all rows agree in this one."""
        while number < len(self._keys) and self._is_constant(part, number):
            number += 1
        if number == len(self._keys):
            for table in part.tables():
                yield table.select(range(table.num_columns - len(self._keys)))
        else:
            found = (self._key(table, number) for table in part.tables())
            bounds = _Bounds.of(found, min(_PARTS, 2 * math.ceil(part.bytes / self._most_bytes)))
            yield from self.sorted_by_parts(part.tables(), number, bounds)
        part.remove()

    def _is_constant(self, part: _Part, number: int) -> bool:
        found = [self._key(table, number) for table in part.tables()]
        nulls = sum(one.null_count for one in found)
        ends = [end for one in found for end in pc.min_max(one).values()]
        return nulls == part.rows or (not nulls and all(end == ends[0] for end in ends))
