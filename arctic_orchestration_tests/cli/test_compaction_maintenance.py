"""``arctic compaction expire-snapshots``, ``remove-orphans`` and ``rewrite-manifests``."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.cli import maintenance
from arctic_orchestration.compaction.work.output_paths import directory_of
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.cli.compacting import ON_SQLITE, SmallLake, document, lake
from arctic_orchestration_tests.cli.conftest import Outcome

__all__ = ["lake"]

Command = Callable[..., Outcome]


def snapshots(table: Table) -> list[int]:
    """The ids of a table's snapshots, the oldest first."""
    return [snapshot.snapshot_id for snapshot in table.refresh().snapshots()]


def stray(directory: str) -> Path:
    """A file that no snapshot has, written a week ago."""
    file = Path(directory) / "stray.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"PAR1")
    week_ago = (utc_now() - timedelta(days=7)).timestamp()
    os.utime(file, (week_ago, week_ago))
    return file


def test_old_snapshots_expire(lake: SmallLake, arctic: Command) -> None:
    """A dry run says the same, and changes nothing; the last ones stay."""
    table = lake.table("lake.flights", 4)
    before = snapshots(table)
    command = ("expire-snapshots", "lake.flights", "--older-than", "0s", "--keep-last", "2")
    dry = document(arctic, *command, "--dry-run")
    assert (sorted(dry["snapshots"]), dry["dry_run"]) == (sorted(before[:2]), True)
    assert snapshots(table) == before
    result = arctic("compaction", *command)
    assert result.code == 0
    assert result.out.splitlines()[0] == "lake.flights: 2 snapshots forgotten"
    assert "2 manifest list" in result.out
    assert snapshots(table) == before[2:]
    assert table.scan().to_arrow().num_rows == 4


def test_a_snapshot_that_a_live_task_was_planned_from_stays(
    lake: SmallLake, arctic: Command
) -> None:
    """The task's commit is checked from there."""
    table = lake.table("lake.flights", 3)
    lake.tick()
    planned_from = snapshots(table)[-1]
    table.append(table.scan().to_arrow().slice(0, 1))
    table.append(table.scan().to_arrow().slice(0, 1))
    arctic("compaction", "expire-snapshots", "lake.flights", "--older-than", "0s")
    left = snapshots(table)
    assert planned_from in left
    assert len(left) == 2


def test_orphans_are_removed_but_not_those_of_live_tasks(lake: SmallLake, arctic: Command) -> None:
    """An attempt's directory is its worker's until the attempt is over."""
    table = lake.table("lake.flights", 3)
    lake.tick()
    claim = lake.claim()
    written = stray(directory_of(table, claim.directory))
    lost = stray(f"{table.location()}/data/day=2013-01-01")
    command = ("remove-orphans", "lake.flights", "--older-than", "3d")
    dry = document(arctic, *command, "--dry-run")
    assert [Path(file["path"]) for file in dry["files"]] == [lost]
    assert (dry["of_live_tasks"], lost.exists()) == (1, True)
    result = arctic("compaction", *command)
    assert (result.code, result.out) == (
        0,
        "lake.flights: 1 file of live tasks left alone\n1 file of 4 B removed: 1 orphan\n",
    )
    assert (written.exists(), lost.exists()) == (True, False)
    assert table.scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("name", ["expire-snapshots", "remove-orphans"])
def test_on_a_host_whose_clock_is_ahead_nothing_is_old(
    lake: SmallLake, arctic: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """By nine days; the database's clock is right."""
    table = lake.table("lake.flights", 3)
    written = Path(f"{table.location()}/data/of-a-writer.parquet")
    written.write_bytes(b"data")
    ahead = utc_now() + timedelta(days=9)
    monkeypatch.setattr(maintenance, "utc_now", lambda: ahead)
    assert arctic("compaction", name, "lake.flights", "--older-than", "3d").code == 0
    assert (written.exists(), len(snapshots(table))) == (True, 3)


def test_small_manifests_are_merged(lake: SmallLake, arctic: Command) -> None:
    """A dry run says so, and changes nothing; of fewer than asked for, all stay."""
    table = lake.table("lake.flights", 4)
    command = ("rewrite-manifests", "lake.flights")
    dry = document(arctic, *command, "--dry-run")
    counts = {"manifests": 4, "merged": 4, "written": None, "snapshot": None}
    assert dry == {"table": "lake.flights", "dry_run": True, **counts}
    few = arctic("compaction", *command, "--fewest", "5")
    assert few.out == "lake.flights: 0 of 4 manifests merged\n"
    assert len(snapshots(table)) == 4
    result = arctic("compaction", *command)
    assert (result.code, result.out) == (0, "lake.flights: 4 of 4 manifests merged into 1\n")
    assert len(snapshots(table)) == 5
    assert table.scan().to_arrow().num_rows == 4


@ON_SQLITE
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("rewrite-manifests", "lake.flights", "--fewest", "1"),
            "--fewest: got 1, expected a whole number, 2 or more",
        ),
        (
            ("expire-snapshots", "lake.flights", "--older-than", "7"),
            "--older-than: got '7', expected a duration such as",
        ),
        (
            ("expire-snapshots", "lake.flights", "--older-than", "7d", "--keep-last", "0"),
            "--keep-last: got 0, expected a whole number, 1 or more",
        ),
        (
            ("remove-orphans", "lake.flights", "--older-than", "1h"),
            "--older-than: got '1h', expected 1d or more, or --any-age",
        ),
        (
            ("remove-orphans", "lake.flights", "--older-than", "-3d"),
            "--older-than: got '-3d', expected a duration such as",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(
    lake: SmallLake, arctic: Command, arguments: tuple[str, ...], message: str
) -> None:
    """By name, and nothing is changed."""
    table = lake.table("lake.flights", 2)
    before = snapshots(table)
    refused = arctic("compaction", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in " ".join(refused.err.split())
    assert snapshots(table) == before


@pytest.mark.parametrize(
    "command",
    ["remove-orphans lake.flights --older-than 1d", "expire-snapshots lake.flights --older-than 0s",
     "rewrite-manifests lake.flights", "list lake.flights", "explain lake.flights",
     "plan lake.flights --dry-run", "reads lake.flights n=1", "due lake.flights",
     "map lake.flights default"],
)  # fmt: skip
def test_a_state_database_of_another_catalog_is_refused(
    lake: SmallLake,
    arctic: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    """It does not know the live tasks of this one: their outputs would be removed as orphans."""
    lake.tick()
    monkeypatch.setenv("ARCTIC_LAKE", str(tmp_path / "other"))
    other = SmallLake(open_catalog(Settings.from_environment()), lake.database)
    table = other.table("lake.flights", 3)
    before, output = snapshots(table), stray(directory_of(table, "compaction-merged"))
    refused = arctic("compaction", *command.split())
    assert (refused.code, refused.out) == (2, "")
    assert "The state database is about the catalog lake in " in refused.err
    assert (snapshots(table), output.exists()) == (before, True)
    with lake.database.read() as tx:
        assert tables.find_table(tx, "lake.flights") is None
