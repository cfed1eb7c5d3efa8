"""What the first use of Python workers in a session costs, by the daemon that forks them.

``python -m benchmarks.python_workers``. Each turn is a process with a session of its own, which
runs a task of Arrow's on two workers, twice.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import psutil

_DAEMONS = {"of this package": None, "of PySpark": "pyspark.daemon"}
_TURNS = 5


def _turn(daemon: str | None) -> None:
    from pyspark.sql import SparkSession

    from arctic_orchestration.lake import spark_session
    from arctic_orchestration.settings import Settings

    def pass_on(batches):  # type: ignore[no-untyped-def]
        import arctic_orchestration.lake.arrow_rows  # noqa: F401

        yield from batches

    def use(spark: SparkSession) -> float:
        start = time.perf_counter()
        spark.range(0, 100, 1, 2).mapInArrow(pass_on, "id long").collect()
        return time.perf_counter() - start

    properties = {"spark.log.level": "ERROR"}
    if daemon is not None:
        properties["spark.python.daemon.module"] = daemon
    with tempfile.TemporaryDirectory() as lake:
        environment = {"ARCTIC_LAKE": lake, "ARCTIC_SPARK_MASTER": "local[2]"}
        with spark_session(Settings.from_environment(environment), properties) as spark:
            spark.range(10).count()
            walls = [use(spark), use(spark)]
            print(json.dumps([*walls, _cpu_of_workers()]), flush=True)


def _cpu_of_workers() -> float:
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        if "java" not in process.name():
            times = process.cpu_times()
            found += times.user + times.system
    return found


def main() -> None:
    if len(sys.argv) > 1:
        _turn(_DAEMONS[sys.argv[1]])
        return
    measured: dict[str, list[list[float]]] = {name: [] for name in _DAEMONS}
    for _ in range(_TURNS):
        for name, turns in measured.items():
            command = [sys.executable, "-m", "benchmarks.python_workers", name]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            turns.append(json.loads(answer.stdout))
    print(f"load {os.getloadavg()[0]:.1f}, medians of {_TURNS}")
    print("| daemon | first use, s | second use, s | CPU s of Python |")
    print("|---|---|---|---|")
    for name, turns in measured.items():
        first, second, cpu = map(statistics.median, zip(*turns, strict=True))
        print(f"| {name} | {first:.2f} | {second:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
