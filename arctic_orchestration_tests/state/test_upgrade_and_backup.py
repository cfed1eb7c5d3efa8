"""What docs/upgrade.md and docs/operation.md say of upgrades and backups, carried out."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.state.database import SCHEMA_REVISION, Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import find_binaries
from arctic_orchestration_tests.state.test_schema import (
    FIRST,
    other_url,
    restore_first_schema,
    schema,
)

__all__ = ["other_url"]

_NAMES = sa.text("select name from arctic_resources order by name")
_INSERT = sa.text("insert into arctic_resources (name) values (:name)")


def db_upgrade(url: str, *options: str) -> str:
    program = "from arctic_orchestration.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "db", "upgrade", *options],
        env={"ARCTIC_DATABASE_URL": url}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def _names(database: Database) -> list[str]:
    with database.read() as tx:
        return list(tx.execute(_NAMES).scalars())


def test_a_database_in_use_is_upgraded_and_every_commit_stays(empty_url: str) -> None:
    """Writers of the first revision go on meanwhile: each of their commits is there afterwards."""
    with closing(Database(empty_url)) as database:
        restore_first_schema(database)
        assert FIRST in db_upgrade(empty_url, "--dry-run")
        assert database.revision() == FIRST
        enough, stop = threading.Event(), threading.Event()
        committed: list[str] = []

        def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                name = f"{writer}-{number:06}"
                with database.begin() as tx:
                    tx.execute(_INSERT, {"name": name})
                committed.append(name)
                number += 1
                enough.set()

        writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for writer in writers:
            writer.start()
        assert enough.wait(PATIENCE_SECONDS)
        before = len(committed)
        try:
            db_upgrade(empty_url)
        finally:
            stop.set()
            for writer in writers:
                writer.join(PATIENCE_SECONDS)
        assert len(committed) >= before
        assert database.revision() == SCHEMA_REVISION
        assert _names(database) == sorted(committed)


def _run(program: str, *words: str) -> None:
    binaries = find_binaries()
    assert binaries is not None
    if not (binaries / program).exists():
        pytest.skip(f"this Postgres has come without {program}: see tools/version_matrix.py")
    subprocess.run([str(binaries / program), *words], check=True, capture_output=True)


def _copy(url: str, other: str, backend: str, backup: Path) -> None:
    """Backs up one database, and restores it as another, as docs/operation.md says."""
    if backend == "sqlite":
        source, target = (str(sa.make_url(each).database) for each in (url, other))
        for one, two in ((source, str(backup)), (str(backup), target)):
            with closing(sqlite3.connect(one)) as read, closing(sqlite3.connect(two)) as written:
                read.backup(written)
        return
    source, target = (each.replace("+psycopg2", "") for each in (url, other))
    _run("pg_dump", "--format=custom", "--table=arctic_*", f"--file={backup}", f"--dbname={source}")
    _run("pg_restore", "--exit-on-error", "--single-transaction", f"--dbname={target}", str(backup))


@pytest.mark.parametrize("first", [True, False], ids=["before-upgrade", "of-this-version"])
def test_a_restored_backup_has_what_was_committed(
    empty_url: str, other_url: str, backend: str, first: bool, tmp_path: Path
) -> None:
    """The way back of docs/upgrade.md: schema and rows of before, ready for another upgrade."""
    with closing(Database(empty_url)) as database, closing(Database(other_url)) as restored:
        restore_first_schema(database) if first else database.upgrade()
        with database.begin() as tx:
            tx.execute(_INSERT, {"name": "before"})
        with database.read() as tx:
            expected: dict[str, Any] = schema(tx)
        _copy(empty_url, other_url, backend, tmp_path / "backup")
        with database.begin() as tx:
            tx.execute(_INSERT, {"name": "later"})
        with restored.read() as tx:
            assert schema(tx) == expected
        assert restored.revision() == (FIRST if first else SCHEMA_REVISION)
        assert _names(restored) == ["before"]
        restored.upgrade()
        assert restored.revision() == SCHEMA_REVISION
        assert _names(restored) == ["before"]
