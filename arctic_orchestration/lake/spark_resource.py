"""The Spark session of the lake as a Dagster resource."""

import os
from collections.abc import Mapping
from typing import Any

from dagster import EnvVar, InitResourceContext
from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr
from pyspark import SparkContext

from arctic_orchestration.lake import session_source
from arctic_orchestration.lake.connect import connect_session
from arctic_orchestration.lake.session import prepare_environment, prepare_python, spark_properties
from arctic_orchestration.settings import Settings

_REMOTE = "ARCTIC_SPARK_REMOTE"


class LakeSparkResource(LazyPySparkResource):
    """dagster-pyspark's resource, which finds Java first and stops the session at the end.

    The session starts on first use. An existing one, started by the program around this run, is
    used and left running; on a Connect server the session is always a new one.
    """

    #: a Spark Connect server, in place of the master of ``spark_config``
    remote: str | None = None
    #: whether it always starts an application, also where a running JVM would be lent
    own: bool = False

    _started_here: bool = PrivateAttr(default=False)

    def _init_session(self) -> None:
        if self._spark_session is not None:
            return
        if self.remote is not None:
            self._spark_session = connect_session(self.remote, self.spark_config)
            self._started_here = True
            return
        prepare_python(self.spark_config["spark.master"])
        if not self.own:
            self._spark_session = session_source.borrowed_session(self.spark_config)
        if self._spark_session is None:
            prepare_environment(self.spark_config["spark.master"])
            # Not the active session, which depends on the thread.
            self._started_here = SparkContext._active_spark_context is None
            super()._init_session()

    def teardown_after_execution(self, context: InitResourceContext) -> None:  # noqa: ARG002
        """Stops the session; Dagster gives it the context."""
        self.stop()

    def stop(self) -> None:
        """Stops the session, if this resource started it."""
        session: Any = self._spark_session
        self._spark_session = None
        if session is not None and self._started_here:
            session.stop()


def pyspark_resource(
    settings: Settings | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    own: bool = False,
) -> LakeSparkResource:
    """Returns dagster-pyspark's resource for ``ARCTIC_SPARK_MASTER`` or ``ARCTIC_SPARK_REMOTE``.

    Starts nothing before its first use.

    Args:
        settings: none: read from the environment.
        properties: Spark properties, added to those of the lake.
        own: starts an application, also where a running JVM would be lent.

    Errors:
        ConfigurationError: a property contradicts one that the lake needs.
    """
    chosen = settings or Settings.from_environment()
    return LakeSparkResource(
        spark_config=spark_properties(chosen, properties),
        remote=_unread(chosen.spark_remote),
        own=own,
    )


def _unread(remote: str | None) -> str | None:
    """Returns the address, or its variable's name if it comes from one: Dagster shows it."""
    if remote is not None and remote == os.environ.get(_REMOTE):
        return EnvVar(_REMOTE)
    return remote
