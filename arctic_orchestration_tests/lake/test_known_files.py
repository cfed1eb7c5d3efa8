"""Of which directories of merges a table knows a file."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake import manifests
from arctic_orchestration.lake.upkeep import known_files
from arctic_orchestration.lake.upkeep.known_files import KnownFiles
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.reference_merge import SCHEMA, add, arrow, new_table


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


def directory(table: Table, name: str) -> str:
    return table.location_provider().new_data_location(f"compaction-{name}")


def committed(table: Table, name: str, number: int = 1) -> str:
    """A file in a directory of that name, in a snapshot of its own; its path."""
    path = f"{directory(table, name)}/rows-1/one.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(arrow([(number, "JFK")]).cast(schema_to_pyarrow(SCHEMA)), stream)
    table.refresh().add_files([path])
    return path


def test_what_is_in_the_head_is_known(table: Table) -> None:
    """One directory has a file in the table, the other has none; both have one on the disk."""
    path = committed(table, "a")
    Path(directory(table, "b")).mkdir()
    known = KnownFiles(table)
    assert known.below(directory(table, "a")) == path == known.below(f"{directory(table, 'a')}/")
    assert known.below(directory(table, "b")) is None
    # A name that only begins like it.
    assert known.below(directory(table, "")) is None


def test_what_only_an_older_snapshot_or_a_tag_has_is_known_until_it_expires(table: Table) -> None:
    """Overwritten in the head; the snapshot that has it has no ref, the other one a tag."""
    untagged = committed(table, "a")
    first = table.refresh().current_snapshot()
    table.overwrite(arrow([(5, "JFK")]))
    tagged = committed(table, "b")
    second = table.refresh().current_snapshot()
    assert first is not None
    assert second is not None
    table.manage_snapshots().create_tag(second.snapshot_id, "month").commit()
    table.refresh().overwrite(arrow([(6, "JFK")]))
    known = KnownFiles(table)
    assert known.below(directory(table, "a")) == untagged
    assert known.below(directory(table, "b")) == tagged
    with table.refresh().maintenance.expire_snapshots() as expired:
        expired.by_id(first.snapshot_id)
    # The snapshot after it says that the file was removed, and does not have it.
    assert KnownFiles(table).below(directory(table, "a")) is None
    assert KnownFiles(table).below(directory(table, "b")) == tagged


def test_what_is_committed_after_it_was_made_is_known(table: Table) -> None:
    """The table is loaded when something is asked, and read where it has changed."""
    committed(table, "a")
    known = KnownFiles(table)
    assert known.below(directory(table, "b")) is None
    path = committed(table.catalog.load_table("lake.replaced"), "b")
    assert known.below(directory(table, "b")) == path


def test_a_manifest_is_read_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten snapshots share manifests, and several directories are requested."""
    for number in range(10):
        add(table, (number, "JFK"))
    opened: list[str] = []
    read = manifests.read_entries

    def counted(io, manifest):  # type: ignore[no-untyped-def]
        opened.append(manifest.manifest_path)
        return read(io, manifest)

    monkeypatch.setattr(known_files, "read_entries", counted)
    known = KnownFiles(table)
    assert [known.below(directory(table, name)) for name in "abc"] == [None, None, None]
    assert len(opened) == 10 == len(set(opened))


def test_delete_files_are_known_in_whatever_form_their_paths_are(table: Table) -> None:
    """A table by URL, with a directory that is requested by its plain path."""
    location = f"file://{table.location()}-url"
    other = table.catalog.create_table("lake.by_url", SCHEMA, location=location)
    path = add(other, (1, "JFK"), (2, "JFK"))
    other.refresh()
    with other.transaction() as transaction:
        transaction.set_properties({"write.data.path": f"{location}/data/compaction-d"})
    (delete,) = add_position_deletes(other, {path: [0]})
    assert delete.path.startswith("file://")
    path = f"{location}/data/compaction-d".removeprefix("file://")
    assert KnownFiles(other).below(path) == delete.path


def test_a_directory_that_no_merge_writes_to_is_refused(table: Table) -> None:
    """Nothing is remembered of others, so that nothing could be said of them."""
    with pytest.raises(InvalidInput, match="expected a directory compaction-"):
        KnownFiles(table).below(f"{table.location()}/data")


def test_of_a_table_that_is_gone_nothing_is_reported(table: Table) -> None:
    """Dropped; and made again under its name."""
    known = KnownFiles(table)
    place = directory(table, "a")
    table.catalog.drop_table("lake.replaced")
    with pytest.raises(LakeError, match="was dropped since"):
        known.below(place)
    new_table(table.catalog)
    with pytest.raises(LakeError, match="was dropped and made again"):
        known.below(place)


def test_a_broken_manifest_is_reported(table: Table) -> None:
    """What it holds is not known, so nothing may be removed."""
    committed(table, "a")
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifests(table.io)[0].manifest_path).unlink()
    with pytest.raises(LakeError, match="cannot be read"):
        KnownFiles(table).below(directory(table, "b"))
