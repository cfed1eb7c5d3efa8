"""``arctic compaction scans``: a table's scans in Spark's event logs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from arctic_orchestration_tests.cli.compacting import ON_SQLITE, SmallLake, lake
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.lake.event_logs import measured, planned

__all__ = ["lake"]

Command = Callable[..., Outcome]
pytestmark = ON_SQLITE
ALL = ("--since", "36500d")


@pytest.fixture
def logs(lake: SmallLake, tmp_path: Path) -> str:
    """Twelve scans by ``n``, one of all rows, and a log that cannot be read."""
    lake.table("lake.flights", 1)
    events = tmp_path / "events"
    events.mkdir()
    lines = [planned(0, "", at=100), measured(0, 9, 0, 9_000)]
    for number in range(1, 13):
        lines += [planned(number, f"n = {number}", at=number), measured(number, 2, 7, 2_000)]
    (events / "app-1").write_text("\n".join(lines) + "\n")
    (events / "app-2.lz4").write_text("")
    return str(events)


def test_programs_get_columns_the_last_scans_and_a_suggestion(logs: str, arctic: Command) -> None:
    found = json.loads(arctic("compaction", "scans", "lake.flights", logs, *ALL, "--json").out)
    assert (found["table"], found["logs"], found["scans"]) == ("lake.flights", 2, 13)
    assert found["columns"] == [{"column": "n", "scans": 12, "bytes": 24_000}]
    assert len(found["last"]) == 10
    assert found["last"][0] == {
        "at": "2026-01-01T00:01:40Z",
        "filter": "",
        "columns": [],
        "snapshot_id": 7,
        "files": 9,
        "skipped": 0,
        "bytes": 9_000,
    }
    assert (found["last"][1]["filter"], found["last"][1]["columns"]) == ("n = 12", ["n"])
    assert found["sort"] == {"now": None, "suggested": "n"}
    (unread,) = found["unread"]
    assert "app-2.lz4: compressed by lz4" in unread


def test_people_see_them(logs: str, arctic: Command, lake: SmallLake) -> None:
    out = arctic("compaction", "scans", "lake.flights", logs, *ALL, "--last", "2").out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].startswith("13 scans of lake.flights in 2 logs, from 2026-01-01 00:00:01Z to ")
    assert "n 12 24.0 KB" in lines
    assert "2026-01-01 00:01:40Z 9 of 9 9.0 KB none" in lines
    assert "2026-01-01 00:00:12Z 2 of 9 2.0 KB n = 12" in lines
    assert not any("n = 11" in line for line in lines)
    text = " ".join(lines)
    assert "not read to its end:" in text
    assert "arctic.compaction.sort is not set; what these scans compare suggests n." in text
    for present in ("n", "n desc"):
        with lake.catalog.load_table("lake.flights").transaction() as change:
            change.set_properties({"arctic.compaction.sort": present})
        again = arctic("compaction", "scans", "lake.flights", logs, *ALL).out
        assert again.splitlines()[-1] == f"arctic.compaction.sort suits them: {present}"


def test_a_long_filter_is_cut(lake: SmallLake, arctic: Command, tmp_path: Path) -> None:
    """Programs get all of it."""
    lake.table("lake.flights", 1)
    many = f"n IN ({', '.join(map(str, range(10_000)))})"
    (tmp_path / "app-1").write_text(planned(1, many) + "\n")
    command = ("compaction", "scans", "lake.flights", str(tmp_path / "app-1"), *ALL)
    assert len(arctic(*command).out) < 1_000
    assert json.loads(arctic(*command, "--json").out)["last"][0]["filter"] == many


def test_scans_without_a_filter_suggest_nothing(
    lake: SmallLake, arctic: Command, tmp_path: Path
) -> None:
    lake.table("lake.flights", 1)
    (tmp_path / "app-1").write_text(planned(1, "") + "\n")
    out = arctic("compaction", "scans", "lake.flights", str(tmp_path / "app-1"), *ALL).out
    assert out.splitlines()[-1].startswith("these scans compare no column")
    lake.table("lake.other", 1)
    out = arctic("compaction", "scans", "lake.other", str(tmp_path / "app-1")).out
    assert out == "0 scans of lake.other in 1 log\n"


def test_old_scans_do_not_count(logs: str, arctic: Command) -> None:
    """They are of January; logs are of now."""
    out = arctic("compaction", "scans", "lake.flights", logs, "--since", "1m").out
    assert out.splitlines()[0] == "0 scans of lake.flights in 2 logs"
    done = arctic("compaction", "scans", "lake.flights", logs, "--since", "soon")
    assert done.code != 0
    assert "--since" in done.err


def test_what_is_missing_is_named(lake: SmallLake, arctic: Command, tmp_path: Path) -> None:
    lake.table("lake.flights", 1)
    done = arctic("compaction", "scans", "lake.flights", str(tmp_path / "none"))
    assert done.code != 0
    assert "none has no event log of Spark" in " ".join(done.err.split())
    done = arctic("compaction", "scans", "lake.lost", str(tmp_path))
    assert done.code != 0
    assert "lake.lost" in done.err
