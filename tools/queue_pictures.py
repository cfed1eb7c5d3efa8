"""The pictures of the run queue: a real daemon, real runs that wait, and Dagster's UI."""

import json
import os
import sys
import tempfile
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from browser import Page, Picture, running, until, webserver

from arctic_orchestration.clock import utc_now

_LOCATION = "lake"
_QUEUED = "/runs?q%5B0%5D=status%3AQUEUED"
_LAUNCH = """
mutation ($job: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $job, mode: "default"}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""


def take_queue_pictures(tab: Page, into: Path) -> list[Path]:
    """Makes an instance with rules, lets runs wait in it, and takes the pictures."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        _write(home)
        environment = {**os.environ, "DAGSTER_HOME": str(home)}
        environment.pop("ARCTIC_DATABASE_URL", None)
        daemon = [str(Path(sys.executable).with_name("dagster-daemon")), "run"]
        daemon += ["-w", str(home / "workspace.yaml")]
        with webserver(home) as url, running(daemon, env=environment):
            for job in ("load_orders", "load_refunds"):
                _launch(url, job)
            held = _launch(url, "bill")
            until(lambda: "Waits in the queue" in _events(url, held), "the run is told")
            pictures = (
                Picture(
                    file="queued-run.png",
                    path=_QUEUED,
                    height=560,
                    ready="document.body.innerText.includes('arctic/wait')",
                ),
                Picture(
                    file="queue-criteria.png",
                    path=_QUEUED,
                    height=720,
                    ready="""
                        document.body.innerText.includes('Run queue criteria')
                        && document.body.innerText.includes('arctic/window.nightly')
                    """,
                    # The newest run is the first.
                    click="""
                        [...document.querySelectorAll('button, a')]
                            .find(element => element.innerText.trim() === 'View queue criteria')
                            ?.click()
                    """,
                ),
            )
            return [tab.take(url, picture, into) for picture in pictures]


def _write(home: Path) -> None:
    # It opens in some hours, and so is closed for as long as the pictures take.
    opens = utc_now() + timedelta(hours=6)
    closes = opens + timedelta(hours=8)
    rules = {
        "max_concurrent_runs": 20,
        "dequeue_interval_seconds": 1,
        "groups": {"warehouse": {"limit": 3, "match": [{"job": "load_*"}, {"job": "bill"}]}},
        "windows": {
            "nightly": {
                "start": f"{opens:%H}:00",
                "end": f"{closes:%H}:00",
                "match": {"tags": {"team": "finance"}},
            }
        },
        "queues": {"urgent": {"level": 2, "share": 4, "match": {"tags": {"team": "finance"}}}},
    }
    coordinator = {"module": "arctic_orchestration.coordinator", "class": "ArcticRunCoordinator"}
    config: dict[str, Any] = {
        "telemetry": {"enabled": False},
        "run_coordinator": {**coordinator, "config": rules},
    }
    (home / "dagster.yaml").write_text(yaml.safe_dump(config))
    file = str(Path(__file__).with_name("queue_lake.py"))
    location = {"python_file": {"relative_path": file, "location_name": _LOCATION}}
    (home / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [location]}))


def _launch(url: str, job: str) -> str:
    selector = {
        "repositoryLocationName": _LOCATION,
        "repositoryName": "__repository__",
        "pipelineName": job,
    }
    launched = _query(url, _LAUNCH, {"job": selector})["launchRun"]
    if launched["__typename"] != "LaunchRunSuccess":
        raise RuntimeError(f"{job} was not launched: {launched}")
    return str(launched["run"]["runId"])


def _events(url: str, run_id: str) -> str:
    query = """
    query ($run: ID!) {
      logsForRun(runId: $run) {
        ... on EventConnection { events { ... on MessageEvent { message } } }
      }
    }
    """
    found = _query(url, query, {"run": run_id})["logsForRun"]["events"]
    return "\n".join(event["message"] for event in found)


def _query(url: str, query: str, variables: dict[str, Any]) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    # Loopback is reached directly, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        document = json.loads(answer.read())
    if document.get("errors"):
        raise RuntimeError(str(document["errors"]))
    return document["data"]
