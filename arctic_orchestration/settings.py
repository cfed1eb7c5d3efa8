"""What is configured from outside, read once from the environment.

==========================  ===========================================================
``ARCTIC_DATABASE_URL``     state database; default: SQLite in ``$DAGSTER_HOME/arctic.db``
``ARCTIC_CLUSTER``          name of this Dagster instance among those that share the database
``ARCTIC_CATALOG``          pyiceberg catalog of the lake
``ARCTIC_LAKE``             directory of the embedded catalog and its tables
``ARCTIC_SPARK_MASTER``     Spark master URL
==========================  ===========================================================
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arctic_orchestration.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The configuration of one process."""

    database_url: str
    cluster: str
    catalog: str
    lake: Path
    spark_master: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Reads the settings.

        Errors:
            InvalidInput: a variable has a value that cannot be used.
        """
        env = os.environ if environment is None else environment
        home = Path(env.get("DAGSTER_HOME") or ".").resolve()
        cluster = env.get("ARCTIC_CLUSTER") or "default"
        if not _NAME.fullmatch(cluster):
            raise InvalidInput(
                "ARCTIC_CLUSTER", cluster, "1 to 63 of the characters A-Z a-z 0-9 _ . -"
            )
        return cls(
            database_url=env.get("ARCTIC_DATABASE_URL") or f"sqlite:///{home / 'arctic.db'}",
            cluster=cluster,
            catalog=env.get("ARCTIC_CATALOG") or "lake",
            lake=Path(env.get("ARCTIC_LAKE") or home / "lake"),
            spark_master=env.get("ARCTIC_SPARK_MASTER") or "local[*]",
        )
