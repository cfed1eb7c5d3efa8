"""Columns for which dictionaries did nothing in the inputs have none in the outputs."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType

from arctic_orchestration.lake import arrow_files
from arctic_orchestration.lake.arrow_rows import rows_of
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


DICTIONARY = pa.dictionary(pa.int32(), pa.string())
TEXT = Schema(NestedField(1, "word", StringType()), NestedField(2, "id", LongType()))


def texts(path: Path, words: Sequence[str | None], **options: Any) -> str:
    rows = pa.table({"word": words, "id": range(len(words))}, schema_to_pyarrow(TEXT))
    return written(path, rows, **options)


def words_of(paths: Sequence[str]) -> list[str | None]:
    """Of files of which one may lack the column."""
    found: list[str | None] = []
    for path in paths:
        rows = pq.read_table(path)
        has_words = "word" in rows.column_names
        found += rows["word"].to_pylist() if has_words else [None] * len(rows)
    return found


class Bounds(NamedTuple):
    rows: int
    nulls: int
    lowest: str | None
    highest: str | None


def bounds(paths: Sequence[str]) -> list[Bounds]:
    """Of the words in each row group."""
    found = []
    for path in paths:
        metadata = pq.read_metadata(path)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            known = group.column(0).statistics
            found.append(Bounds(group.num_rows, known.null_count, known.min, known.max))
    return found


def rewritten_both_ways(place: Path, paths: list[str], **writing: Any) -> list[list[str]]:
    """With dictionaries where the first file allows it, and with plain texts, the control."""
    found = []
    for most in (arrow_files._SMALL_TEXT, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow_files, "_SMALL_TEXT", most)
            (place / str(most)).mkdir()
            found.append(merge(place / str(most), TEXT, paths, **writing))
    return found


def test_small_texts_are_the_same_as_dictionaries(tmp_path: Path) -> None:
    """Other words in each file, nulls alone, no column, no dictionary, and too many words."""
    paths = [
        texts(tmp_path / "0.parquet", ["b", "c", None, "b"] * 500),
        texts(tmp_path / "1.parquet", ["", "d", "\U0001f6eb", "a"] * 500),
        texts(tmp_path / "2.parquet", [None] * 100),
        texts(tmp_path / "3.parquet", ["b", "z"] * 500, use_dictionary=False),
        texts(tmp_path / "4.parquet", [f"the word {number:030}" for number in range(60_000)]),
        texts(tmp_path / "5.parquet", []),
    ]
    without = pa.table({"id": [1, 2]}, pa.schema([schema_to_pyarrow(TEXT).field("id")]))
    paths.append(written(tmp_path / "6.parquet", without))
    paths.append(texts(tmp_path / "7.parquet", ["y"] * 100))
    as_dictionaries, plain = rewritten_both_ways(tmp_path, paths, rows=20_000)
    assert words_of(as_dictionaries) == words_of(plain) == words_of(paths)
    assert bounds(as_dictionaries) == bounds(plain)
    observed = arrow_files.Observed(texts=frozenset([1]))
    for path in paths[:2]:
        (piece,) = rows_of(LOCAL, path, (TEXT,), None, 1 << 20, observed=observed)
        assert piece.schema.field("word").type == DICTIONARY


def test_texts_that_are_not_small_in_the_first_file_stay_texts(tmp_path: Path) -> None:
    observed = arrow_files.Observed(texts=frozenset([1]))
    for words in ([f"word {number}" for number in range(1_000)], ["a", "b"] * 500):
        path = texts(tmp_path / f"{words[0]}.parquet", words)
        (piece,) = rows_of(LOCAL, path, (TEXT,), None, 1 << 20, observed=observed)
        assert piece.schema.field("word").type == pa.string()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.lists(st.none() | st.text(max_size=3), max_size=9), st.booleans()), min_size=1
    ),
    st.integers(1, 20),
)
def test_any_texts_are_the_same_as_dictionaries(
    tmp_path: Path, files: list[tuple[list[str | None], bool]], rows: int
) -> None:
    with TemporaryDirectory(dir=tmp_path) as name, pytest.MonkeyPatch.context() as patch:
        place = Path(name)
        paths = [
            texts(place / f"{number}.parquet", words, use_dictionary=has_dictionary)
            for number, (words, has_dictionary) in enumerate(files)
        ]
        patch.setattr(arrow_files, "_SMALL_TEXT", 1_000)
        as_dictionaries, plain = rewritten_both_ways(place, paths, rows=rows)
        assert words_of(as_dictionaries) == words_of(plain) == words_of(paths)
        # Arrow's bounds of some nulls may contain a text that the row group does not have.
        for one, other in zip(bounds(as_dictionaries), bounds(plain), strict=True):
            assert (one.rows, one.nulls) == (other.rows, other.nulls)
            if other.lowest is not None and other.highest is not None:
                assert str(one.lowest) <= other.lowest <= other.highest <= str(one.highest)
