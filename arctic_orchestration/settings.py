"""The configuration from outside, read once from the environment.

==========================  ===========================================================
``ARCTIC_DATABASE_URL``     state database; default: SQLite in ``$DAGSTER_HOME/arctic.db``
``ARCTIC_CLUSTER``          name of this Dagster instance among those that share the database
``ARCTIC_CATALOG``          pyiceberg catalog of the lake
``ARCTIC_LAKE``             directory of the embedded catalog and its tables
``ARCTIC_SPARK_MASTER``     Spark master URL
``ARCTIC_SPARK_REMOTE``     Spark Connect server, in place of a master; may hold a token
``ARCTIC_SPARK_UI``         web page of a Spark standalone master, for the load ``spark``
``ARCTIC_DAGSTER_URL``      where Dagster's UI is, for links from the pages of this package
``ARCTIC_SERVICE_URL``      where these pages are, for links from Dagster's runs and assets
``ARCTIC_METRICS_PORT``     port on loopback for Prometheus; none: no metrics are served
``ARCTIC_NOTIFICATIONS``    YAML file of the channels of notices
``ARCTIC_RUN_HOSTS``        folder of the sockets of run hosts; see ``run_launcher.messages``
``ARCTIC_TIMEZONE``         zone in which today starts for tasks that name none; default: UTC
==========================  ===========================================================
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from arctic_orchestration.errors import InvalidInput

#: the names above, and those that ``arctic serve`` reads
VARIABLES = (
    "ARCTIC_CATALOG",
    "ARCTIC_CLUSTER",
    "ARCTIC_DAGSTER_URL",
    "ARCTIC_DATABASE_URL",
    "ARCTIC_GROUP_SCOPES",
    "ARCTIC_LAKE",
    "ARCTIC_METRICS_PORT",
    "ARCTIC_NOTIFICATIONS",
    "ARCTIC_RUN_HOSTS",
    "ARCTIC_SERVICE_URL",
    "ARCTIC_SPARK_MASTER",
    "ARCTIC_SPARK_REMOTE",
    "ARCTIC_SPARK_UI",
    "ARCTIC_TIMEZONE",
    "ARCTIC_TRUSTED_PROXIES",
)

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_HIGHEST_PORT = 65_535
#: As PySpark reads it; an ``=`` in a value is written ``%3D``.
_CONNECT_SERVER = re.compile(
    r"sc://(\[[0-9A-Fa-f:.]+\]|[^][\s/:;?#@]+)(:(?P<port>[1-9][0-9]{0,4}))?(/(;[^\s;=]+=[^\s;=]*)*)?"
)
_WEB_PAGE = re.compile(r"https?://[^/\s][^\s]*")
_PAGES = "http://host:3001"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The configuration of one process."""

    #: may contain a password
    database_url: str = field(repr=False)
    cluster: str
    catalog: str
    lake: Path
    spark_master: str
    #: may contain a token
    spark_remote: str | None = field(default=None, repr=False)
    spark_ui: str | None = None
    #: without a slash at its end; empty: on the server of the pages
    dagster_url: str | None = None
    metrics_port: int | None = None
    notifications: Path | None = None
    timezone: str = "UTC"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Reads the settings.

        Errors:
            InvalidInput: a variable has an invalid value.
        """
        env = os.environ if environment is None else environment
        home = Path(env.get("DAGSTER_HOME") or ".").resolve()
        if not home.is_dir():
            expected = "a folder that exists: Dagster's instance is in it, and arctic.db"
            raise InvalidInput("DAGSTER_HOME", env["DAGSTER_HOME"], expected)
        cluster = env.get("ARCTIC_CLUSTER") or "default"
        if not _NAME.fullmatch(cluster):
            raise InvalidInput(
                "ARCTIC_CLUSTER", cluster, "1 to 63 of the characters A-Z a-z 0-9 _ . -"
            )
        port = env.get("ARCTIC_METRICS_PORT") or None
        if port is not None and not (_PORT.fullmatch(port) and int(port) <= _HIGHEST_PORT):
            raise InvalidInput("ARCTIC_METRICS_PORT", port, f"a port from 1 to {_HIGHEST_PORT}")
        notifications = env.get("ARCTIC_NOTIFICATIONS") or None
        # Checked here: `service_page` reads it for each run, and fails for none.
        _web_page(env, "ARCTIC_SERVICE_URL", _PAGES)
        return cls(
            database_url=env.get("ARCTIC_DATABASE_URL") or _sqlite(home / "arctic.db"),
            cluster=cluster,
            catalog=env.get("ARCTIC_CATALOG") or "lake",
            lake=Path(env.get("ARCTIC_LAKE") or home / "lake"),
            spark_master=env.get("ARCTIC_SPARK_MASTER") or "local[*]",
            spark_remote=_spark_remote(env),
            spark_ui=_web_page(env, "ARCTIC_SPARK_UI", "http://host:8080"),
            dagster_url=_web_page(env, "ARCTIC_DAGSTER_URL", "http://host:3000"),
            metrics_port=int(port) if port is not None else None,
            notifications=Path(notifications) if notifications is not None else None,
            timezone=default_timezone(env),
        )


def _sqlite(file: Path) -> str:
    # Commands without a state database do not import it.
    from sqlalchemy import URL

    # Version 2.1 reads %, ? and # of a URL otherwise than version 2.0 did.
    return URL.create("sqlite", database=str(file)).render_as_string()


def service_page(*path: str, **parameters: str | None) -> str | None:
    """Returns the URL of a page of ``arctic serve``; None: ``ARCTIC_SERVICE_URL`` has no address.

    No run fails for a bad one: :meth:`Settings.from_environment` refuses it.
    """
    try:
        base = _web_page(os.environ, "ARCTIC_SERVICE_URL", _PAGES)
    except InvalidInput:
        base = None
    if base is None:
        return None
    given = {name: value for name, value in parameters.items() if value is not None}
    query = f"?{urlencode(given)}" if given else ""
    return "/".join([base, *(quote(part, safe="") for part in path)]) + query


def without_parameters(remote: str) -> str:
    """Returns the address of a Spark Connect server for people: without its token."""
    return remote.partition(";")[0].removesuffix("/")


def _web_page(env: Mapping[str, str], name: str, example: str) -> str | None:
    address = env.get(name) or None
    if address is None:
        return None
    if not _WEB_PAGE.fullmatch(address):
        raise InvalidInput(name, address, f"an address such as {example}")
    return address.rstrip("/")


def _spark_remote(env: Mapping[str, str]) -> str | None:
    remote = env.get("ARCTIC_SPARK_REMOTE") or None
    if remote is None:
        return None
    found = _CONNECT_SERVER.fullmatch(remote)
    if found is None or int(found["port"] or 1) > _HIGHEST_PORT:
        expected = "an address such as sc://host:15002 or sc://host:15002/;use_ssl=true"
        raise InvalidInput("ARCTIC_SPARK_REMOTE", without_parameters(remote), expected)
    if env.get("ARCTIC_SPARK_MASTER"):
        expected = "no ARCTIC_SPARK_MASTER beside it: unset one of the two"
        raise InvalidInput("ARCTIC_SPARK_REMOTE", without_parameters(remote), expected)
    return remote


def default_timezone(environment: Mapping[str, str] | None = None) -> str:
    """Returns the zone of ``ARCTIC_TIMEZONE``, else UTC, without reading the other settings.

    Errors:
        InvalidInput: the zone does not exist.
    """
    env = os.environ if environment is None else environment
    timezone = env.get("ARCTIC_TIMEZONE") or "UTC"
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        expected = "a time zone of the IANA database, such as Europe/Berlin"
        raise InvalidInput("ARCTIC_TIMEZONE", timezone, expected) from None
    return timezone
