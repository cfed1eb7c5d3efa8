"""Which manifests are read for some files, and what that costs."""

import random
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from arctic_orchestration.lake.manifests import read_entries
from arctic_orchestration.lake.replacing import table_head
from arctic_orchestration.lake.replacing.table_head import (
    Head,
    ReadManifests,
    Sought,
    may_hold,
    version_of,
)
from arctic_orchestration_tests.executed_lines import executed_lines
from arctic_orchestration_tests.lake.reference_merge import add, new_table


def manifest(number: int, smallest: int, *, existing: int = 0) -> ManifestFile:
    """Added with the sequence number ``number``, of files whose numbers begin at ``smallest``."""
    return ManifestFile.from_args(
        manifest_path=f"m{number}",
        manifest_length=1,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=number,
        min_sequence_number=smallest,
        added_snapshot_id=number,
        added_files_count=1,
        existing_files_count=existing,
        deleted_files_count=0,
        added_rows_count=1,
        existing_rows_count=existing,
        deleted_rows_count=0,
    )


def test_a_manifest_may_hold_what_is_between_its_numbers() -> None:
    """Compared with a look at each number; files of earlier snapshots may be of any age."""
    chosen = random.Random(7)
    for _ in range(2000):
        smallest = chosen.randint(1, 12)
        number = chosen.randint(smallest, 14)
        existing = chosen.randint(0, 1)
        numbers = sorted(chosen.sample(range(16), chosen.randint(0, 4)))
        expected = any((0 if existing else smallest) <= one <= number for one in numbers)
        assert may_hold(manifest(number, smallest, existing=existing), numbers) is expected


def test_twice_the_files_in_twice_the_manifests_cost_twice_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at each number for each manifest would cost four times as much."""
    heads: list[str] = []

    def read(self: Any, wanted: list[ManifestFile], known: dict[Any, Any], _: Any) -> None:
        new = [version_of(one) for one in wanted if version_of(one) not in known]
        heads.extend(path for path, _ in new)
        known.update(dict.fromkeys(new, ()))

    monkeypatch.setattr(ReadManifests, "read_all", read)

    def work(count: int) -> int:
        manifests = [manifest(number, number) for number in range(1, count + 1)]
        sought = [
            Sought(path=f"p{n}", spec_id=0, sequence_number=2 * n) for n in range(1, count + 1)
        ]
        heads.clear()

        def found() -> None:
            files = ReadManifests(PyArrowFileIO(), sought)
            assert files.places(manifests) == {} == files.places(manifests)

        lines = executed_lines(found)
        assert heads == [f"m{number}" for number in range(2, count + 1, 2)]
        return lines

    assert work(10_000) < 2.5 * work(5_000)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog)


def test_what_was_read_for_one_head_is_not_read_for_the_next(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five files are looked for; then another writer appends one: nothing more is opened."""
    files = [add(table, (number, "JFK")) for number in range(5)]
    opened: list[str] = []
    read = read_entries

    def counted(io: Any, one: ManifestFile) -> Any:
        opened.append(one.manifest_path)
        return read(io, one)

    monkeypatch.setattr(table_head, "read_entries", counted)
    sought = [
        Sought(path=path, spec_id=0, sequence_number=number) for number, path in enumerate(files, 1)
    ]
    known = ReadManifests(table.io, sought)
    assert sorted(Head(table.refresh(), known).places) == sorted(files)
    assert len(opened) == len(set(opened)) == 5
    add(table, (9, "JFK"))
    assert sorted(Head(table.refresh(), known).places) == sorted(files)
    # The new manifest is too young to hold one of them.
    assert len(opened) == 5
