"""What a run pays for Spark: from a Python process with PySpark imported to its first result.

``make bench-warm-spark`` has new processes aggregate a small Parquet file in three ways: with a
session of their own, through a Connect server that processes share
(``spark.local.connect.reuse``), and by attaching to a JVM that another process has started and
warmed up, as one of a pool would be. CPU seconds are those of the process, of what it starts, and
of the shared JVM meanwhile.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from arctic_orchestration.lake import find_java

#: of a session of its own, and of the ways that are fast
COLD_ROUNDS, ROUNDS = 3, 7

_BEGIN = """
import json, os, sys, time
import psutil, pyspark, pyspark.sql.functions as F
from pyspark.sql import SparkSession
{imports}
def cpu():
    found = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(one.cpu_times()[:2]) for one in found)
path, (begun, used) = sys.argv[1], (time.perf_counter(), cpu())
builder = SparkSession.builder
for key, value in {properties}.items():
    builder = builder.config(key, value)
"""
_AGGREGATE = 'assert len(spark.read.parquet(path).groupBy("key").agg(F.sum("id")).collect()) == 9\n'
_END = _AGGREGATE + "print(json.dumps([time.perf_counter() - begun, cpu() - used]), flush=True)\n"

_PROPERTIES = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}
_OWN = 'spark = builder.master("local[2]").getOrCreate()\n'
_REUSE = 'spark = builder.remote("local[2]").getOrCreate()\n'
_ATTACH = """
gateway = launch_gateway()
java = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
context = java.sparkContext()
sc = SparkContext(
    gateway=gateway,
    jsc=gateway.jvm.org.apache.spark.api.java.JavaSparkContext(context),
    conf=SparkConf(_jvm=gateway.jvm, _jconf=context.conf()),
)
spark = SparkSession(sc, java.newSession())
"""
_HOST = (
    _OWN
    + _AGGREGATE
    + "gateway = spark.sparkContext._gateway\n"
    + "found = gateway.gateway_parameters\n"
    + "print(json.dumps([found.port, found.auth_token, gateway.proc.pid]), flush=True)\n"
    + "sys.stdin.read()\n"
)


def program(work: str, *, imports: str = "", **properties: str) -> str:
    """The text of a process that begins as all do."""
    named = repr({**_PROPERTIES, **properties})
    return _BEGIN.format(imports=imports, properties=named) + work


def measured(
    code: str, path: Path, environment: Mapping[str, str], shared: psutil.Process | None = None
) -> tuple[float, float]:
    """Wall and CPU seconds of a process that runs the code."""
    before = _cpu(shared)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(path)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"a process failed: {done.stderr}")
    wall, cpu = json.loads(done.stdout.splitlines()[-1])
    return wall, cpu + _cpu(shared) - before


def _cpu(process: psutil.Process | None) -> float:
    return sum(process.cpu_times()[:2]) if process is not None else 0.0


@contextmanager
def connect_server(home: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Where PySpark keeps what it knows of the server that the first process starts."""
    discovery = home / "connect.json"
    try:
        yield discovery
    finally:
        subprocess.run(
            [sys.executable, "-m", "pyspark.sql.connect.local_server", "--stop"],
            env={**os.environ, **environment, "SPARK_LOCAL_CONNECT_DISCOVERY": str(discovery)},
            check=True,
        )


@contextmanager
def warmed_jvm(
    path: Path, environment: Mapping[str, str]
) -> Iterator[tuple[dict[str, str], psutil.Process]]:
    """A JVM with a session that has aggregated once; what attaches to it needs to know."""
    host = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program(_HOST), str(path)],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert host.stdin is not None and host.stdout is not None
    try:
        port, secret, pid = json.loads(host.stdout.readline())
        known = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        yield known, psutil.Process(pid)
    finally:
        host.stdin.close()
        host.wait()


def results(home: Path) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """The ways, each with wall and CPU seconds of its rounds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = home / "rows.parquet"
    pq.write_table(pa.table({"id": range(9000), "key": [n % 9 for n in range(9000)]}), path)
    environment = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    own = program(_OWN + _END)
    yield "a session of its own", [measured(own, path, environment) for _ in range(COLD_ROUNDS)]
    with connect_server(home, environment) as discovery:
        known = environment | {"SPARK_LOCAL_CONNECT_DISCOVERY": str(discovery)}
        code = program(_REUSE + _END, **{"spark.local.connect.reuse": "true"})
        wall, cpu = measured(code, path, known)
        server = psutil.Process(json.loads(discovery.read_text())["pid"])
        yield "Connect, the first, which starts the server", [(wall, cpu + _cpu(server))]
        yield (
            "Connect, the next ones",
            [measured(code, path, known, server) for _ in range(ROUNDS)],
        )
    with warmed_jvm(path, environment) as (known, jvm):
        imports = "from pyspark import SparkConf, SparkContext\n"
        imports += "from pyspark.java_gateway import launch_gateway\n"
        code = program(_ATTACH + _END, imports=imports)
        yield (
            "attached to a warmed JVM",
            [measured(code, path, environment | known, jvm) for _ in range(ROUNDS)],
        )


def main() -> None:
    """Measures, and prints a table."""
    console = Console()
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PySpark {version('pyspark')}, load {os.getloadavg()[0]:.1f}"
    )
    table = Table(title="From a process to the result of an aggregate", title_justify="left")
    table.add_column("Spark")
    for name in ("median", "worst", "CPU, median", "first of them"):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory() as home:
        for name, rounds in results(Path(home)):
            walls = [wall for wall, _ in rounds]
            cpus = [cpu for _, cpu in rounds]
            numbers = (statistics.median(walls), max(walls), statistics.median(cpus), walls[0])
            table.add_row(name, *(f"{number:.2f} s" for number in numbers))
    console.print(table)


if __name__ == "__main__":
    main()
