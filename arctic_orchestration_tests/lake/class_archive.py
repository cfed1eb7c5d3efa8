"""The classes of Spark as Java maps them from a file, instead of parsing each for each Spark.

A process that starts Spark and adds up takes 7 s of CPU with it, 11 s without.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from arctic_orchestration_tests.lake.sessions import FAST_JVM, OPTIONS
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.proofs.processes import end_with_the_parent
from arctic_orchestration_tests.scratch import scratch_directory


class ClassArchive:
    """Is made in the background; before it is there, and where it does not fit, Java does without.

    Every Spark that a descendant of this process starts uses it. It is kept for later sessions.
    """

    def __init__(self, kept: Path) -> None:
        """``kept`` is the directory of the archives that were made before."""
        self._home = scratch_directory("classes")
        self._process: subprocess.Popen[bytes] | None = None
        archive = kept / f"spark-{_name_of_spark()}.jsa"
        # Java writes in its output of what does not fit.
        os.environ[OPTIONS] = f"{FAST_JVM} -XX:SharedArchiveFile={archive} -Xlog:disable"
        if archive.exists():
            return
        # It is there whole or not at all.
        new = archive.with_suffix(f".{os.getpid()}")
        making = f"{FAST_JVM} -XX:ArchiveClassesAtExit={new} -Xlog:disable"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._home), str(new), str(archive)],
            env={**os.environ, OPTIONS: making},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Ends who makes it, and removes it."""
        os.environ.pop(OPTIONS, None)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


def _name_of_spark() -> str:
    """Another one for each version and place of Spark, and for each Java."""
    found = find_spec("pyspark")
    places = (found and found.origin, os.environ.get("JAVA_HOME"), shutil.which("java"))
    text = " ".join((version("pyspark"), *map(str, places)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _make(home: Path, new: Path, archive: Path) -> None:
    """Has Spark load what it works with, and end."""
    from pyspark import SparkContext

    from arctic_orchestration.lake import spark_session
    from arctic_orchestration.settings import Settings

    environment = {"ARCTIC_LAKE": str(home), "ARCTIC_SPARK_MASTER": "local[1]"}
    with spark_session(Settings.from_environment(environment)) as spark:
        rows = spark.range(1000).selectExpr("id", "cast(id as string) as text")
        rows.repartition(1).sortWithinPartitions("id").write.parquet(str(home / "rows"))
        read = spark.read.parquet(str(home / "rows"))
        read.groupBy("text").count().join(read, "text").count()
    java = present(SparkContext._gateway).proc
    java.stdin.close()
    # It writes the archive when it ends.
    java.wait()
    new.rename(archive)


if __name__ == "__main__":
    end_with_the_parent()
    _make(*map(Path, sys.argv[1:]))
