"""``arctic compaction reads``: the files that a filter does not exclude."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.run_once import compact_now
from arctic_orchestration.lake import ensure_table
from arctic_orchestration_tests.cli.compacting import _ARROW, ON_SQLITE, SCHEMA, SmallLake, lake
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.compaction.small_lake import Merging
from arctic_orchestration_tests.lake.delete_writer import add_equality_deletes

__all__ = ["lake"]

Command = Callable[..., Outcome]
TWO = "n = 2"


@pytest.fixture
def merged(lake: SmallLake) -> Table:
    """Four files of one row in each of two days, merged to a file a day; then one more of each."""
    table = lake.table("lake.flights", 4, 2)
    compact_now(lake.database, lake.catalog, Merging(), "lake.flights", utc_now())
    table.refresh().append(pa.table({"day": ["2013-01-01", "2013-01-02"], "n": [7, 7]}, _ARROW))
    return table.refresh()


def asked(arctic: Command, *arguments: str) -> Any:
    return json.loads(arctic("compaction", "reads", "lake.flights", *arguments, "--json").out)


def sizes(table: Table, *snapshots_back: int) -> list[int]:
    """The bytes of the files that snapshots have, by what the disk says."""
    found = []
    for back in snapshots_back:
        snapshot = table.snapshots()[-1 - back].snapshot_id
        paths = [task.file.file_path for task in table.scan(snapshot_id=snapshot).plan_files()]
        found.append(sum(Path(path.removeprefix("file://")).stat().st_size for path in paths))
    return found


def test_reads_are_counted_now_and_around_each_merge(
    merged: Table, lake: SmallLake, arctic: Command
) -> None:
    now, after, before = sizes(merged, 0, 1, 2)
    found = asked(arctic, TWO)
    assert (found["table"], found["filter"]) == ("lake.flights", TWO)
    # The files of sevens are skipped; before, two of eight have a two.
    assert [found["now"][name] for name in ("files", "all_files", "all_bytes")] == [2, 4, now]
    assert found["now"]["bytes"] == after
    (merge,) = found["merges"]
    assert [merge["after"][name] for name in ("files", "bytes", "all_bytes")] == [2, after, after]
    assert [merge["before"][name] for name in ("files", "all_files", "all_bytes")] == [2, 8, before]
    assert merge["after"]["snapshot_id"] == merged.snapshots()[-2].snapshot_id
    # Of the partition's values, too; and no merge.
    found = asked(arctic, "day = '2013-01-02' and n > 5", "--last", "0")
    assert (found["now"]["files"], found["merges"]) == (1, [])


def test_people_see_files_and_sizes(merged: Table, arctic: Command) -> None:
    out = arctic("compaction", "reads", "lake.flights", TWO).out
    assert out.splitlines()[0] == "lake.flights where n = 2"
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(line.startswith("now 2 of 4 ") for line in lines)
    assert any("after the merge of" in line and " 2 of 2 " in line for line in lines)
    assert any(line.startswith("before it 2 of 8 ") for line in lines)


def test_snapshots_that_are_gone_have_no_size(merged: Table, arctic: Command) -> None:
    command = ("expire-snapshots", "lake.flights", "--older-than", "0s", "--keep-last", "1")
    assert arctic("compaction", *command).code == 0
    found = asked(arctic, TWO)
    assert found["now"]["files"] == 2
    assert [(merge["before"], merge["after"]) for merge in found["merges"]] == [(None, None)]
    assert "no snapshot" in arctic("compaction", "reads", "lake.flights", TWO).out


def test_a_table_without_rows_has_no_snapshot(lake: SmallLake, arctic: Command) -> None:
    ensure_table(lake.catalog, "lake.flights", SCHEMA)
    found = asked(arctic, TWO)
    assert (found["now"], found["merges"]) == (None, [])


@ON_SQLITE
@pytest.mark.parametrize("bad", ["", "n =", "m = 2", "n = 'two'", "n > 1 && n < 3"])
def test_a_bad_filter_is_refused(merged: Table, arctic: Command, bad: str) -> None:
    result = arctic("compaction", "reads", "lake.flights", bad)
    assert result.code != 0
    assert "FILTER" in result.err
    assert "expected a filter on its columns" in " ".join(result.err.split())


@ON_SQLITE
def test_data_files_are_counted_beside_equality_deletes(merged: Table, arctic: Command) -> None:
    """pyiceberg itself plans no scan of them."""
    add_equality_deletes(merged, pa.table({"n": [7]}), ["n"], partition=["2013-01-01"])
    found = asked(arctic, "n = 7")
    assert (found["now"]["files"], found["now"]["all_files"]) == (2, 4)


@ON_SQLITE
def test_a_manifest_that_is_gone_is_an_error(merged: Table, arctic: Command) -> None:
    """Of an older snapshot: without the merges, the present one is still counted."""
    oldest = merged.snapshots()[0].manifests(merged.io)[0].manifest_path
    Path(oldest.removeprefix("file://")).unlink()
    result = arctic("compaction", "reads", "lake.flights", TWO)
    assert (result.code, "cannot be read" in result.err) == (2, True), result.err
    assert asked(arctic, TWO, "--last", "0")["now"]["files"] == 2
