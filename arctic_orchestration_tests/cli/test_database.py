"""``arctic db upgrade``."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.cli import database as command_module
from arctic_orchestration.cli.doctor.command import examine
from arctic_orchestration.console.findings import BAD
from arctic_orchestration.state import database as database_module
from arctic_orchestration.state import migrations
from arctic_orchestration.state.database import SCHEMA_REVISION, Database
from arctic_orchestration.state.migrations import VERSION_TABLE
from arctic_orchestration.state.tables import schema_upgrades
from arctic_orchestration_tests.cli.conftest import Outcome

FOLDER = Path(migrations.__file__).parent


def test_an_upgrade_makes_the_schema_and_says_from_what(
    empty_url: str, arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time there is nothing to do."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", empty_url)
    first = arctic("db", "upgrade")
    assert (first.code, first.err) == (0, "")
    assert first.out.endswith(f": empty → {SCHEMA_REVISION}\n")
    Database.open(empty_url).close()
    again = arctic("db", "upgrade")
    assert again.code == 0
    assert again.out.endswith(f" is at revision {SCHEMA_REVISION} already\n")
    document = json.loads(arctic("db", "upgrade", "--json").out)
    assert (document["before"], document["revision"]) == (SCHEMA_REVISION, SCHEMA_REVISION)


@pytest.fixture
def two_migrations_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of the package with two more migrations."""
    scripts = tmp_path / "migrations"
    shutil.copytree(FOLDER, scripts)
    for revision, before in (("9001", SCHEMA_REVISION), ("9002", "9001")):
        (scripts / "versions" / f"v{revision}.py").write_text(
            f'"""Add table later_{revision}."""\n'
            "from alembic import op\n"
            f"revision, down_revision = {revision!r}, {before!r}\n"
            f"def upgrade(): op.execute('create table later_{revision} (id integer)')\n"
        )
    original = migrations.configuration

    def configuration(connection: sa.Connection | None = None) -> Any:
        config = original(connection)
        config.set_main_option("script_location", str(scripts))
        return config

    monkeypatch.setattr(migrations, "configuration", configuration)
    monkeypatch.setattr(database_module, "SCHEMA_REVISION", "9002")
    monkeypatch.setattr(command_module, "SCHEMA_REVISION", "9002")


def test_a_dry_run_lists_what_would_run_and_changes_nothing(
    database_url: str,
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    two_migrations_later: None,
) -> None:
    """The migrations after the revision of the database; without the option, they run."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    shown = arctic("db", "upgrade", "--dry-run").out
    assert f"{SCHEMA_REVISION} → 9002 would run" in shown
    assert [line.rstrip().split(maxsplit=1) for line in shown.splitlines()[-2:]] == [
        ["9001", "Add table later_9001."],
        ["9002", "Add table later_9002."],
    ]
    with closing(Database(database_url)) as database:
        assert database.revision() == SCHEMA_REVISION
        document = json.loads(arctic("db", "upgrade", "--json").out)
        assert [one["revision"] for one in document["migrations"]] == ["9001", "9002"]
        assert database.revision() == "9002"
        with database.read() as tx:
            assert {"later_9001", "later_9002"} < set(sa.inspect(tx).get_table_names())


def test_a_dry_run_on_an_empty_database_makes_none(
    empty_url: str, arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step creates all tables; a file of SQLite does not appear."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", empty_url)
    first = json.loads(arctic("db", "upgrade", "--dry-run", "--json").out)
    assert first["migrations"] == [{"revision": SCHEMA_REVISION, "does": "Create all tables."}]
    assert (first["before"], first["dry_run"]) == (None, True)
    file = sa.make_url(empty_url).database if empty_url.startswith("sqlite") else None
    assert file is None or not Path(file).exists()
    with closing(Database(empty_url)) as database:
        assert database.revision() is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://user:secret@host/db", "expected a URL of sqlite:/// or postgresql://"),
        ("postgresql://user:secret@127.0.0.1:1/db", "The state database did not answer"),
        # The folder cannot be made: it would lie in a file.
        (f"sqlite:///{__file__}/folder/arctic.db", "unable to open database file"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_message(
    url: str, message: str, arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and no password in it."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", url)
    result = arctic("db", "upgrade")
    assert result.code == 2
    assert message in result.err.replace("\n", " ")
    assert "secret" not in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "command",
    [["db", "upgrade"], ["schedules", "list"], ["locations", "list"], ["consumers", "list"]],
    ids=" ".join,
)
@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "unknown"])
def test_a_newer_schema_is_one_message(
    database_url: str,
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    is_noted: bool,
) -> None:
    """After a rollback of the package: which version wrote it, and what to do."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    database = Database(database_url)
    with database.begin() as tx:
        tx.execute(sa.text(f"update {VERSION_TABLE} set version_num = '9999'"))
        if is_noted:
            values = {"revision": "9999", "package": "7.1.0"}
            tx.execute(sa.update(schema_upgrades).values(values))
    result = arctic(*command)
    assert result.code == 2
    by = "arctic-orchestration 7.1.0" if is_noted else "a newer version of arctic-orchestration"
    assert f"has revision 9999, written by {by}; this is arctic-orchestration" in result.err
    assert "Install that version again, or restore a backup" in result.err
    (found,) = [one for one in examine() if one.check == "state database"]
    assert (found.status, "first use" in found.advice) == (BAD, False)
    assert f"written by {by}" in found.found
    assert database.revision() == "9999"
    database.close()


def test_each_upgrade_notes_the_version_of_the_package(empty_url: str) -> None:
    """Once; opening it again is none."""
    database = Database(empty_url)
    for _ in range(2):
        database.upgrade()
    with database.read() as tx:
        columns = (schema_upgrades.c.revision, schema_upgrades.c.package)
        rows = [tuple(row) for row in tx.execute(sa.select(*columns))]
    assert rows == [(SCHEMA_REVISION, version("arctic-orchestration"))]
    database.close()
