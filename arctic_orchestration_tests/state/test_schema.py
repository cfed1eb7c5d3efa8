"""The schema: one for fresh and migrated databases, and a refusal where it is another."""

import multiprocessing
import socket
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from arctic_orchestration.errors import (
    DatabaseUnavailable,
    InvalidInput,
    SchemaOutdated,
    SchemaTooNew,
)
from arctic_orchestration.state.database import SCHEMA_REVISION, Database
from arctic_orchestration.state.migrations import VERSION_TABLE, configuration
from arctic_orchestration.state.tables import metadata
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import PostgresServer

FIRST = "0028"


def schema(connection: sa.Connection) -> dict[str, Any]:
    """All that inspection tells of our tables, but for the version table."""
    found: dict[str, Any] = {}
    inspector = sa.inspect(connection)
    for table in inspector.get_table_names():
        if table == VERSION_TABLE:
            continue
        columns = {
            column["name"]: (str(column["type"]), column["nullable"], column["default"])
            for column in inspector.get_columns(table)
        }
        indexes = {
            index["name"]: (index["column_names"], index["unique"], _condition(index))
            for index in inspector.get_indexes(table)
        }
        keys = {
            key["name"]: (
                key["constrained_columns"],
                key["referred_table"],
                key["referred_columns"],
                key["options"],
            )
            for key in inspector.get_foreign_keys(table)
        }
        found[table] = {
            "columns": columns,
            "order": list(columns),
            "indexes": indexes,
            "primary key": inspector.get_pk_constraint(table),
            "foreign keys": keys,
            "unique": sorted(map(str, inspector.get_unique_constraints(table))),
            "checks": inspector.get_check_constraints(table),
        }
    return found


def _condition(index: Any) -> str | None:
    options = index.get("dialect_options", {})
    condition = options.get("sqlite_where", options.get("postgresql_where"))
    return None if condition is None else str(condition)


@pytest.fixture
def other_url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A second fresh, empty database on the same backend."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'other.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"{request.getfixturevalue('postgres_database')}_other"
    yield server.create_database(name)
    server.drop_database(name)


def restore_first_schema(database: Database) -> None:
    """Makes the tables as they were when migrations began."""
    with database.begin() as tx:
        file = Path(__file__).parent / f"schema_{FIRST}_{tx.dialect.name}.sql"
        for statement in file.read_text().strip().split(";\n"):
            tx.execute(sa.text(statement))
        command.stamp(configuration(tx), FIRST)


def test_a_migrated_database_has_the_schema_of_a_fresh_one(empty_url: str, other_url: str) -> None:
    """Column for column, index for index, with the conditions of partial indexes."""
    migrated, fresh = Database(empty_url), Database(other_url)
    restore_first_schema(migrated)
    migrated.upgrade()
    fresh.upgrade()
    with migrated.read() as one, fresh.read() as two:
        upgraded, created = schema(one), schema(two)
        assert sorted(upgraded) == sorted(metadata.tables)
        for table, parts in created.items():
            # A column that a migration adds stands last.
            assert sorted(upgraded[table].pop("order")) == sorted(parts.pop("order"))
            assert upgraded[table] == parts, table
        condition = upgraded["arctic_jobs"]["indexes"]["uq_arctic_jobs_one_waiting"][2]
        assert "waiting_trigger" in condition
        assert "waiting_constraints" in condition
    migrated.close()
    fresh.close()


def test_alembic_finds_nothing_left_to_migrate(empty_url: str) -> None:
    """Its own comparison of the tables with the database, types and defaults too."""
    database = Database(empty_url)
    database.upgrade()
    with database.begin() as tx:
        options: dict[str, Any] = {
            "compare_type": True,
            "compare_server_default": True,
            "version_table": VERSION_TABLE,
        }
        context = MigrationContext.configure(tx, opts=options)
        assert compare_metadata(context, metadata) == []
    database.close()


def test_the_revision_of_the_package_is_the_last_migration(empty_url: str) -> None:
    """One line of migrations, and its head is what an upgrade arrives at."""
    database = Database(empty_url)
    with database.begin() as tx:
        script = ScriptDirectory.from_config(configuration(tx))
    assert script.get_heads() == [SCHEMA_REVISION]
    assert database.revision() is None
    database.upgrade()
    assert database.revision() == SCHEMA_REVISION
    database.upgrade()
    assert database.revision() == SCHEMA_REVISION
    database.close()


def test_a_schema_from_before_the_first_migration_is_refused(database_url: str) -> None:
    """With what to do, and unchanged, whether it is opened or upgraded."""
    database = Database(database_url)
    with database.begin() as tx:
        tx.execute(sa.text(f"update {VERSION_TABLE} set version_num = '0027'"))
    refusal = r"revision 0027, from before the first release; .* from 0028 on. Use an empty"
    with pytest.raises(SchemaOutdated, match=refusal):
        database.upgrade()
    with pytest.raises(SchemaOutdated, match=r"has revision 0027"):
        Database.open(database_url)
    assert database.revision() == "0027"
    database.close()


def test_sqlite_is_migrated_on_first_use(tmp_path: Path) -> None:
    """Its directory is made, too; opening again changes nothing."""
    url = f"sqlite:///{tmp_path / 'new' / 'arctic.db'}"
    for _ in range(2):
        database = Database.open(url)
        assert database.revision() == SCHEMA_REVISION
        database.close()


def test_postgres_is_upgraded_on_purpose(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    """Without our tables or with older ones it is refused, and the command is named."""
    url = postgres_server.url(postgres_database)
    with pytest.raises(SchemaOutdated, match=r"no tables, .* needs .* Run: arctic db upgrade"):
        Database.open(url)
    database = Database(url)
    with database.read() as tx:
        assert sa.inspect(tx).get_table_names() == []
    database.upgrade()
    Database.open(url).close()
    with database.begin() as tx:
        tx.execute(sa.text(f"update {VERSION_TABLE} set version_num = '0000'"))
    with pytest.raises(SchemaOutdated, match=r"revision 0000, .* Run: arctic db upgrade"):
        Database.open(url)
    database.close()


def test_an_upgrade_that_waited_for_a_newer_version_is_refused(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it read before it had the lock is out of date."""
    database = Database(empty_url)
    database.upgrade()
    with database.begin() as tx:
        tx.execute(sa.text(f"update {VERSION_TABLE} set version_num = '9999'"))
    monkeypatch.setattr(Database, "revision", lambda _: FIRST)
    with pytest.raises(SchemaTooNew, match="has revision 9999"):
        database.upgrade()
    with database.read() as tx:
        version = tx.execute(sa.text(f"select version_num from {VERSION_TABLE}")).scalar_one()
    assert version == "9999"
    database.close()


def _open(url: str, barrier: Any, answers: Any) -> None:
    try:
        barrier.wait(PATIENCE_SECONDS)
        database = Database(url)
        database.upgrade()
        answers.put(database.revision())
    except Exception as error:
        answers.put(repr(error))


def test_several_processes_migrate_one_database_at_once(empty_url: str) -> None:
    """One does the work, the others wait for it."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(4), context.Queue()
    processes = [
        context.Process(target=_open, args=(empty_url, barrier, answers)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    assert [answers.get(timeout=PATIENCE_SECONDS) for _ in processes] == [SCHEMA_REVISION] * 4
    for process in processes:
        process.join()


@pytest.mark.parametrize("url", ["mysql://host/db", "arctic.db", "", "postgresql+asyncpg://h/d"])
def test_what_is_no_database_of_ours_is_refused(url: str) -> None:
    """Naming the variable, the value and what was expected."""
    with pytest.raises(InvalidInput) as refusal:
        Database(url)
    assert refusal.value.field == "ARCTIC_DATABASE_URL"
    assert refusal.value.expected.startswith("a URL of sqlite:/// or postgresql://")


def test_a_password_is_never_shown() -> None:
    """A message may end in a log."""
    with pytest.raises(InvalidInput) as refusal:
        Database("mysql://user:secret@host/db")
    assert "secret" not in str(refusal.value)


def test_a_plain_postgres_url_means_the_driver_that_is_installed(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    """SQLAlchemy 2.1 alone would look for psycopg 3."""
    for scheme in ("postgresql://", "postgresql+psycopg2://"):
        url = postgres_server.url(postgres_database).replace("postgresql+psycopg2://", scheme)
        database = Database(url)
        assert database.revision() is None
        database.close()


def test_a_file_that_is_read_only_is_named_so(tmp_path: Path) -> None:
    """SQLite's own words are of a write; commands that only read have them, too."""
    path = tmp_path / "state.db"
    Database.open(f"sqlite:///{path}").close()
    database = Database(f"sqlite:///file:{path}?mode=ro&uri=true")
    with (
        pytest.raises(DatabaseUnavailable, match="read-only for this user"),
        database.begin() as tx,
    ):
        tx.execute(sa.text("insert into arctic_resources (name) values ('never')"))
    database.close()


def test_a_role_without_a_privilege_is_refused_with_the_reason(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    """It may neither create the tables, as in the schema public since Postgres 15, nor write."""
    role = f"reader_{postgres_database}"
    owner = Database(postgres_server.url(postgres_database))
    url = owner.engine.url.set(username=role).render_as_string(hide_password=False)
    reader = Database(url)
    try:
        with owner.begin() as tx:
            tx.execute(sa.text(f"create role {role} login"))
            tx.execute(sa.text("revoke create on schema public from public"))
        with pytest.raises(DatabaseUnavailable, match="permission denied for schema public[.]"):
            reader.upgrade()
        owner.upgrade()
        with (
            pytest.raises(DatabaseUnavailable, match="permission denied for table"),
            reader.read() as tx,
        ):
            tx.execute(sa.text("select name from arctic_resources"))
        with owner.begin() as tx:
            tx.execute(sa.text(f"grant select on all tables in schema public to {role}"))
        with reader.read() as tx:
            assert tx.execute(sa.text("select name from arctic_resources")).all() == []
        with (
            pytest.raises(DatabaseUnavailable, match="permission denied for table"),
            reader.begin() as tx,
        ):
            tx.execute(sa.text("insert into arctic_resources (name) values ('never')"))
    finally:
        reader.close()
        with owner.begin() as tx:
            tx.execute(sa.text(f"drop owned by {role}"))
            tx.execute(sa.text(f"drop role {role}"))
        owner.close()


def test_a_missing_schema_of_postgres_is_refused_with_the_reason(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    url = f"{postgres_server.url(postgres_database)}?options=-csearch_path%3Darctic"
    database = Database(url)
    with pytest.raises(DatabaseUnavailable, match="Create the schema that search_path names"):
        database.upgrade()
    database.close()


def test_nothing_is_written_to_a_file_that_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a backup that is restored while a dispatcher runs; or removed."""
    file, backup = tmp_path / "state.db", tmp_path / "backup.db"
    monkeypatch.chdir(tmp_path)
    database = Database.open("sqlite:///state.db")
    Database.open(f"sqlite:///{backup}").close()
    monkeypatch.chdir("/")
    with database.begin() as tx:
        tx.execute(sa.text("insert into arctic_resources (name) values ('from elsewhere')"))
    for change in (lambda: backup.replace(file), file.unlink):
        change()
        with (
            pytest.raises(DatabaseUnavailable, match="was removed or replaced"),
            database.begin(),
        ):
            pytest.fail("the block must not begin")
    database.close()


def test_a_server_that_is_down_says_so_and_nothing_has_changed(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    """Refused connections, and one that is lost in the middle of a transaction."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        database = Database(f"postgresql://127.0.0.1:{nobody.getsockname()[1]}/db")
        with pytest.raises(DatabaseUnavailable, match="did not answer"), database.begin():
            pytest.fail("the block must not begin")
        database.close()
    database = Database(postgres_server.url(postgres_database))
    database.upgrade()
    lost = pytest.raises(DatabaseUnavailable, match="did not answer")
    with lost as refusal, database.begin() as tx:
        tx.execute(sa.text("insert into arctic_resources (name) values ('lost')"))
        own = tx.execute(sa.text("select pg_backend_pid()")).scalar_one()
        postgres_server.end_backend(own)
        tx.execute(sa.text("insert into arctic_resources (name) values ('never')"))
    assert isinstance(refusal.value.__cause__, sa.exc.OperationalError)
    with database.read() as tx:
        assert tx.execute(sa.text("select count(*) from arctic_resources")).scalar_one() == 0
    database.close()


def test_a_sqlite_file_that_is_none_says_so(tmp_path: Path) -> None:
    """Another file under the name is left as it is."""
    file = tmp_path / "arctic.db"
    file.write_text("this is not a database, and longer than a header of sixteen bytes" * 20)
    before = file.read_bytes()
    with pytest.raises(DatabaseUnavailable, match="not a database"):
        Database.open(f"sqlite:///{file}")
    assert file.read_bytes() == before
