"""The services of ``deploy/compose.yaml``, as processes on loopback.

Commands, environment and configuration are those of the files; names of services become loopback,
ports free ones, and the folders of the image and of the volumes those of a test.
"""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil
import psycopg2
import pyspark
import pytest
import yaml

from arctic_orchestration.dagster_internals import create_postgres_engine, replace_engine_factory
from arctic_orchestration.lake import find_java
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.lake.sessions import FAST, jvm_options
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.proofs import forked_runs
from arctic_orchestration_tests.proofs.processes import end_with_the_parent, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
PASSWORD = "secret1"
#: what connections are for: Dagster's storage, the state database, the catalog of tables
DAGSTER, STATE, CATALOG = "dagster", "state", "catalog"
#: by the variables with their URLs
_USES = {"ARCTIC_DATABASE_URL": STATE, "PYICEBERG_CATALOG__LAKE__URI": CATALOG}
_PORTS = re.compile(r"(?<![\w.])(5432|6432|4000|4001|3000|3001|7077|8080)(?!\w)")
_NAMES = re.compile(r"(?:(?<=[@/=])|^)(database|pgbouncer|code-\w+|spark-master)(?=[: ]|$)")
_FOLDERS = re.compile(r"/opt/dagster|/lake\b|/tmp/users\.txt")


class User(NamedTuple):
    """A process that has connections."""

    #: empty: a run, or another child of a service
    service: str
    pid: int
    use: str


Connections = Counter[User]


def compose() -> dict[str, Any]:
    """The file, as it is."""
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def find_pgbouncer() -> str | None:
    """The program; Debian has it where only an administrator looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Topology:
    """Starts services by their names, and ends them.

    Args:
        home: a folder that does not exist yet.
        modules: what takes the places of the files' code locations, by the names of these.
        launcher: the configuration of the run launcher.
        forked: processes of Python begin with what they need already imported.
    """

    def __init__(
        self,
        home: Path,
        server: PostgresServer,
        modules: Mapping[str, str] | None = None,
        launcher: Mapping[str, Any] | None = None,
        forked: bool = False,
    ) -> None:
        self._forked = forked
        self._modules = modules or {}
        self._services: dict[str, Any] = compose()["services"]
        self.home = home
        self._lake = home / "lake"
        for folder in (home / "storage", self._lake):
            folder.mkdir(parents=True)
        self._ports = {str(port): str(free_port()) for port in (6432, 4000, 4001, 3000, 3001)}
        self._ports |= {"5432": str(server.port), "7077": str(free_port()), "8080": "0"}
        #: of the names of services, and what waits for their end
        self._started: list[tuple[str, psutil.Process, Callable[[], object]]] = []
        #: the processes of the pooler's clients, by port and by what the pooler calls them
        self._owners: dict[tuple[int, str], int] = {}
        #: where PgBouncer's account may read
        self._pooler = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
        self._pooler.chmod(0o755)
        for name in ("dagster.yaml", "workspace.yaml"):
            (home / name).write_text(self.here((DEPLOY / name).read_text()))
        instance = yaml.safe_load((home / "dagster.yaml").read_text())
        instance["run_launcher"]["config"] = dict(launcher or {})
        (home / "dagster.yaml").write_text(yaml.safe_dump(instance))
        (home / "spark").mkdir()
        cheap = "".join(f"{name} {value}\n" for name, value in FAST.items())
        defaults = (DEPLOY / "spark-defaults.conf").read_text()
        (home / "spark" / "spark-defaults.conf").write_text(defaults + cheap)

    def here(self, text: str) -> str:
        """A text of the files, with what it is called here."""
        text = re.sub(r"\$\{POSTGRES_PASSWORD[^}]*\}", PASSWORD, text)
        text = text.replace("0.0.0.0", "127.0.0.1").replace(
            "listen_addr = *", "listen_addr = 127.0.0.1"
        )
        text = re.sub(r"(host: )[\w-]+", r"\g<1>127.0.0.1", text)
        text = _NAMES.sub("127.0.0.1", text)
        text = _PORTS.sub(lambda match: self._ports[match[0]], text)
        folders = {
            "/opt/dagster": str(self.home),
            "/lake": str(self._lake),
            "/tmp/users.txt": str(self._pooler / "users.txt"),
        }
        return _FOLDERS.sub(lambda match: folders[match[0]], text)

    def port(self, number: int) -> int:
        """The port that one of the files has here."""
        return int(self._ports[str(number)])

    def environment(self, service: str) -> dict[str, str]:
        """What a service has of the file and of its image."""
        own = self._services[service].get("environment", {})
        variables = {name: self.here(str(value)) for name, value in own.items()}
        for name, used_for in _USES.items():
            if name in variables:
                variables[name] += f"?application_name={used_for}"
        return {
            **variables,
            "DAGSTER_HOME": str(self.home),
            "JAVA_HOME": str(find_java().home),
            "SPARK_DAEMON_JAVA_OPTS": jvm_options(),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_CONF_DIR": str(self.home / "spark"),
            "SPARK_WORKER_DIR": str(self.home / "spark-work"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }

    def command(self, service: str) -> list[str]:
        """The command of a service, with the programs of this environment."""
        given = (str(word) for word in self._services[service]["command"])
        program, *words = (self._modules.get(word) or self.here(word) for word in given)
        folder = Path(sys.executable).parent
        if program == "spark-class":
            folder = Path(pyspark.__file__).parent / "bin"
            words = ["0" if word == "8081" else word for word in words]
        return [str(folder / program), *words]

    def log(self, service: str) -> Path:
        return self.home / f"{service}.log"

    def start(self, service: str, replicas: int | None = None) -> None:
        """Starts every replica of a service, or so many."""
        declared = self._services[service].get("deploy", {}).get("replicas", 1)
        for _ in range(replicas or declared):
            environment = {**_inherited(), **self.environment(service)}
            command = self.command(service)
            if self._forked and Path(command[0]).name != "spark-class":
                fork = forkserver().Process(
                    target=_be, args=(command, environment, self.log(service))
                )
                fork.start()
                assert fork.pid is not None
                self._started.append((service, psutil.Process(fork.pid), fork.join))
                continue
            with self.log(service).open("ab") as log:
                made = self._popen(command, environment, log)
                self._started.append((service, psutil.Process(made.pid), made.wait))

    def _popen(
        self, command: list[str], environment: Mapping[str, str], log: IO[bytes], **options: Any
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, env=dict(environment), cwd=self.home, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, preexec_fn=end_with_the_parent, **options,
        )  # fmt: skip

    def complete(self, service: str) -> None:
        """Runs a service that ends."""
        environment = {**_inherited(), **self.environment(service)}
        with self.log(service).open("ab") as log:
            ended = self._popen(self.command(service), environment, log).wait(PATIENCE_SECONDS)
        assert ended == 0, self.log(service).read_text()

    def start_pgbouncer(self) -> None:
        """As the image does it: users, then the program with the configuration of the files."""
        program = find_pgbouncer()
        assert program is not None
        variables = self._services["pgbouncer"]["environment"]
        user, password = (self.here(variables[name]) for name in ("PGUSER", "PGPASSWORD"))
        configuration = self._pooler / "pgbouncer.ini"
        configuration.write_text(
            self.here((DEPLOY / "pgbouncer.ini").read_text()) + f"stats_users = {user}\n"
        )
        users = self._pooler / "users.txt"
        users.write_text(f'"{user}" "{password}"\n')
        options: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(users, account.pw_uid, account.pw_gid)
            options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        users.chmod(0o600)
        with self.log("pgbouncer").open("ab") as log:
            command = [program, str(configuration)]
            made = self._popen(command, os.environ, log, **options)
            self._started.append(("pgbouncer", psutil.Process(made.pid), made.wait))
        until(self._pools, "PgBouncer answers")

    def _pools(self) -> bool:
        try:
            self.console().close()
        except psycopg2.OperationalError:
            return False
        return True

    def console(self) -> Any:
        """A connection to PgBouncer's console; the caller closes it."""
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port(6432), user="dagster", password=PASSWORD,
            dbname="pgbouncer",
        )  # fmt: skip
        connection.autocommit = True
        return connection

    def connections(self, console: Any) -> Connections:
        """How many connections to the pooler each process has at this moment, by their use."""
        services = {process.pid: name for name, process, _ in self._started}
        with console.cursor() as cursor:
            cursor.execute("SHOW CLIENTS")
            columns = [column.name for column in cursor.description]
            names = ("port", "ptr", "application_name")
            port, pointer, use = (columns.index(name) for name in names)
            clients = {(row[port], row[pointer]): row[use] for row in cursor.fetchall()}
        self._note_owners(clients)
        found: Connections = Counter()
        for client, name in clients.items():
            pid = self._owners.get(client)
            if pid is not None and pid != os.getpid():
                found[User(services.get(pid, ""), pid, name or DAGSTER)] += 1
        return found

    def _note_owners(self, clients: Collection[tuple[int, str]]) -> None:
        """Looks up the processes of new clients: the system is asked for all of its sockets."""
        self._owners = {client: pid for client, pid in self._owners.items() if client in clients}
        if all(client in self._owners for client in clients):
            return
        pooler = self.port(6432)
        pids = {
            opened.laddr.port: opened.pid
            for opened in psutil.net_connections("tcp")
            if opened.pid and opened.laddr and opened.raddr and opened.raddr.port == pooler
        }
        for client in clients:
            if client[0] in pids:
                self._owners.setdefault(client, pids[client[0]])

    def logs(self) -> str:
        """The ends of what the services have written."""
        return "\n".join(
            f"{file.name}:\n{file.read_text(errors='replace')[-2000:]}"
            for file in sorted(self.home.glob("*.log"))
        )

    def close(self) -> None:
        """Ends all services, and what they have started."""
        for _, root, _ in self._started:
            for member in [*_children(root), root]:
                _kill(member)
        for process in psutil.process_iter():
            # Run hosts belong to nobody.
            try:
                if process.environ().get("DAGSTER_HOME") == str(self.home):
                    _kill(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        for _, _, wait_for_end in self._started:
            wait_for_end()
        shutil.rmtree(self._pooler, ignore_errors=True)


def _be(command: list[str], environment: dict[str, str], log: Path) -> None:
    """Becomes a service, as the script of its command does."""
    end_with_the_parent()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(environment["DAGSTER_HOME"])
    # Forked processes of other tests reuse connections, whatever they are.
    replace_engine_factory(create_postgres_engine)
    name = Path(command[0]).name
    if name == "dagster":
        forked_runs.put_in_place()
    sys.argv = command
    (script,) = entry_points(group="console_scripts", name=name)
    script.load()()


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    if process.pid == os.getpid():
        return
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def _inherited() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ARCTIC_", "DAGSTER_", "PYICEBERG_", "SPARK_", "PYSPARK_"))
    }


@contextmanager
def topology(home: Path, server: PostgresServer, **changes: Any) -> Iterator[Topology]:
    """Yields the services, of which the pooler runs and the schema is there.

    ``changes`` are those of :class:`Topology`.
    """
    if find_pgbouncer() is None:
        reason = "PgBouncer is not installed: see tools/ensure_postgres"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    server.execute(f"create role dagster login superuser password '{PASSWORD}'")
    server.execute("create database dagster owner dagster")
    made = Topology(home, server, **changes)
    try:
        made.start_pgbouncer()
        made.complete("setup")
        yield made
    finally:
        made.close()
        server.drop_database("dagster")
        server.execute("drop role dagster")


def wait(made: Topology, condition: Any, what: str) -> None:
    """Waits for a condition; a failure shows what the services have written."""
    began = time.monotonic()
    try:
        until(condition, what)
    except AssertionError as error:
        waited = time.monotonic() - began
        raise AssertionError(f"{error} ({waited:.0f} s)\n{made.logs()}") from None
