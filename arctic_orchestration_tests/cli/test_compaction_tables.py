"""``arctic compaction list``, ``due`` and ``wake``: tables as compaction sees them."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.console.actor import person
from arctic_orchestration.lake import tables as lake_tables
from arctic_orchestration_tests.cli.compacting import ON_SQLITE, SmallLake, lake, line_of
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

__all__ = ["lake"]

Command = Callable[..., Outcome]


def status(arctic: Command, *arguments: str) -> dict[str, dict[str, Any]]:
    """Tables as programs read them, by name."""
    found = json.loads(arctic("compaction", "list", "--json", *arguments).out)["tables"]
    return {table["table"]: table for table in found}


def test_tables_are_shown_as_they_lie_on_the_disk(lake: SmallLake, arctic: Command) -> None:
    """Six files in two partitions, where two would do: a scan opens three times as many."""
    lake.table("lake.flights", 3, 2)
    lake.table("raw.empty", 0)
    fresh = status(arctic)
    assert list(fresh) == ["lake.flights", "raw.empty"]
    flights = fresh["lake.flights"]
    assert flights["numbers"]["files"] == flights["numbers"]["small_files"] == 6
    assert (flights["numbers"]["partitions"], flights["numbers"]["rows"]) == (2, 6)
    assert flights["numbers"]["read_amplification"] == 3.0
    assert (flights["known"], flights["reasons"]) == (False, ["not planned yet"])
    lake.tick()
    lake.claim()
    known = status(arctic, "lake.flights")["lake.flights"]
    assert (known["waiting"], known["claimed"], known["merged"]) == (1, 1, 0)
    assert known["looked"] == "6 of 6 files in 2 tasks"
    shown = line_of(arctic("compaction", "list").out, "lake.flights")
    assert shown[:5] == ["lake.flights", "default", "6", "6", "0"]
    assert shown[6:8] == ["3.0 ×", "1 waiting, 1 claimed"]


def test_tables_that_are_not_compacted_say_why(lake: SmallLake, arctic: Command) -> None:
    """A property that cannot be used, a person who does not want it, and a table that is gone."""
    lake.table("lake.bad", 1, **{"arctic.compaction.target-size": "12"})
    lake.table("lake.off", 1, **{"arctic.compaction.enabled": "false"})
    lake.table("lake.gone", 1)
    lake.tick()
    lake.catalog.drop_table("lake.gone")
    lake.tick()
    found = status(arctic)
    assert found["lake.bad"]["refused"].startswith(
        "arctic.compaction.target-size of lake.bad: got '12', expected a size"
    )
    assert found["lake.bad"]["numbers"]["files"] == 1
    assert found["lake.off"]["reasons"] == ["not compacted: arctic.compaction.enabled is false"]
    assert found["lake.gone"]["reasons"][0].startswith("the catalog has it no more since 20")
    assert found["lake.gone"]["numbers"] is None


@ON_SQLITE
def test_a_table_whose_files_cannot_be_read_does_not_hide_the_others(
    lake: SmallLake, arctic: Command, tmp_path: Path
) -> None:
    """Its trouble is shown in its line."""
    lake.table("lake.flights", 1)
    broken = lake.table("lake.broken", 1)
    shutil.rmtree(Path(broken.location()) / "metadata")
    found = status(arctic)
    assert "metadata" in found["lake.broken"]["trouble"]
    assert found["lake.flights"]["numbers"]["files"] == 1
    text = arctic("compaction", "list").out
    assert "its metadata cannot be read" in text
    refused = arctic("compaction", "list", "lake.broken")
    assert refused.code == 2
    assert "lake.broken: its metadata cannot be read" in " ".join(refused.err.split())


def test_a_table_can_be_made_due(lake: SmallLake, arctic: Command) -> None:
    """Also one that the planner has not found; it stays due since the first time."""
    lake.table("lake.flights", 3)
    first = json.loads(arctic("compaction", "due", "lake.flights", "--json").out)
    assert (first["due_because"], first["rests_until"]) == ("requested manually", None)
    result = arctic("compaction", "due", "lake.flights", "--reason", "a big load")
    assert result.out == "lake.flights is due: the next round plans it\n"
    found = status(arctic)["lake.flights"]
    assert (found["due_since"], found["due_because"]) == (first["due_since"], "a big load")
    assert found["reasons"][0].endswith(": a big load")
    lake.tick()
    assert status(arctic)["lake.flights"]["due_since"] is None
    assert len(lake.tasks(TaskState.PLANNED)) == 1


def test_a_rest_can_be_ended(lake: SmallLake, arctic: Command) -> None:
    """Then its table is due; one that does not rest is left alone."""
    lake.table("lake.flights", 3)
    lake.tick()
    awake = arctic("compaction", "wake", "lake.flights")
    assert awake.out == "lake.flights does not rest; nothing was changed\n"
    lake.fail("a broken file", final=True)
    resting = status(arctic)["lake.flights"]
    assert resting["rests_because"].endswith("a broken file")
    assert resting["reasons"][0].startswith("rests until 20")
    due = arctic("compaction", "due", "lake.flights").out
    assert "end that with: arctic compaction wake lake.flights" in due
    result = arctic("compaction", "wake", "lake.flights")
    assert result.out == "lake.flights no longer rests: the next round plans it\n"
    with lake.database.read() as tx:
        row = tables.table_by_name(tx, "lake.flights")
    assert (row.rests_until, row.failures, row.due_reason) == (
        None,
        0,
        f"{person()} ended its rest",
    )


def test_the_rest_of_files_can_be_ended(lake: SmallLake, arctic: Command) -> None:
    """Of those that were in quarantine; the table itself does not rest."""
    lake.table("lake.flights", 3, **{"arctic.compaction.attempts": "1"})
    lake.tick()
    lake.fail("a broken file")
    resting = status(arctic)["lake.flights"]
    assert (resting["resting_files"], resting["rests_until"]) == (3, None)
    assert resting["reasons"][0].startswith("3 files at rest until 20")
    explained = json.loads(arctic("compaction", "explain", "lake.flights", "--json").out)
    assert [one["rests"] for one in explained["resting_files"]] == [1, 1, 1]
    assert explained["plan"]["partitions"][0]["left"] == "resting"
    woken = json.loads(arctic("compaction", "wake", "lake.flights", "--json").out)
    assert woken == {"table": "lake.flights", "rested": True, "files": 3}
    lake.tick()
    assert len(lake.tasks(TaskState.PLANNED)) == 1


@ON_SQLITE
def test_unknown_tables_are_refused_with_those_there_are(lake: SmallLake, arctic: Command) -> None:
    """By every command that names one."""
    lake.table("lake.flights", 1)
    catalog = "table 'lake.lost' is not in catalog lake; there are lake.flights"
    for arguments, message in (
        (("list", "lake.lost"), catalog),
        (("explain", "lake.lost"), catalog),
        (("plan", "lake.lost"), catalog),
        (("run", "lake.lost"), catalog),
        (("due", "lake.lost"), catalog),
        (("wake", "lake.lost"), "compaction knows no table lake.lost, nor any"),
        (("expire-snapshots", "lake.lost", "--older-than", "1d"), catalog),
        (("remove-orphans", "lake.lost", "--older-than", "3d"), catalog),
        (("rewrite-manifests", "lake.lost"), catalog),
    ):
        refused = arctic("compaction", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert message in " ".join(refused.err.split())
    with lake.database.read() as tx:
        assert tables.all_tables(tx) == []


@ON_SQLITE
def test_a_catalog_that_is_down_is_retried_and_then_reported(
    lake: SmallLake, arctic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that nobody runs; and a catalog that pyiceberg cannot make sense of."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:9")
    down = arctic("compaction", "list")
    assert (down.code, down.out) == (2, "")
    assert "ARCTIC_CATALOG lake: the catalog did not answer, tried 5 times" in down.err
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "nothing")
    wrong = arctic("compaction", "list")
    assert wrong.code == 2
    assert "catalog lake cannot be opened as pyiceberg is configured" in wrong.err


@ON_SQLITE
def test_a_table_that_hangs_holds_back_no_other(
    lake: SmallLake, arctic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named; the others are shown."""
    lake.table("lake.a", 1)
    lake.table("lake.hangs", 1)
    lake.table("lake.z", 2)
    load, answers = lake_tables.load_table, threading.Event()

    def hanging(catalog: Catalog, name: str) -> Table:
        if name == "lake.hangs":
            answers.wait(PATIENCE_SECONDS)
        return load(catalog, name)

    monkeypatch.setattr(lake_tables, "load_table", hanging)
    try:
        found = status(arctic, "--timeout", "2s")
        alone = arctic("compaction", "list", "lake.hangs", "--timeout", "1s")
    finally:
        answers.set()
    numbers = {name: one["numbers"] and one["numbers"]["files"] for name, one in found.items()}
    assert numbers == {"lake.a": 1, "lake.hangs": None, "lake.z": 2}
    assert found["lake.hangs"]["reasons"] == ["did not answer within 2s"]
    assert (alone.code, "did not answer within 1s" in " ".join(alone.out.split())) == (0, True)


@ON_SQLITE
def test_without_a_state_database_nothing_is_made(
    lake: SmallLake, arctic: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Looking in a wrong place must not leave a database there."""
    elsewhere = tmp_path / "elsewhere.db"
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{elsewhere}")
    for arguments in (("list",), ("tasks", "list"), ("queues", "list"), ("records",)):
        refused = arctic("compaction", *arguments)
        assert refused.code == 2
        assert "There is no state database" in refused.err
    assert not elsewhere.exists()
