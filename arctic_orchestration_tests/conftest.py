"""What all tests stand on: real databases and real Dagster instances.

``CI=1`` turns a missing Postgres from a skip into a failure; ``HYPOTHESIS_PROFILE`` is ``dev``
(default) or ``ci``.
"""

import gc
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dagster import DagsterInstance
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from arctic_orchestration import migration_scripts, postgres_connections
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests import compiled_once, dagster_once, iceberg_once, without_fsync
from arctic_orchestration_tests.lake.class_archive import ClassArchive
from arctic_orchestration_tests.lake.sessions import FAST, FAST_JVM, OPTIONS
from arctic_orchestration_tests.one_spark import OneSpark, uses_spark
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from arctic_orchestration_tests.scratch import scratch_directory
from arctic_orchestration_tests.templates import Templates, forget_connections

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACKENDS = ("sqlite", "postgres")

settings.register_profile(
    "dev", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci",
    max_examples=400,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_numbers = itertools.count(1)

#: Seconds after which a proof that hangs ends its process, which ends the whole run. What a proof
#: waits for has limits of its own, with messages: on a slow machine, they must be reached first.
_LONGEST = 1800
_HERE = Path(__file__).parent
#: other files with few tests that take a minute
_LONG = ("test_worker_conformance.py",)


def pytest_configure(config: pytest.Config) -> None:
    """Where several workers start Spark again and again, an archive of its classes pays."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        kept = config.cache.mkdir("spark-classes") if config.cache is not None else None
        config.add_cleanup(ClassArchive(kept or scratch_directory("classes")).close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Proofs may take longer than other tests only at their full counts.

    pytest-randomly has mixed files, and the tests in each; files come in their order again. With
    several workers, those whose tests take long come first: at the end there are only small ones,
    which leave no worker without work while another one has much.
    """
    items.sort(key=lambda item: (item.path, _line(item)))
    if hasattr(config, "workerinput"):
        _longest_first(items)
    if os.environ.get("ARCTIC_PROOF") == "full":
        return
    for item in items:
        own = item.get_closest_marker("timeout")
        if own is not None and own.args[0] > _LONGEST:
            item.add_marker(pytest.mark.timeout(_LONGEST), append=False)


def pytest_collection_finish() -> None:
    """Modules and tests stay: each collection of garbage would go through millions of objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure() -> None:
    """Otherwise extensions complain of what was not freed."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSpark | None:
    """Replaces that of ``--dist loadfile``."""
    return OneSpark(config, log) if config.getoption("dist") == "loadfile" else None


def _line(item: pytest.Item) -> int:
    """Where the test stands, if it comes in the order of its file; else all stand alike."""
    return item.location[1] or 0 if item.get_closest_marker("in_order") else 0


def _longest_first(items: list[pytest.Item]) -> None:
    """What uses one Spark, proofs, then the rest; among them, files with many tests first."""
    tests = Counter(item.path for item in items)
    proofs = {item.path for item in items if item.get_closest_marker("proof")}

    def rank(item: pytest.Item) -> tuple[int, int, Path]:
        room = item.path.relative_to(_HERE).parts[0]
        is_long = room in ("flights", "lake", "run_launcher") or item.path.name in _LONG
        kind = 1 if item.path in proofs else 2 if is_long else 3
        if uses_spark(item.path):
            kind = 0
        return kind, -tests[item.path], item.path

    items.sort(key=rank)


@pytest.fixture(scope="session", autouse=True)
def _sqlite_without_fsync() -> Iterator[None]:
    without_fsync.put_in_place()
    yield
    without_fsync.take_away()


@pytest.fixture
def with_fsync(_sqlite_without_fsync: None) -> Iterator[None]:
    """SQLite as it is outside of tests."""
    without_fsync.take_away()
    yield
    without_fsync.put_in_place()


@pytest.fixture(scope="session", autouse=True)
def _spark_starts_fast() -> Iterator[None]:
    """Also where a command or a run starts it, in a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        if OPTIONS not in os.environ:
            patch.setenv(OPTIONS, FAST_JVM)
        yield


@pytest.fixture(scope="session", autouse=True)
def _read_and_compiled_once() -> None:
    migration_scripts.remember()
    compiled_once.put_in_place()
    dagster_once.put_in_place()
    iceberg_once.put_in_place()
    # Commands and requests find their instance themselves; on Postgres, most of what theirs costs
    # is opening connections.
    postgres_connections.reuse_in_process()


@pytest.fixture(scope="session")
def _postgres_session() -> Iterator[PostgresServer | None]:
    with running_server() as server:
        if server is None:
            print("no Postgres binaries found: tests that need a Postgres server are skipped")
        yield server


@pytest.fixture(scope="session")
def postgres_server(_postgres_session: PostgresServer | None) -> PostgresServer:
    """The session's Postgres server; without binaries a skip, or a failure where ``CI`` is set."""
    if _postgres_session is None:
        reason = "no Postgres binaries (initdb, postgres) on the PATH or in /usr/lib/postgresql"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return _postgres_session


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a fresh, empty Postgres database, dropped afterwards."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    postgres_server.create_database(name)
    yield name
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def spark(classic_spark: "SparkSession") -> "SparkSession":
    """A session of Spark in this process; the lake's tests have one of another kind, too."""
    return classic_spark


@pytest.fixture(scope="session")
def classic_spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One warm session of two cores for the whole process: a second one would be the same one,
    and who stops it would stop it for all. What finds it leaves it running."""
    from arctic_orchestration.lake import spark_session
    from arctic_orchestration.settings import Settings

    environment = {
        "ARCTIC_LAKE": str(tmp_path_factory.mktemp("spark")),
        "ARCTIC_SPARK_MASTER": "local[2]",
    }
    with spark_session(Settings.from_environment(environment), FAST) as session:
        yield session


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """``sqlite`` and ``postgres``, one after the other."""
    return str(request.param)


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Databases to copy."""
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def empty_url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The SQLAlchemy URL of a fresh, empty database, once on each backend."""
    if backend == "sqlite":
        return f"sqlite:///{tmp_path / 'arctic.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(request.getfixturevalue("postgres_database"))


@pytest.fixture
def database_url(
    backend: str, tmp_path: Path, templates: Templates, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The SQLAlchemy URL of a fresh state database of this version, once on each backend."""
    if backend == "sqlite":
        templates.state_file(tmp_path / "arctic.db")
        yield f"sqlite:///{tmp_path / 'arctic.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"test_{os.getpid()}_{next(_numbers)}"
    templates.state_database(server, name)
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh state database, once on each backend."""
    made = Database(database_url)
    yield made
    made.close()


@pytest.fixture
def state(database: Database) -> Database:
    """The same, where a lake's catalog has a database too."""
    return database


@pytest.fixture
def dagster_instance(
    tmp_path: Path, templates: Templates, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], DagsterInstance]]:
    """Makes a real Dagster instance: ``dagster_instance("sqlite")`` or ``("postgres")``.

    Its ``dagster.yaml`` stands in ``instance.root_directory``, which other processes can take as
    their ``DAGSTER_HOME``.
    """
    made: list[DagsterInstance] = []
    databases: list[tuple[PostgresServer, str]] = []

    def make(backend: str) -> DagsterInstance:
        home = tmp_path / f"dagster_home_{len(made)}"
        if backend == "sqlite":
            templates.dagster_home(home)
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            name = f"dagster_{os.getpid()}_{next(_numbers)}"
            databases.append((server, name))
            templates.dagster_home_on(server, name, home)
        instance = DagsterInstance.from_config(str(home))
        if backend == "postgres":
            postgres_connections.reuse_in_instance(instance)
        made.append(instance)
        return instance

    yield make
    for instance in made:
        instance.dispose()
    for server, name in databases:
        forget_connections(name)
        server.drop_database(name)
