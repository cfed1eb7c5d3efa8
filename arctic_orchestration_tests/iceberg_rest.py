"""Iceberg's own REST catalog on loopback, from the jar with which Iceberg tests its clients.

Spark fetches the jar of 212 MB from Maven Central, as it does for users:
``python -m arctic_orchestration_tests.iceberg_rest``, which ``sh tools/ensure_iceberg_rest`` runs.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arctic_orchestration.lake.java import find_java
from arctic_orchestration_tests.jvms import jvm

PACKAGE = "org.apache.iceberg:iceberg-open-api:1.10.1"
_PLACE = Path(__file__).parents[1] / "build" / "iceberg-rest"
_JAR = _PLACE / "jars" / (PACKAGE.replace(":", "_", 1).replace(":", "-") + ".jar")
ABSENT = "Iceberg's REST catalog is not there: sh tools/ensure_iceberg_rest fetches it"


def is_absent() -> bool:
    """Whether the jar was not fetched."""
    return not _JAR.exists()


@contextmanager
def iceberg_rest() -> Iterator["IcebergRest"]:
    """Starts a JVM for servers; it ends with the block, or with this process."""
    with TemporaryDirectory() as directory, jvm(str(_JAR), Path(directory)) as gateway:
        yield IcebergRest(gateway.jvm)


class IcebergRest:
    """A JVM with Iceberg's REST catalog."""

    def __init__(self, java: Any) -> None:
        self._java = java

    @contextmanager
    def server(self, properties: Mapping[str, str]) -> Iterator[str]:
        """Starts a server, and yields its address.

        Args:
            properties: of the catalog behind it, which is Iceberg's JDBC catalog.
        """
        java, given = self._java, self._java.java.util.HashMap()
        given.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog")
        given.put("jdbc.schema-version", "V1")
        for name, value in properties.items():
            given.put(name, value)
        hadoop = java.org.apache.hadoop.conf.Configuration()
        catalog = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("behind", given, hadoop)
        rest = java.org.apache.iceberg.rest
        servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
        jetty = java.org.eclipse.jetty
        routes = jetty.servlet.ServletContextHandler()
        routes.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        # The server's own main class would listen to the whole network.
        server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(routes)
        server.start()
        try:
            yield f"http://127.0.0.1:{server.getConnectors()[0].getLocalPort()}"
        finally:
            server.stop()
            catalog.close()


def fetch() -> None:
    """Fetches the jar, unless it is there; says so if it cannot be had."""
    if not is_absent():
        return
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java().home)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars.packages", PACKAGE).config("spark.jars.ivy", str(_PLACE))
    try:
        builder.getOrCreate().stop()
        shutil.rmtree(_PLACE / "cache")
    except Exception as error:
        print(f"Iceberg's REST catalog cannot be fetched, tests with it will be skipped: {error}")


if __name__ == "__main__":
    fetch()
