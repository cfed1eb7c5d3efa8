"""Databases that were made once in a process, and are copied for each test that wants one.

To migrate a state database, or to have Dagster make its storage, takes longer than most of the
tests on it; a copy is the same database.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import yaml
from dagster import DagsterInstance

from arctic_orchestration import postgres_connections
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer


class Templates:
    """Makes each template when its first copy is requested, in a directory or on a server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Path | str] = {}

    def state_file(self, to: Path) -> None:
        """Copies a SQLite state database of this version to a file that is not there."""
        template = self._made.get("state file")
        if template is None:
            template = self._made["state file"] = self._directory / "state.db"
            _migrate(f"sqlite:///{template}")
        # All of it stands in this file: who closes a database last leaves no log behind.
        shutil.copyfile(template, to)

    def state_database(self, server: PostgresServer, name: str) -> None:
        """Creates a state database of this version on a server."""
        template = self._made.get(f"state database {server.port}")
        if template is None:
            template = f"state_template_{os.getpid()}"
            _migrate(server.create_database(template))
            self._made[f"state database {server.port}"] = template
        server.create_database(name, template=str(template))

    def dagster_home(self, home: Path) -> None:
        """Makes the home of a Dagster instance on SQLite; the directory is not there yet."""
        template = self._made.get("dagster home")
        if template is None:
            template = self._made["dagster home"] = self._directory / "dagster_home"
            template.mkdir()
            write_dagster_yaml(template)
            DagsterInstance.from_config(str(template)).dispose()
        shutil.copytree(template, home)

    def dagster_home_on(self, server: PostgresServer, name: str, home: Path) -> None:
        """Makes the home of a Dagster instance and its database, of this name, on a server."""
        template = self._made.get(f"dagster database {server.port}")
        if template is None:
            template = f"dagster_template_{os.getpid()}"
            server.create_database(template)
            first = self._directory / template
            first.mkdir()
            write_dagster_yaml(first, server=server, database_name=template)
            DagsterInstance.from_config(str(first)).dispose()
            # A database that is connected to cannot be copied.
            forget_connections(template)
            self._made[f"dagster database {server.port}"] = template
        server.create_database(name, template=str(template))
        home.mkdir()
        write_dagster_yaml(home, server=server, database_name=name)


def forget_connections(name: str) -> None:
    """Closes the connections that this process keeps to a database of Dagster's, by its name."""
    for url in [url for url in postgres_connections._engines if url.endswith(f"/{name}")]:
        postgres_connections._engines.pop(url).dispose()


def give_zone(instance: DagsterInstance, server: PostgresServer, zone: str) -> None:
    """Gives the sessions of a Dagster database on Postgres another time zone."""
    storage: Any = instance.event_log_storage
    name = storage.postgres_url.rsplit("/", 1)[1]
    server.execute(f"alter database \"{name}\" set timezone to '{zone}'")
    forget_connections(name)


def _migrate(url: str) -> None:
    database = Database(url)
    database.upgrade()
    database.close()


def write_dagster_yaml(
    home: Path, *, server: PostgresServer | None = None, database_name: str = ""
) -> None:
    """Writes a ``dagster.yaml`` with storage on SQLite in ``home``, or on ``server``."""
    config: dict[str, object] = {"telemetry": {"enabled": False}}
    if server is not None:
        config["storage"] = {
            "postgres": {
                "postgres_db": {
                    # With SQLAlchemy 2.1 a bare `postgresql` would mean psycopg 3.
                    "scheme": "postgresql+psycopg2",
                    "username": "postgres",
                    "password": "unused",
                    "hostname": "127.0.0.1",
                    "port": server.port,
                    "db_name": database_name,
                }
            }
        }
    (home / "dagster.yaml").write_text(yaml.safe_dump(config))
