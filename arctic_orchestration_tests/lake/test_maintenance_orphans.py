"""Files that nobody knows: what goes and what stays."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from arctic_orchestration.errors import CatalogUnavailable, InvalidInput, LakeError
from arctic_orchestration.lake import catalog_answers, ensure_table
from arctic_orchestration.lake.upkeep.maintenance import Orphans, remove_orphans
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.planted_files import (
    LIMIT,
    NOW,
    SCHEMA,
    WEEK_AGO,
    age_everything,
    ids,
    plant,
    removed,
    rows,
    table,
)
from arctic_orchestration_tests.present import present

__all__ = ["table"]


def test_old_unknown_files_go(table: Table) -> None:
    table.append(rows(1))
    known = age_everything(table)
    planted = {plant(table, "data/lost.parquet", size=7), plant(table, "metadata/lost.avro")}
    done = remove_orphans(table, older_than=LIMIT)
    assert removed(done) == planted
    assert sum(file.size or 0 for file in done.files) == 12
    assert not any(Path(path).exists() for path in planted)
    assert all(Path(path).exists() for path in known)
    assert ids(table) == [1]


def test_a_dry_run_reports_the_same_and_removes_nothing(table: Table) -> None:
    table.append(rows(1))
    planted = {plant(table, "data/lost.parquet")}
    would = remove_orphans(table, older_than=LIMIT, dry_run=True)
    assert removed(would) == planted
    assert all(Path(path).exists() for path in planted)
    done = remove_orphans(table, older_than=LIMIT)
    assert (done.files, done.young, done.protected) == (would.files, would.young, would.protected)


def test_files_of_every_snapshot_branch_and_tag_stay(table: Table) -> None:
    """However old they are: data, deletes, manifests, their lists, metadata and statistics."""
    table.append(rows(1, 2))
    [path] = [task.file.file_path for task in table.scan().plan_files()]
    add_position_deletes(table, {path: [0]})
    deleted = present(table.current_snapshot()).snapshot_id
    table.manage_snapshots().create_branch(deleted, "audit").create_tag(deleted, "tag").commit()
    table.append(rows(7), branch="audit")
    table.overwrite(rows(3))
    statistics = plant(table, "metadata/known.stats")
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                **{
                    "snapshot-id": deleted,
                    "statistics-path": f"file://{statistics}",
                    "file-size-in-bytes": 5,
                    "file-footer-size-in-bytes": 1,
                    "blob-metadata": [],
                }
            )
        )
    before = age_everything(table)
    assert remove_orphans(table, older_than=LIMIT) == Orphans()
    assert age_everything(table) == before
    assert ids(table) == [3]
    assert ids(table, deleted) == [2]
    assert ids(table, present(table.snapshot_by_name("audit")).snapshot_id) == [2, 7]


def test_metadata_files_that_the_log_has_forgotten_go(catalog: Catalog) -> None:
    """The log keeps two; with the current one, three stay of six."""
    properties = {"write.metadata.previous-versions-max": "2"}
    table = ensure_table(catalog, "lake.short", SCHEMA, properties=properties)
    for number in range(5):
        table.append(rows(number))
    known = {entry.metadata_file for entry in table.metadata.metadata_log}
    known.add(table.metadata_location)
    every = {path for path in age_everything(table) if path.endswith(".metadata.json")}
    assert (len(every), len(known)) == (6, 3)
    assert removed(remove_orphans(table, older_than=LIMIT)) == every - known
    assert ids(catalog.load_table("lake.short")) == [0, 1, 2, 3, 4]


def test_young_files_stay(table: Table) -> None:
    """At the limit itself a file is young; a moment before, it is not."""
    moment = LIMIT.replace(microsecond=0)
    at, before = (
        plant(table, "data/at", at=moment),
        plant(table, "data/before", at=moment - timedelta(seconds=1)),
    )
    done = remove_orphans(table, older_than=moment)
    assert removed(done) == {before}
    assert Path(at).exists()
    # With the metadata file of the table, that is known, nothing else is counted.
    assert done.young == 1


def test_a_limit_of_less_than_a_day_must_be_meant(table: Table) -> None:
    planted = plant(table, "data/lost", at=NOW - timedelta(hours=2))
    for wrong in (NOW - timedelta(hours=23), NOW, NOW + timedelta(days=1)):
        with pytest.raises(InvalidInput) as refused:
            remove_orphans(table, older_than=wrong, now=NOW)
        assert refused.value.field == "older_than"
    with pytest.raises(InvalidInput, match="zone"):
        remove_orphans(table, older_than=datetime(2020, 1, 1))
    assert remove_orphans(table, older_than=NOW - timedelta(days=1), now=NOW).young == 1
    done = remove_orphans(table, older_than=NOW - timedelta(hours=1), any_age=True, now=NOW)
    assert removed(done) == {planted}


def test_protected_files_stay(table: Table) -> None:
    """A live task's directory; paths come in the form of the table's location."""
    mine = plant(table, "data/compaction/task-1/part-0.parquet")
    lost = plant(table, "data/compaction/task-0/part-0.parquet")
    directory = f"{table.location()}/data/compaction/task-1/"
    done = remove_orphans(
        table, older_than=LIMIT, protected=lambda path: path.startswith(directory)
    )
    assert removed(done) == {lost}
    assert Path(mine).exists()
    assert done.protected == 1


def test_hidden_and_hint_files_stay(table: Table) -> None:
    kept = [
        plant(table, "metadata/version-hint.text"),
        plant(table, "metadata/.version-hint.text.crc"),
        plant(table, "data/_SUCCESS"),
        plant(table, "data/.hidden"),
        plant(table, "data/_temporary/0/part-0.parquet"),
        plant(table, ".git/config"),
    ]
    gone = {plant(table, "data/_day=1/part-0.parquet"), plant(table, "data/a_b.parquet")}
    assert removed(remove_orphans(table, older_than=LIMIT)) == gone
    assert all(Path(path).exists() for path in kept)


def test_a_checksum_of_hadoop_goes_with_its_file(table: Table) -> None:
    table.append(rows(1))
    [path] = [task.file.file_path for task in table.scan().plan_files()]
    of_known = plant(table, f"data/.{Path(path).name}.crc")
    gone = {
        plant(table, "data/lost.parquet"),
        plant(table, "data/.lost.parquet.crc"),
        plant(table, "data/.gone-before.parquet.crc"),
    }
    assert removed(remove_orphans(table, older_than=LIMIT)) == gone
    assert Path(of_known).exists()


def test_what_is_committed_while_files_are_listed_is_known(
    table: Table, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files a week old that another writer adds to the table after the listing, twice."""
    first, second = plant(table, "data/first.parquet"), plant(table, "data/second.parquet")
    lost = plant(table, "data/lost.parquet")
    other = catalog.load_table("lake.flights")
    for path in (first, second):
        pa.parquet.write_table(rows(1), path)
        os.utime(path, (WEEK_AGO.timestamp(), WEEK_AGO.timestamp()))
    waiting = [first, second]
    refresh = Table.refresh

    def busy(refreshed: Table) -> Table:
        # Right before the table is read: after the listing, and again before files are removed.
        if refreshed is table and calls.pop(0) and waiting:
            other.refresh()
            other.add_files([waiting.pop(0)])
        return refresh(refreshed)

    calls = [False, True, True]
    monkeypatch.setattr(Table, "refresh", busy)
    done = remove_orphans(table, older_than=LIMIT)
    assert removed(done) == {lost}
    assert not waiting
    monkeypatch.undo()
    assert ids(table) == [1, 1]


def test_a_table_that_took_over_the_location_keeps_its_files(catalog: Catalog) -> None:
    """A table that is renamed keeps its place, and the next of that name gets the same."""
    first = ensure_table(catalog, "lake.flights", SCHEMA)
    first.append(rows(1))
    renamed = catalog.rename_table("lake.flights", "lake.flights_2025")
    second = ensure_table(catalog, "lake.flights", SCHEMA)
    assert second.location() == renamed.location()
    second.append(rows(2))
    age_everything(second)
    lost = plant(second, "data/lost.parquet")
    assert removed(remove_orphans(second, older_than=LIMIT)) == {lost}
    assert remove_orphans(renamed, older_than=LIMIT).files == ()
    assert (ids(catalog.load_table("lake.flights_2025")), ids(second)) == ([1], [2])


def test_a_table_inside_the_location_keeps_its_files(catalog: Catalog, table: Table) -> None:
    """One that the catalog knows, and one that only looks like a table."""
    place = f"file://{table.location()}/archive"
    inner = catalog.create_table("lake.archive", SCHEMA, location=place)
    inner.append(rows(1))
    catalog.create_namespace_if_not_exists("lake.deep")
    age_everything(table)
    kept = [
        plant(table, "foreign/metadata/00000-x.metadata.json"),
        plant(table, "foreign/data/part-0.parquet"),
    ]
    lost = plant(table, "data/lost.parquet")
    assert removed(remove_orphans(table, older_than=LIMIT)) == {lost}
    assert all(Path(path).exists() for path in kept)
    assert ids(inner) == [1]
    in_archive = plant(table, "archive/data/lost.parquet")
    assert removed(remove_orphans(inner, older_than=LIMIT)) == {f"file://{in_archive}"}


@pytest.mark.parametrize("kind", ["data", "metadata"])
def test_a_table_with_its_files_inside_the_location_keeps_them(
    catalog: Catalog, table: Table, kind: str, tmp_path: Path
) -> None:
    """Its own location is elsewhere."""
    other = catalog.create_table(
        "lake.elsewhere",
        SCHEMA,
        location=str(tmp_path / "elsewhere"),
        properties={f"write.{kind}.path": f"{table.location()}/of-another"},
    )
    other.append(rows(5))
    table.append(rows(1))
    planted = plant(table, "data/lost.parquet")
    age_everything(table)
    assert removed(remove_orphans(table, older_than=LIMIT)) == {planted}
    assert ids(catalog.load_table("lake.elsewhere")) == [5]


def test_a_path_that_no_file_system_has_stops_nothing(
    catalog: Catalog, table: Table, tmp_path: Path
) -> None:
    """Of another table: anybody may set its properties."""
    elsewhere = str(tmp_path / "elsewhere")
    properties = {"write.data.path": "/a\0b"}
    catalog.create_table("lake.odd", SCHEMA, location=elsewhere, properties=properties)
    planted = plant(table, "data/lost.parquet")
    age_everything(table)
    assert removed(remove_orphans(table, older_than=LIMIT)) == {planted}


def test_another_table_that_cannot_be_read_stops_it(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lie in the same place. One that was dropped a moment ago does not."""
    ensure_table(catalog, "lake.other", SCHEMA)
    planted = plant(table, "data/lost.parquet")
    load = SqlCatalog.load_table
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)
    # It is asked five times.
    errors: list[Exception] = [*[OSError("no such host")] * 5, NoSuchTableError("dropped")]

    def failing(here: SqlCatalog, identifier: Any) -> Table:
        if identifier == ("lake", "other"):
            raise errors.pop(0)
        return load(here, identifier)

    monkeypatch.setattr(SqlCatalog, "load_table", failing)
    with pytest.raises(CatalogUnavailable, match=r"lake\.other cannot be loaded.*no such host"):
        remove_orphans(table, older_than=LIMIT)
    assert Path(planted).exists()
    assert removed(remove_orphans(table, older_than=LIMIT)) == {planted}


def test_no_other_table_is_loaded_where_a_table_knows_all_its_files(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each of a thousand tables once a day, that would be a million."""
    ensure_table(catalog, "lake.other", SCHEMA)
    table.append(rows(1))
    age_everything(table)
    plant(table, "_temporary/data/part-0.parquet")
    load = SqlCatalog.load_table
    loaded: list[Any] = []

    def counted(here: SqlCatalog, identifier: Any) -> Table:
        loaded.append(identifier)
        return load(here, identifier)

    monkeypatch.setattr(SqlCatalog, "load_table", counted)
    assert remove_orphans(table, older_than=LIMIT).files == ()
    assert set(loaded) == {table.name()}
    plant(table, "foreign/metadata/00000-x.metadata.json")
    assert remove_orphans(table, older_than=LIMIT).files == ()
    assert set(loaded) == {table.name(), ("lake", "other")}


def test_a_lost_manifest_stops_it(table: Table) -> None:
    """Nobody can say what it named."""
    table.append(rows(1))
    planted = plant(table, "data/lost.parquet")
    Path(present(table.current_snapshot()).manifests(table.io)[0].manifest_path).unlink()
    with pytest.raises(LakeError, match="cannot be read"):
        remove_orphans(table, older_than=LIMIT)
    assert Path(planted).exists()


def test_a_table_that_shares_its_files_is_left_alone(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    with pytest.raises(LakeError, match=r"gc\.enabled"):
        remove_orphans(table, older_than=LIMIT)
