"""Columns for which dictionaries did nothing in the inputs have none in the outputs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType

from arctic_orchestration.lake import arrow_files, ensure_table
from arctic_orchestration.lake.arrow_files import small_texts
from arctic_orchestration.lake.arrow_rows import rows_of
from arctic_orchestration.lake.merging.arrow_rewrite import rewrite_files
from arctic_orchestration.lake.merging.deletes import DeletedPositions
from arctic_orchestration.lake.merging.plain_files import PlainFile, PlainFiles, plain_files
from arctic_orchestration.lake.name_mapping import id_of
from arctic_orchestration_tests.lake.stored_tables import group_of
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
    inputs = replace(inputs_of(schema, *paths), texts=texts_of(schema, paths))
    return rewrite_files(LOCAL, inputs, str(place), rewriting, name="out").paths


def texts_of(schema: Schema, paths: Sequence[str]) -> frozenset[int]:
    """The texts that stay dictionaries."""
    found = [one.field_id for one in schema.fields if one.field_type == StringType()]
    files = map(pq.read_metadata, paths)
    return small_texts(((one, ids_of(one.schema.to_arrow_schema())) for one in files), found)


def ids_of(schema: pa.Schema) -> dict[str, int | None]:
    return {one.name: id_of(one) for one in schema}


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
    """With dictionaries where the files allow it, and with plain texts, the control."""
    found = []
    for most in (arrow_files._SMALL_TEXT, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow_files, "_SMALL_TEXT", most)
            (place / str(most)).mkdir()
            found.append(merge(place / str(most), TEXT, paths, **writing))
    return found


def test_small_texts_are_the_same_as_dictionaries(tmp_path: Path) -> None:
    """Other words in each file, nulls alone, no column, and no row."""
    paths = [
        texts(tmp_path / "0.parquet", ["b", "c", None, "b"] * 500),
        texts(tmp_path / "1.parquet", ["", "d", "\U0001f6eb", "a"] * 500),
        texts(tmp_path / "2.parquet", [None] * 100),
        texts(tmp_path / "3.parquet", []),
    ]
    without = pa.table({"id": [1, 2]}, pa.schema([schema_to_pyarrow(TEXT).field("id")]))
    paths.append(written(tmp_path / "4.parquet", without))
    paths.append(texts(tmp_path / "5.parquet", ["y"] * 100))
    assert texts_of(TEXT, paths) == {1}
    as_dictionaries, plain = rewritten_both_ways(tmp_path, paths, rows=1_500)
    assert words_of(as_dictionaries) == words_of(plain) == words_of(paths)
    assert bounds(as_dictionaries) == bounds(plain)
    observed = arrow_files.Observed(texts=frozenset([1]))
    for path in paths[:2]:
        (piece,) = rows_of(LOCAL, path, (TEXT,), None, 1 << 20, observed=observed)
        assert piece.schema.field("word").type == DICTIONARY


@pytest.mark.parametrize(
    "words", [[f"the word {number:030}" for number in range(60_000)], ["b", "z"] * 500]
)
def test_texts_that_are_large_in_any_file_stay_texts(tmp_path: Path, words: list[str]) -> None:
    """Or have no dictionary in one: Arrow would collect all that follow in one of its own."""
    paths = [
        texts(tmp_path / "0.parquet", ["a", "b"] * 500),
        texts(tmp_path / "1.parquet", words, use_dictionary=len(words) > 1_000),
    ]
    assert texts_of(TEXT, paths[:1]) == {1}
    assert texts_of(TEXT, paths) == frozenset()
    (output,) = merge(tmp_path, TEXT, paths)
    assert words_of([output]) == words_of(paths)


def test_a_large_dictionary_is_not_kept(tmp_path: Path) -> None:
    """Each piece of its row group would have a copy, and row groups would be small."""
    words = [f"text {number * 7919 % 14_000:07}" for number in range(200_000)]
    path = texts(tmp_path / "in.parquet", words)
    column = pq.read_metadata(path).row_group(0).column(0)
    assert column.total_uncompressed_size < 3 * len(words)
    assert texts_of(TEXT, [path]) == frozenset()


def test_nothing_is_left_of_deleted_texts(tmp_path: Path) -> None:
    """Neither in the file nor in its bounds; the input's dictionary has them."""
    words = [None if number % 2 else "bob" for number in range(1_000)]
    path = texts(tmp_path / "in.parquet", ["secret", *words, "zorro"])
    deleted = DeletedPositions.none_of(1_002)
    deleted.add(np.array([0, 1_001]))
    inputs = PlainFiles(
        files=(PlainFile(path=path, deleted=deleted),), schema=TEXT, texts=texts_of(TEXT, [path])
    )
    assert inputs.texts == {1}
    (output,) = rewrite_files(LOCAL, inputs, str(tmp_path), plain_of(TEXT), name="out").paths
    assert words_of([output]) == words
    assert bounds([output]) == [Bounds(1_000, 500, "bob", "bob")]
    content = Path(output).read_bytes()
    assert b"bob" in content
    assert b"secret" not in content


def test_a_merge_finds_small_texts_in_all_footers(catalog: Catalog) -> None:
    """But not where rows are sorted."""
    table = ensure_table(catalog, "lake.words", TEXT)
    for words in (["a", "b"] * 500, ["c", None] * 500):
        table.append(pa.table({"word": words, "id": range(1_000)}))
    found = plain_files(table, group_of(table))
    assert isinstance(found, PlainFiles)
    assert found.texts == {1}
    with table.transaction() as change:
        change.set_properties({"arctic.compaction.sort": "id"})
    found = plain_files(table, group_of(table))
    assert isinstance(found, PlainFiles)
    assert found.texts == frozenset()


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
        assert bounds(as_dictionaries) == bounds(plain)
