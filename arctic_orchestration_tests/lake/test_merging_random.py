"""Random tables are merged, and read before and after by readers that know nothing of a merge.

Tables have columns of all types, nulls, NaN and nested values, partitions by identity, day or
bucket, columns and partitions that change between the appends, names that other columns had, and
deletes by position and by value, committed to the table and found again by its manifests. Spark
reads those without deletes. All partitions are merged, and the outputs take the place of their
inputs in one snapshot. Some merges get their rows through Arrow.
Then pyiceberg's own scan must find what the model of the table has, and the older snapshots what
they had: it reads those that have no deletes by value.

``ARCTIC_PROOF=full`` makes 150 tables, by default six.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.lake import ensure_table, open_catalog, read
from arctic_orchestration.lake.file_access import FileAccess
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging import live_rows, merge
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.lake.schema import column_at
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.merged_files import merged, plain, rows_of
from arctic_orchestration_tests.lake.random_tables import (
    COLUMNS,
    NUMBER,
    PARTITIONS,
    SCHEMA,
    File,
    Known,
    append,
    change,
    change_partitions,
    delete_positions,
    delete_values,
    marked,
    rows,
    spec_by,
)
from arctic_orchestration_tests.lake.reference_merge import delete_paths

TABLES = 150 if os.environ.get("ARCTIC_PROOF") == "full" else 6
#: Each table takes some of them, in any order; three at least.
STEPS = ("partitions", "equality", "position", "change", "append", "partitions", "append")
_names = itertools.count(1)


@dataclass(frozen=True)
class Kept:
    """A snapshot as it was when it was made; no rows: pyiceberg does not read it."""

    snapshot_id: int
    files: list[LiveFile]
    rows: list[dict[str, Any]] | None

    @classmethod
    def of(cls, table: Table, known: Known) -> "Kept":
        live = live_files(table.refresh())
        assert live.snapshot_id is not None
        found = None if known.by_value else as_scanned(known)
        return cls(live.snapshot_id, live.files, found)


def scanned(table: Table, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """What pyiceberg reads, in the order of the rows' numbers."""
    return in_order(table.refresh().scan(snapshot_id=snapshot_id).to_arrow())


def in_order(found: pa.Table) -> list[dict[str, Any]]:
    kinds = [(field.name, field.type) for field in found.schema]
    plainly = ({name: plain(row[name], kind) for name, kind in kinds} for row in found.to_pylist())
    return sorted(map(marked, plainly), key=lambda row: row[NUMBER])


def as_scanned(known: Known) -> list[dict[str, Any]]:
    """What the model has; pyiceberg reads a list or map of structs that is null as an empty one."""
    found = known.all_rows()
    for first, empty in (("list", list), ("map", dict)):
        if name := known.names.get(first):
            found = [row | {name: row[name] or empty()} for row in found]
    return found


def groups(table: Table, known: Known) -> Iterator[tuple[FileGroup, list[File]]]:
    """The files of each partition."""
    live = live_files(table.refresh())
    by_path = {file.path: file for file in known.files}
    by_place: dict[Any, list[LiveFile]] = {}
    for file in live.files:
        by_place.setdefault(by_path[file.path].place, []).append(file)
    assert {file.path for file in live.files} == by_path.keys()
    for files in by_place.values():
        assert live.snapshot_id is not None
        group = FileGroup(
            snapshot_id=live.snapshot_id,
            sequence_number=live.sequence_number,
            spec_id=files[0].spec_id,
            files=tuple(files),
        )
        yield group, [by_path[file.path] for file in files]


def merged_group(
    spark: SparkSession,
    table: Table,
    known: Known,
    group: FileGroup,
    files: list[File],
    engine: Engine | None,
    through_arrow: bool,
) -> Replacement:
    """Merges: every live row once, in order, with the values it had and the columns of today."""
    with without_file_system() if through_arrow else nullcontext():
        done = merged(spark, table, FileGroup.from_json(group.to_json()), engine=engine)
    if "decoded by Spark" in done.because and not through_arrow:
        sizes = {file.path: os.path.getsize(file.path) for file in group.files}
        files = sorted(files, key=lambda file: -sizes[file.path])
    if engine is None:
        assert done.way is Way.APPEND or "decoded by Arrow" in done.because
    expected = known.live(files)
    assert [marked(row) for row in rows_of(done)] == [marked(known.row(one)) for one in expected]
    assert (done.rows_out, done.rows_in) == (len(expected), group.rows)
    assert done.rows_deleted == group.rows - len(expected)
    return Replacement(
        id=f"group-{next(_names)}",
        group=group,
        outputs=tuple(output.path for output in done.outputs),
        rows_deleted=done.rows_deleted,
        sort_order_id=done.sort_order_id,
    )


def require_read(spark: SparkSession, table: Table, known: Known, first: str) -> None:
    """Spark reads the same rows, and finds those without a value in a column by a filter."""
    expected, name = known.all_rows(), known.names[first]
    found = read(spark, table)
    assert in_order(found.toArrow()) == expected
    without = found.where(column_at((name,)).isNull()).toArrow()
    assert in_order(without) == [row for row in expected if row[name] is None]


@contextmanager
def without_file_system() -> Iterator[None]:
    """Spark gets the rows through Arrow, as from a store that it has no file system for."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (live_rows, merge):
            patch.setattr(module, "file_access", lambda *_: FileAccess(missing="it is a test"))
        yield


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return open_catalog(settings_for(tmp_path_factory.mktemp("random")))


@pytest.mark.proof
@pytest.mark.timeout(3600)
@settings(
    max_examples=TABLES,
    deadline=None,
    # A smaller failing table would take minutes to find.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_readers_of_a_merged_table_find_what_they_found(
    spark: SparkSession, catalog: Catalog, data: st.DataObject
) -> None:
    """Those of today find all rows and no deletes, those of older snapshots what was there."""
    source = data.draw(st.none() | st.sampled_from(sorted(PARTITIONS)))
    name = f"lake.random_{next(_names)}"
    table = ensure_table(catalog, name, SCHEMA, partition_spec=spec_by(source))
    known = Known(names={name: name for name, _ in COLUMNS})
    known.sources |= {source} if source else set()
    append(table, known, data.draw(rows()))
    kept = [Kept.of(table, known)]
    steps = data.draw(st.permutations(STEPS))
    for step in steps[: data.draw(st.integers(3, len(STEPS)))]:
        match step:
            case "append":
                append(table, known, data.draw(rows()))
            case "position":
                delete_positions(data, table, known)
            case "equality":
                delete_values(data, table, known)
            case "change":
                for _ in range(data.draw(st.integers(1, 4))):
                    change(data, table, known)
            case "partitions":
                change_partitions(data, table, known)
                append(table, known, data.draw(rows()))
        if table.refresh().metadata.current_snapshot_id != kept[-1].snapshot_id:
            kept.append(Kept.of(table, known))
    if not delete_paths(table):
        require_read(spark, table, known, data.draw(st.sampled_from(sorted(known.names))))
    replacements = []
    for group, files in groups(table, known):
        engine = data.draw(st.sampled_from([None, Engine.SPARK]))
        through_arrow = data.draw(st.booleans())
        replacements.append(merged_group(spark, table, known, group, files, engine, through_arrow))
    replaced = replace_files(table, replacements)
    assert replaced.committed == tuple(one.id for one in replacements), replaced
    assert delete_paths(table) == []
    assert scanned(table) == as_scanned(known)
    for one in kept:
        assert live_files(table, one.snapshot_id).files == one.files
        assert all(os.path.exists(file.path) for file in one.files)
        if one.rows is not None:
            assert scanned(table, one.snapshot_id) == one.rows
