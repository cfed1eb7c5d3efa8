"""Sorts the rows of a merge, so that each of its files has a narrow range of values."""

import math
from collections.abc import Sequence
from typing import Any

import pyspark.sql.functions as F
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, StringType, TimestampType
from pyspark.sql import Column, DataFrame

from arctic_orchestration.lake.merging.sort_keys import Key, order_of
from arctic_orchestration.lake.partitioning import transformed
from arctic_orchestration.lake.schema import column_at

#: A z-order takes so many bits of the rank of a value among all.
_BITS = 6
#: the precision of the ranks
_ACCURACY = 10_000
_SHARES = [n / (1 << _BITS) for n in range(1, 1 << _BITS)]
#: how many texts are collected for their ranks, and how much of each
_SAMPLED, _TEXT_LENGTH = 10_000, 200


def sorted_rows(rows: DataFrame, table: Table, count: int) -> DataFrame:
    """Returns the rows, sorted within each partition of the data frame.

    By the property ``arctic.compaction.sort``, else by the table's sort order, else as they are.
    A z-order costs one more job, which reads the rows for the ranks of their values.

    Args:
        count: how many rows there are, about.

    Errors:
        InvalidInput: the property is invalid.
    """
    order = order_of(table, constant=())
    if order is None:
        return rows
    if order.curve:
        return _along_a_curve(rows, count, order.keys)
    return rows.sortWithinPartitions(*map(_sort_key, order.keys))


def _sort_key(key: Key) -> Column:
    column = transformed(key.transform or IdentityTransform(), key.path, key.kind)
    if key.descending:
        return F.desc_nulls_first(column) if key.nulls_first else F.desc_nulls_last(column)
    return F.asc_nulls_first(column) if key.nulls_first else F.asc_nulls_last(column)


def _along_a_curve(rows: DataFrame, count: int, keys: Sequence[Key]) -> DataFrame:
    """Sorts by the place on a curve: the bits of a row's ranks in turn, the highest first.

    Source: G. M. Morton, A Computer Oriented Geodetic Data Base (1966). Of ranks instead of values,
    which are seldom spread evenly.
    """
    values = [_value(key) for key in keys]
    kinds = [isinstance(key.kind, StringType) for key in keys]
    # Spark has no percentiles of texts: those of some rows are collected.
    chosen = F.rand(1) < min(1.0, _SAMPLED / max(1, count))
    given = rows.select(
        *(
            (F.when(chosen, F.substring(one, 1, _TEXT_LENGTH)) if is_text else one).alias(
                f"v{place}"
            )
            for place, (one, is_text) in enumerate(zip(values, kinds, strict=True))
        )
    )
    found = [
        F.collect_list(f"v{place}")
        if is_text
        else F.percentile_approx(f"v{place}", _SHARES, _ACCURACY)
        for place, is_text in enumerate(kinds)
    ]
    (seen,) = given.select(*(one.alias(f"s{place}") for place, one in enumerate(found))).collect()
    ranks = [
        _rank(one, _evenly(sorted(known)), "string")
        if is_text
        else _rank(one, known or (), "double")
        for one, known, is_text in zip(values, seen, kinds, strict=True)
    ]
    # Columns, so that each rank is computed once and not for each of its bits.
    name = "rank"
    while any(column.startswith(name) for column in rows.columns):
        name += "_"
    names = [f"{name}{number}" for number in range(len(ranks))]
    ranked = rows.select("*", *(one.alias(name) for one, name in zip(ranks, names, strict=True)))
    place = F.lit(0).cast("long")
    for bit in range(_BITS):
        for number, name in enumerate(names):
            # Of two bits with the same weight, that of the earlier column is the higher one.
            to = bit * len(names) + len(names) - 1 - number
            one = F.shiftright(F.col(name), bit).bitwiseAND(F.lit(1)).cast("long")
            place = place.bitwiseOR(F.shiftleft(one, to))
    return ranked.sortWithinPartitions(place).drop(*names)


def _evenly(found: Sequence[Any]) -> list[Any]:
    """Returns the values that part the sorted ones into equal shares; frequent ones come twice."""
    if not found:
        return []
    return [found[math.ceil(share * len(found)) - 1] for share in _SHARES]


def _rank(value: Column, bounds: Sequence[Any], kind: str) -> Column:
    """Returns how many of the bounds are below the value; 0 without a value."""
    known = [F.lit(one).cast(kind) for one in bounds]

    def between(least: int, most: int) -> Column:
        # A search by halves: Spark compiles it, which it does not with functions of arrays.
        if least == most:
            return F.lit(least)
        middle = (least + most) // 2
        above = value > known[middle]
        return F.when(above, between(middle + 1, most)).otherwise(between(least, middle))

    return between(0, len(known))


def _value(key: Key) -> Column:
    """Returns a text, or a number with the order of the column's values."""
    column = column_at(key.path)
    if isinstance(key.kind, StringType):
        return column
    if isinstance(key.kind, DateType):
        return F.datediff(column, F.lit("1970-01-01").cast("date")).cast("double")
    if isinstance(key.kind, TimestampType):
        # One without a zone is no number by itself; sessions have the zone UTC.
        column = column.cast("timestamp")
    return column.cast("double")
