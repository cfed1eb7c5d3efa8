"""Sessions on a Spark Connect server: the driver is a process of a cluster, not of this machine.

Code on the server cannot see this process: it has no JVM here, no ``SparkContext`` and no RDDs. The
server and its executors must see the lake's files under the same paths as this process.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from arctic_orchestration.errors import ConfigurationError, MissingExtra
from arctic_orchestration.lake.java_errors import one_line
from arctic_orchestration.settings import without_parameters

#: how long a server may take for its first answer
_ANSWER_SECONDS = 5.0
#: A call is retried for about a minute when the server goes away; PySpark's own limit is ten.
_RETRIES: Mapping[str, Any] = {"max_retries": 10, "max_backoff": 10_000}


def connect_session(url: str, properties: Mapping[str, str]) -> SparkSession:
    """Opens a new session on the server ``sc://host:port``; the caller stops it.

    Properties that a session cannot have, such as ``spark.driver.memory``, belong to the server:
    PySpark warns of them and ignores them. Takes some milliseconds.

    Errors:
        MissingExtra: a package of the extra ``connect`` is not installed.
        ConfigurationError: the server did not answer within 5 s, refused the session, or PySpark
            is older than 4.3; the message says why on one line.
    """
    # It imports Arrow, which a process that only loads a code location does not need.
    from arctic_orchestration.lake.spark_versions import HAS_CONNECT

    if not HAS_CONNECT:
        raise ConfigurationError("Spark Connect needs PySpark 4.3 or newer: upgrade pyspark")
    _require_answer(url)
    try:
        session = SparkSession.builder.remote(url).config(map=dict(properties)).create()
        client: Any = session.client
        client.set_retry_policies([_retry_policy()])
    except Exception as error:
        raise _refused(url, "refused a session", str(error)) from error
    return session


def beside(spark: SparkSession) -> SparkSession:
    """Returns another session of the same Spark, with its own settings and temporary views."""
    session = spark.newSession()
    if is_over_connect(session):
        client: Any = session.client
        client.set_retry_policies([_retry_policy()])
    return session


@contextmanager
def released(session: SparkSession) -> Iterator[SparkSession]:
    """Releases a session on the server at the end of the block, in one try."""
    try:
        yield session
    finally:
        client: Any = session.client
        client.set_retry_policies([])
        session.stop()


def is_over_connect(spark: SparkSession) -> bool:
    """Returns whether the session is one on a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _require_answer(url: str) -> None:
    """Requests the release of a session that never existed; any answer but an error is sufficient.

    PySpark itself would retry its first call for ten minutes.
    """
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
        from pyspark.sql.connect.proto import ReleaseSessionRequest
        from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub
    except ImportError as error:
        raise MissingExtra(
            f"Spark Connect needs a package that is not installed: {one_line(str(error))}: "
            "run `pip install 'arctic-orchestration[connect]'`"
        ) from error
    try:
        builder = DefaultChannelBuilder(url)
        with builder.toChannel() as channel:
            stub: Any = SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
            request = ReleaseSessionRequest(session_id=str(uuid4()))
            stub.ReleaseSession(request, metadata=builder.metadata(), timeout=_ANSWER_SECONDS)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise _refused(url, "does not answer", f"waited {_ANSWER_SECONDS:.0f} s") from error
        why = f"{error.code().name}: {error.details()}"
        raise _refused(url, "does not answer", why) from error
    except Exception as error:
        raise _refused(url, "cannot be addressed", str(error)) from error


def _refused(url: str, what: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Spark Connect at {without_parameters(url)} {what}: {one_line(why)}. Check "
        "ARCTIC_SPARK_REMOTE, and that the server is up"
    )


def _retry_policy() -> Any:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    return DefaultPolicy(**_RETRIES)
