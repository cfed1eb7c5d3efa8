"""YARN on loopback: a resource manager and a node manager, as Hadoop's own tests have them.

Spark fetches the jars of 115 MB from Maven Central: ``python -m arctic_orchestration_tests.yarn``,
which ``sh tools/ensure_yarn`` runs.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arctic_orchestration.lake.java import find_java
from arctic_orchestration_tests.jvms import JARS, jvm

#: Hadoop's version is that of PySpark's jars.
PACKAGES = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.junit.jupiter:junit-jupiter-api:5.11.4",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
)
_PLACE = Path(__file__).parents[1] / "build" / "yarn"
_READY = _PLACE / "ready"
ABSENT = "YARN is not there: sh tools/ensure_yarn fetches it"
#: of PySpark's jars, what a cluster needs that has no Spark
_OF_PYSPARK = ("log4j-", "commons-logging-", "javax.", "jakarta.")
_SETTINGS = {
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
    **{
        f"yarn.{manager}.{name}": "127.0.0.1"
        for manager in ("resourcemanager", "nodemanager")
        for name in ("hostname", "bind-host")
    },
}


def is_absent() -> bool:
    """Whether the jars were not fetched."""
    return not _READY.exists()


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """A running cluster."""

    #: for ``HADOOP_CONF_DIR``
    configuration: Path
    cluster: Any

    def applications(self) -> list[tuple[str, str]]:
        """The name and the final state of each application, oldest first."""
        found = self.cluster.getResourceManager().getRMContext().getRMApps().values()
        known = [(one.getStartTime(), one.getName(), str(one.getState())) for one in found]
        return [(name, state) for _, name, state in sorted(known)]


@contextmanager
def yarn(directory: Path) -> Iterator[Yarn]:
    """Starts a cluster that works in the directory; it ends with the block, or this process."""
    found = [str(one) for one in JARS.glob("*.jar") if one.name.startswith(_OF_PYSPARK)]
    classpath = ":".join([str(_PLACE / "jars" / "*"), *found])
    with jvm(classpath, directory, ["-Xmx512m"]) as gateway:
        hadoop = gateway.jvm.org.apache.hadoop.yarn
        settings = hadoop.conf.YarnConfiguration()
        for name, value in _SETTINGS.items():
            settings.set(name, value)
        cluster = hadoop.server.MiniYARNCluster("lake", 1, 1, 1)
        cluster.init(settings)
        cluster.start()
        configuration = directory / "hadoop"
        configuration.mkdir()
        target = gateway.jvm.java.io.FileOutputStream(str(configuration / "yarn-site.xml"))
        cluster.getConfig().writeXml(target)
        target.close()
        yield Yarn(configuration=configuration, cluster=cluster)
        cluster.stop()


def fetch() -> None:
    """Fetches the jars, unless they are there; says so if they cannot be had."""
    if not is_absent():
        return
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java().home)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars.packages", ",".join(PACKAGES))
    try:
        builder.config("spark.jars.ivy", str(_PLACE)).getOrCreate().stop()
        shutil.rmtree(_PLACE / "cache")
        _READY.touch()
    except Exception as error:
        print(f"YARN cannot be fetched, tests with it will be skipped: {error}")


if __name__ == "__main__":
    fetch()
