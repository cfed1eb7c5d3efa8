"""From an event to the run that it sets off: stock Dagster, this project, and its run hosts.

``make bench-latency``. Each contestant has an instance of its own and a real ``dagster-daemon``;
events are reported one after another, each when the run of the last one has ended. Wall times are
of Dagster's own records: from the report of the event to RUN_START, and to the end of the run.
CPU seconds are of the process trees of the daemon and of the code server, while nothing else is
asked of them.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import yaml
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from benchmarks.latency_lake import KIND, SPARK, prepare
from benchmarks.places import Place, place

_ARCTIC = "arctic_orchestration"
_LAUNCHER = {"module": f"{_ARCTIC}.run_launcher", "class": "ArcticRunLauncher"}
_QUEUE = {"module": f"{_ARCTIC}.coordinator", "class": "ArcticRunCoordinator"}
#: what each contestant adds to ``dagster.yaml``
CONTESTANTS: dict[str, dict[str, Any]] = {
    "stock": {},
    "ours, Dagster's launcher": {
        "run_launcher": {**_LAUNCHER, "config": {"hosts": False}},
        "run_coordinator": _QUEUE,
    },
    "ours, warm": {"run_launcher": _LAUNCHER, "run_coordinator": _QUEUE},
}
_SECONDS = 300


#: events of a burst, after the others
BURST = 60
_IDLE_SECONDS = 60
#: What the end of the last run sets off belongs to the runs.
_SETTLING_SECONDS = 5


@dataclass(frozen=True)
class Result:
    """Seconds of each event, CPU seconds of all their runs, and what a burst and idling cost."""

    starts: list[float]
    ends: list[float]
    cpu: float
    #: runs a second
    burst: float | None = None
    #: share of a core
    idle: float | None = None


def tree_seconds(roots: list[psutil.Process]) -> float:
    """CPU seconds of processes and all that descend from them, those that have ended included."""
    total = 0.0
    for process in family(roots):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def family(roots: list[psutil.Process]) -> list[psutil.Process]:
    return [member for root in roots for member in (root, *root.children(recursive=True))]


@contextlib.contextmanager
def running(at: Place, kind: str, spark: bool) -> Iterator[list[psutil.Process]]:
    """A code server and a daemon, as ``dagster dev`` starts them.

    A daemon that starts the code server by itself would replace it each minute.
    """
    home = Path(at.home)
    file = home / "dagster.yaml"
    config = yaml.safe_load(file.read_text()) or {}
    file.write_text(yaml.safe_dump({**config, **CONTESTANTS[kind]}))
    workspace, server_socket = home / "workspace.yaml", home / "code.sock"
    location = {"socket": str(server_socket), "location_name": "bench"}
    workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": location}]}))
    environment = {
        **os.environ,
        "DAGSTER_HOME": at.home,
        "ARCTIC_DATABASE_URL": at.database_url,
        "ARCTIC_LAKE": str(home / "lake"),
        "PYTHONPATH": os.getcwd(),
        KIND: kind,
        **({SPARK: "1"} if spark else {}),
    }
    of_server = ("-m", "benchmarks.latency_lake", "--socket", str(server_socket))
    commands = (
        ("dagster", "api", "grpc", *of_server, "--location-name", "bench"),
        ("dagster-daemon", "run", "-w", str(workspace)),
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for program, *arguments in commands:
            command = [str(Path(sys.executable).with_name(program)), *arguments]
            with (home / f"{program}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=home)
                )
            if program == "dagster":
                wait_for(server_socket.exists, "the code server does not start")
        yield [psutil.Process(process.pid) for process in processes]
    finally:
        roots = [psutil.Process(process.pid) for process in processes]
        for member in family(roots):
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        for process in processes:
            process.wait()


def ended_runs(instance: dg.DagsterInstance) -> list[Any]:
    records = instance.get_run_records(ascending=True)
    failed = [r for r in records if r.dagster_run.status is dg.DagsterRunStatus.FAILURE]
    if failed:
        logs = instance.all_logs(failed[0].dagster_run.run_id)
        raise RuntimeError(f"a run failed: {[entry.message for entry in logs][-3:]}")
    return [record for record in records if record.end_time is not None]


def measure(at: Place, kind: str, events: int, spark: bool, step: Any) -> Result:
    with running(at, kind, spark) as roots:
        wait_for_ticks(at.instance)
        starts, ends, cpu = [], [], 0.0
        # The first event is not counted: it starts what stays.
        for number in range(events + 1):
            if number == 1:
                cpu = tree_seconds(roots)
            reported = utc_now().timestamp()
            at.instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "a"]))
            until = time.monotonic() + _SECONDS
            while len(found := ended_runs(at.instance)) <= number:
                if time.monotonic() > until:
                    raise RuntimeError(f"no run within {_SECONDS} s: {at.home}/dagster-daemon.log")
                time.sleep(0.05)
            if number:
                starts.append(found[-1].start_time - reported)
                ends.append(found[-1].end_time - reported)
            step()
        time.sleep(_SETTLING_SECONDS)
        cpu = tree_seconds(roots) - cpu
        if spark:
            return Result(starts, ends, cpu)
        before = tree_seconds(roots)
        time.sleep(_IDLE_SECONDS)
        idle = (tree_seconds(roots) - before) / _IDLE_SECONDS
        # Dagster's asset sensor takes one event a tick: a burst would measure its sensor.
        runs = None if kind == "stock" else burst(at.instance)
        return Result(starts, ends, cpu, runs, idle)


def burst(instance: dg.DagsterInstance) -> float:
    """Runs a second when many events come at once, from the first start to the last end."""
    before = len(ended_runs(instance))
    for _ in range(BURST):
        instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "a"]))
    until = time.monotonic() + _SECONDS
    while len(found := ended_runs(instance)) < before + BURST:
        if time.monotonic() > until:
            return (len(found) - before) / _SECONDS
        time.sleep(0.2)
    runs = found[before:]
    span = max(run.end_time for run in runs) - min(run.start_time for run in runs)
    return len(runs) / float(span)


def wait_for_ticks(instance: dg.DagsterInstance) -> None:
    def has_ticked() -> bool:
        for state in instance.all_instigator_state():
            ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
            if ticks and ticks[0].end_timestamp:
                return True
        return False

    wait_for(has_ticked, "the sensor does not tick")


def wait_for(condition: Callable[[], bool], failure: str) -> None:
    until = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(failure)
        time.sleep(0.2)


def p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(len(values) * 0.95) - 1)]


def run_all(backends: list[str], kinds: list[str], events: int, spark_events: int) -> None:
    console = Console(width=120)
    table = Table(title=f"from an event to its run, {events} events ({spark_events} with Spark)")
    for column in (
        "database",
        "",
        "job",
        "RUN_START median",
        "p95",
        "end median",
        "p95",
        "CPU s a run",
        "runs a s",
        "idle",
    ):
        table.add_column(column, justify="right")
    with contextlib.ExitStack() as stack:
        server: PostgresServer | None = None
        if "postgres" in backends:
            server = stack.enter_context(running_server())
        progress = stack.enter_context(Progress(console=console))
        for backend in backends:
            for kind in kinds:
                for spark, count in ((False, events), (True, spark_events)):
                    if not count:
                        continue
                    name = "Spark" if spark else "one op"
                    task = progress.add_task(f"{backend}, {kind}, {name}", total=count + 1)
                    with place(backend, server) as at, environment_of(at):
                        if spark:
                            prepare()
                        result = measure(at, kind, count, spark, lambda t=task: progress.advance(t))
                    table.add_row(
                        backend, kind, name,
                        *(f"{value:.2f} s" for value in (
                            statistics.median(result.starts), p95(result.starts),
                            statistics.median(result.ends), p95(result.ends),
                        )),
                        f"{result.cpu / count:.2f}",
                        "" if result.burst is None else f"{result.burst:.1f}",
                        "" if result.idle is None else f"{result.idle:.1%}",
                    )  # fmt: skip
    console.print(table)


@contextlib.contextmanager
def environment_of(at: Place) -> Iterator[None]:
    with tempfile.TemporaryDirectory():
        before = os.environ.get("ARCTIC_LAKE")
        os.environ["ARCTIC_LAKE"] = str(Path(at.home) / "lake")
        try:
            yield
        finally:
            os.environ.pop("ARCTIC_LAKE")
            if before:
                os.environ["ARCTIC_LAKE"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50)
    parser.add_argument("--spark-events", type=int, default=50)
    parser.add_argument("--backends", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--kinds", nargs="+", default=list(CONTESTANTS))
    given = parser.parse_args()
    run_all(given.backends, given.kinds, given.events, given.spark_events)


if __name__ == "__main__":
    main()
