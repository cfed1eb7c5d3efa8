"""The server that forks the processes of tests."""

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import sqlalchemy as sa

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.forking import PRELOADED, forkserver


def report(connection: Connection, path: Path) -> None:
    """What is not imported, how SQLite writes, and where Dagster's instance is."""
    missing = [name for name in PRELOADED if name not in sys.modules]
    database = Database(f"sqlite:///{path}")
    with database.read() as tx:
        synchronous = tx.execute(sa.text("pragma synchronous")).scalar_one()
    connection.send((missing, synchronous, os.environ.get("DAGSTER_HOME")))


def test_a_process_begins_with_everything_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be imported the server passes over in silence. SQLite waits for no disk.

    Nor has it the instance of the test that was the first to start one.
    """
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    context = forkserver()
    here, there = context.Pipe()
    process = context.Process(target=report, args=(there, tmp_path / "one.db"))
    process.start()
    assert here.poll(120)
    assert here.recv() == ([], 0, None)
    process.join()
