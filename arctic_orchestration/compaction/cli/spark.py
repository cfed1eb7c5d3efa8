"""The Spark session of a command that merges files."""

from collections.abc import Mapping, Sequence
from threading import Lock, Thread
from typing import TYPE_CHECKING, Annotated, Self

import typer

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.settings import Settings, without_parameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", help="A Spark property: spark.driver.memory=2g; repeatable."),
]


class LakeSpark:
    """A session that starts on first use, and stops at the end of the block.

    An existing session of this process is used, and left running.

    Errors:
        InvalidInput: a property is not in the form ``key=value``.
        ConfigurationError: a property contradicts one that the lake needs.
    """

    def __init__(self, settings: Settings, conf: Sequence[str]) -> None:
        from arctic_orchestration.lake.session import spark_properties

        self._settings = settings
        self._properties = properties_of(conf)
        spark_properties(settings, self._properties)
        self._lock = Lock()
        self._session: SparkSession | None = None
        self._started_here = False

    def __call__(self) -> "SparkSession":
        """Returns the session.

        Errors:
            JavaNotFound: there is no Java that can run Spark.
        """
        with self._lock:
            if self._session is None:
                self._session = self._started()
            return self._session

    @property
    def where(self) -> str:
        """The master of the session, or the address of its Connect server without a token."""
        if self._settings.spark_remote is not None:
            return without_parameters(self._settings.spark_remote)
        return str(self().sparkContext.master)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._session is not None and self._started_here:
            self._session.stop()

    def _started(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        from arctic_orchestration.lake.session import spark_session

        # Over Connect, each requested session is a new one.
        over_connect = self._settings.spark_remote is not None
        self._started_here = over_connect or SparkSession.getActiveSession() is None
        ended: list[SparkSession | BaseException] = []

        def start() -> None:
            try:
                ended.append(spark_session(self._settings, self._properties))
            except BaseException as error:
                ended.append(error)

        # In a separate thread: in the main one, Spark would handle Ctrl-C itself, and cancel the
        # merges that are to be finished.
        thread = Thread(target=start, name="start Spark")
        thread.start()
        thread.join()
        if isinstance(ended[0], BaseException):
            raise ended[0]
        return ended[0]


def properties_of(conf: Sequence[str]) -> Mapping[str, str]:
    """Parses a person's Spark properties.

    Errors:
        InvalidInput: one is not in the form ``key=value``.
    """
    found = {}
    for text in conf:
        key, sign, value = text.partition("=")
        if not sign or not key.strip().startswith("spark."):
            raise InvalidInput("--conf", text, "a Spark property, as spark.driver.memory=2g")
        found[key.strip()] = value.strip()
    return found
