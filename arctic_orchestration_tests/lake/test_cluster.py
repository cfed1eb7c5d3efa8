"""A job on a real standalone cluster: a master and two workers, each a process on loopback."""

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.lake import open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.spark_daemons import daemon, logged
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until


@pytest.mark.timeout(240)
def test_two_workers_append_and_read_a_table(settings: Settings, tmp_path: Path) -> None:
    """0 to 999 into three buckets, by two executors; the master saw both workers take part."""
    package = "org.apache.spark.deploy"
    with ExitStack() as stack:
        master = stack.enter_context(
            daemon(
                tmp_path,
                "master",
                f"{package}.master.Master",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            )
        )
        url = until(
            logged(master, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)"),
            "the master listens",
        )
        port = until(logged(master, r"MasterWebUI.* http://[\w.]+:(\d+)"), "its page is there")
        for name in ("one", "two"):
            stack.enter_context(
                daemon(
                    tmp_path,
                    name,
                    f"{package}.worker.Worker",
                    *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
                    *("--webui-port", "0", url),
                )
            )

        def status() -> dict[str, Any]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=10) as page:
                answer: dict[str, Any] = json.load(page)
                return answer

        until(lambda: status()["aliveworkers"] == 2, "two workers are there")
        done = subprocess.run(
            [sys.executable, "-m", "arctic_orchestration_tests.lake.cluster_job", settings.lake],
            env={
                **os.environ,
                "ARCTIC_SPARK_MASTER": url,
                "ARCTIC_LAKE": str(settings.lake),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        (application,) = until(lambda: status()["completedapps"], "the application has ended")
    answer = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER "))
    # The driver and two executors keep blocks; 0 + 1 + … + 999 = 499500.
    assert json.loads(answer.removeprefix("ANSWER ")) == {
        "total": 499_500,
        "files": 3,
        "block managers": 3,
    }
    assert application["state"] == "FINISHED"
    # A worker keeps a directory for each application that it ran an executor of.
    assert [len(list((tmp_path / name).glob("app-*/*"))) for name in ("one", "two")] == [1, 1]
    catalog: Catalog = open_catalog(settings)
    rows = catalog.load_table("lake.cluster").scan().to_arrow()["id"].to_pylist()
    assert sorted(rows) == list(range(1000))
