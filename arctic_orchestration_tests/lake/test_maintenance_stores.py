"""Where the files of a table lie: stores that list, date and remove them, each in its own way."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import Table

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.upkeep.listing import Store, _written_at
from arctic_orchestration.lake.upkeep.maintenance import remove_orphans
from arctic_orchestration_tests.lake.planted_files import (
    LIMIT,
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


def test_links_out_of_the_table_are_not_followed(table: Table, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"x")
    os.utime(elsewhere / "precious", (WEEK_AGO.timestamp(), WEEK_AGO.timestamp()))
    (Path(table.location()) / "data").mkdir(exist_ok=True)
    (Path(table.location()) / "data" / "link").symlink_to(elsewhere)
    remove_orphans(table, older_than=LIMIT)
    assert (elsewhere / "precious").exists()


def test_a_location_behind_a_link_is_cleaned_all_the_same(catalog: Catalog, tmp_path: Path) -> None:
    """The table is named through a link; its files are known by both names."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.linked", SCHEMA, location=str(tmp_path / "link"))
    table.append(rows(1))
    [path] = [task.file.file_path for task in table.scan().plan_files()]
    table.delete()
    table.add_files([str(real / Path(path).relative_to(tmp_path / "link"))])
    age_everything(table)
    lost = plant(table, "data/lost.parquet")
    assert removed(remove_orphans(table, older_than=LIMIT)) == {lost}
    assert ids(table) == [1]


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["flights", "a b", "50% off", "ä+b=c"])
def test_odd_names_and_forms_of_the_location(
    catalog: Catalog, tmp_path: Path, prefix: str, name: str
) -> None:
    catalog.create_namespace("lake")
    location = f"{prefix}{tmp_path}/{name}/"
    table = catalog.create_table("lake.odd", SCHEMA, location=location)
    table.append(rows(1))
    here = tmp_path / name
    for path in here.rglob("*"):
        os.utime(path, (WEEK_AGO.timestamp(), WEEK_AGO.timestamp()))
    lost = here / "data" / "lo st.parquet"
    lost.write_bytes(b"x")
    os.utime(lost, (WEEK_AGO.timestamp(), WEEK_AGO.timestamp()))
    done = remove_orphans(table, older_than=LIMIT)
    assert removed(done) == {f"{location.rstrip('/')}/data/lo st.parquet"}
    assert not lost.exists()
    assert ids(table) == [1]


def test_a_store_that_cannot_list_is_refused(table: Table) -> None:
    class Plain(FileIO):
        def new_input(self, location: str) -> InputFile:
            raise AssertionError

        def new_output(self, location: str) -> OutputFile:
            raise AssertionError

        def delete(self, location: Any) -> None:
            raise AssertionError

    with pytest.raises(LakeError, match="got Plain, which cannot list files"):
        Store(Plain(), table.location())


def test_a_file_without_a_date_stays(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can say how old it is."""
    planted = plant(table, "data/lost.parquet")
    listed = Store.list

    def undated(store: Store) -> Any:
        return iter([replace(file, written_at=None) for file in listed(store)])

    monkeypatch.setattr(Store, "list", undated)
    done = remove_orphans(table, older_than=LIMIT)
    assert done.files == ()
    assert done.young == 1
    assert Path(planted).exists()


def test_a_file_that_cannot_be_removed_is_reported(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = plant(table, "data/a"), plant(table, "data/b")
    remove = Store.remove
    monkeypatch.setattr(
        Store,
        "remove",
        lambda store, file: "read-only" if file.path == stuck else remove(store, file),
    )
    done = remove_orphans(table, older_than=LIMIT)
    assert removed(done) == {other}
    assert [(one.path, one.reason) for one in done.failed] == [(stuck, "read-only")]


def test_the_other_file_io_of_pyiceberg_lists_too(table: Table) -> None:
    """The one on fsspec: the same files with the same sizes, moments and keys."""
    table.append(rows(1))
    plant(table, "data/deep/lost file.parquet", size=9)
    other = FsspecFileIO({})
    for location in (table.location(), f"file://{table.location()}"):
        listed = [
            sorted(
                (file.path, file.below, file.size, file.key, present(file.written_at).timestamp())
                for file in Store(io, location).list()
            )
            for io in (table.io, other)
        ]
        assert len(listed[0]) == 6
        assert [one[:4] for one in listed[0]] == [one[:4] for one in listed[1]]
        for one, same in zip(*listed, strict=True):
            assert one[4] == pytest.approx(same[4], abs=0.001)
    assert list(Store(other, f"{table.location()}/nowhere").list()) == []


def test_orphans_go_through_the_other_file_io_too(table: Table) -> None:
    table.append(rows(1))
    age_everything(table)
    lost = plant(table, "data/lost.parquet")
    table.io = FsspecFileIO({})
    refresh = table.refresh
    with pytest.MonkeyPatch.context() as patch:
        # A table that is read again has the catalog's file IO.
        patch.setattr(Table, "refresh", lambda here: _with_io(refresh(), FsspecFileIO({})))
        assert removed(remove_orphans(table, older_than=LIMIT)) == {lost}
    assert not Path(lost).exists()
    assert ids(table) == [1]


def _with_io(table: Table, io: FileIO) -> Table:
    table.io = io
    return table


@pytest.mark.parametrize(
    ("info", "moment"),
    [
        ({"mtime": 1_700_000_000.0}, datetime.fromtimestamp(1_700_000_000, UTC)),
        ({"LastModified": datetime(2026, 1, 2, tzinfo=UTC)}, datetime(2026, 1, 2, tzinfo=UTC)),
        ({"last_modified": datetime(2026, 1, 2)}, datetime(2026, 1, 2, tzinfo=UTC)),
        ({"updated": "2026-01-02T03:04:05.6Z"}, datetime(2026, 1, 2, 3, 4, 5, 600000, UTC)),
        ({"size": 5}, None),
    ],
)
def test_stores_say_in_their_own_way_when_a_file_was_written(
    info: dict[str, Any], moment: datetime | None
) -> None:
    assert _written_at(info) == moment
