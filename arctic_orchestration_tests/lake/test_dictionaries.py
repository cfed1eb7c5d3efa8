"""Columns for which dictionaries did nothing in the inputs have none in the outputs."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType

from arctic_orchestration.lake import arrow_files
from arctic_orchestration.lake.merging.arrow_rewrite import rewrite_files
from arctic_orchestration_tests.lake.test_rewriting import (
    LOCAL,
    by_arrow,
    inputs_of,
    plain_of,
    written,
)

ROWS = 10_000
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "word", StringType()),
    NestedField(3, "text", StringType()),
    NestedField(4, "price", DoubleType()),
    NestedField(5, "all", ListType(6, LongType(), element_required=False)),
)
#: Distinct: ids and texts. Three words, a hundred prices; lists are left to Arrow.
WITH_DICTIONARY = {"word", "price", "all.list.element"}


def rows_from(first: int) -> pa.Table:
    numbers = range(first, first + ROWS)
    return pa.table(
        {
            "id": numbers,
            "word": [("one", "two", None)[number % 3] for number in numbers],
            "text": [f"the text {number * 7919}" for number in numbers],
            "price": [number % 100 / 4 for number in numbers],
            "all": [[number, None] for number in numbers],
        },
        schema_to_pyarrow(SCHEMA),
    )


def with_dictionary(path: str) -> set[str]:
    metadata = pq.read_metadata(path)
    return {
        column.path_in_schema
        for group in map(metadata.row_group, range(metadata.num_row_groups))
        for column in map(group.column, range(group.num_columns))
        if column.has_dictionary_page
    }


def merge(place: Path, schema: Schema, paths: list[str], **writing: Any) -> list[str]:
    rewriting = plain_of(schema, **writing)
    return rewrite_files(LOCAL, inputs_of(schema, *paths), str(place), rewriting, name="out").paths


def test_distinct_values_get_no_dictionary(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{n}.parquet", rows_from(n * ROWS)) for n in range(3)]
    assert with_dictionary(paths[0]) == WITH_DICTIONARY | {"id", "text"}
    outputs = merge(tmp_path, SCHEMA, paths, rows=2 * ROWS)
    assert [with_dictionary(path) for path in outputs] == [WITH_DICTIONARY] * 2
    assert by_arrow(outputs) == by_arrow(paths)
    # The outputs are no larger than those of Arrow's choice.
    as_before = written(tmp_path / "as before.parquet", pq.read_table(outputs[0]))
    assert Path(outputs[0]).stat().st_size <= Path(as_before).stat().st_size


def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    """After a renaming, the name of the distinct column is that of another one."""
    names = {"id": "word", "word": "id"}
    swapped = Schema(
        *(
            field.model_copy(update={"name": names.get(field.name, field.name)})
            for field in SCHEMA.fields
        )
    )
    (output,) = merge(tmp_path, swapped, [written(tmp_path / "in.parquet", rows_from(0))])
    assert with_dictionary(output) == {"id", "price", "all.list.element"}


def test_inputs_without_dictionaries_show_nothing(tmp_path: Path) -> None:
    """Another writer may do without them everywhere."""
    one = written(tmp_path / "in.parquet", rows_from(0), use_dictionary=False)
    assert with_dictionary(one) == set()
    (output,) = merge(tmp_path, SCHEMA, [one])
    assert with_dictionary(output) == WITH_DICTIONARY | {"id", "text"}


def test_values_that_repeat_from_file_to_file_keep_their_dictionary(tmp_path: Path) -> None:
    """Half of the values in a file are distinct: it takes three quarters of their plain size."""
    schema = Schema(NestedField(1, "id", LongType()))
    rows = pa.table({"id": [number // 2 for number in range(ROWS)]}, schema_to_pyarrow(schema))
    paths = [written(tmp_path / f"{number}.parquet", rows) for number in range(2)]
    (output,) = merge(tmp_path, schema, paths)
    assert with_dictionary(output) == {"id"}


def test_files_after_the_first_begin_with_larger_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file with one row group; and no larger than rows of the width before allow."""
    monkeypatch.setattr(arrow_files, "_FIRST_ROWS", 1_000)
    monkeypatch.setattr(arrow_files, "_NEXT_FIRST_ROWS", 4_000)
    one = written(tmp_path / "in.parquet", rows_from(0))
    observed = arrow_files.Observed()

    def first_piece(most: int) -> int:
        found = arrow_files.pieces(LOCAL, one, most, lambda rows: rows, observed=observed)
        first, *_ = map(len, found)
        return first

    assert [first_piece(32 << 20) for _ in range(2)] == [1_000, 4_000]
    assert 60 < observed.width < 100
    observed.width = 10_000
    assert first_piece(5_000_000) == 500
    assert first_piece(5_000_000) == 4_000
