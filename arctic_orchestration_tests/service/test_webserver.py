"""``arctic webserver``: Dagster's UI and this service on one port, and links between them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from websockets.sync.client import connect

from arctic_orchestration.schedules.dagster.run_requests import RunRequests
from arctic_orchestration.schedules.dagster.schedule_assets import schedule_assets
from arctic_orchestration.schedules.launch_requests import LaunchRequest
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.service.mounting import mounted
from arctic_orchestration.service.pages.rendering import API
from arctic_orchestration.settings import service_page
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome, arctic
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.processes import free_port
from arctic_orchestration_tests.schedules.simulated import World
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.served import listening
from arctic_orchestration_tests.service.test_access import schedule
from arctic_orchestration_tests.service.test_buttons import FORM
from arctic_orchestration_tests.service.test_live_pages import EVENTS
from arctic_orchestration_tests.service.test_pages import HTML, Text, browser, shown

__all__ = ["arctic"]

NO_RUN = "11111111-1111-1111-1111-111111111111"
SUBSCRIPTION = """
    subscription Logs($run: ID!) {
        pipelineRunLogs(runId: $run) {
            __typename
            ... on PipelineRunLogsSubscriptionFailure { message }
        }
    }
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real command, with no code location and one schedule; ended by SIGKILL."""
    home = tmp_path_factory.mktemp("home")
    (home / "dagster.yaml").write_text("")
    (home / "workspace.yaml").write_text("load_from: []")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DAGSTER_HOME", str(home))
        patched.delenv("ARCTIC_DATABASE_URL", raising=False)
        database = Database.open(f"sqlite:///{home / 'arctic.db'}")
        World(database, [schedule("a")], location="here").tick(0)
        database.close()
        port = free_port()
        arctic = Path(sys.executable).with_name("arctic")
        workspace = str(home / "workspace.yaml")
        command = [str(arctic), "webserver", "-w", workspace, "-p", str(port)]
        with (home / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        made = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert process.poll() is None, (home / "log").read_text()
            try:
                return (
                    httpx2.get(f"{made}/server_info", verify=False, trust_env=False).status_code
                    == 200
                )
            except httpx2.TransportError:
                return False

        try:
            until(answers, "the webserver answers")
            yield made
        finally:
            process.kill()
            process.wait()


def get(url: str, **headers: str) -> httpx2.Response:
    return httpx2.get(
        url, headers={**HTML, **headers}, verify=False, trust_env=False, follow_redirects=True
    )


def test_both_are_served(url: str) -> None:
    """Dagster's UI at the top, ours below /arctic; no link of ours leads out of it."""
    assert "Dagster" in get(url).text
    assert "dagster_webserver_version" in get(f"{url}/server_info").text
    for path in ("", "/", "/schedules", "/schedules/a", "/jobs", "/audit", "/nowhere"):
        page = get(f"{url}/arctic{path}")
        assert "frame-ancestors" in page.headers["content-security-policy"]
        read = Text(page.text)
        for tag, attributes in read.elements:
            for name in ("href", "src", "action", "sse-connect"):
                to = attributes.get(name)
                if to and to not in ("#main", "/"):
                    assert to.startswith("/arctic/"), (path, tag, to)
                    if tag in ("link", "script", "a"):
                        assert get(url + to).status_code == 200, to
    # Dagster's own pages keep their own policy.
    assert "frame-ancestors" not in get(url).headers.get("content-security-policy", "")


def test_a_page_is_json_and_a_stream_there_too(url: str) -> None:
    """By Accept, at the same URL."""
    found = get(f"{url}/arctic/schedules/a", Accept="application/json")
    assert found.url.path == f"/arctic{API}/schedules/a"
    assert found.json()["name"] == "a"
    with httpx2.stream(
        "GET", f"{url}/arctic/jobs", headers=EVENTS, verify=False, trust_env=False
    ) as answer:
        assert next(answer.iter_lines()) == "event: page"
    missing = get(f"{url}/arctic{API}/nowhere")
    assert missing.headers["content-type"] == "application/problem+json"


def test_a_button_leads_back_to_its_page(url: str) -> None:
    """A created schedule is found, too, where its Location says."""
    pressed = httpx2.post(
        f"{url}/arctic/schedules/a/suspend?location=here",
        data={"confirmed": "yes"},
        headers=FORM,
        verify=False,
        trust_env=False,
    )
    assert pressed.headers["location"] == "/arctic/schedules/a?location=here"
    form = schedule("b").to_form()
    made = httpx2.post(f"{url}/arctic{API}/schedules", json=form, verify=False, trust_env=False)
    assert get(url + made.headers["location"]).json()["name"] == "b"


@pytest.mark.parametrize(
    ("workspace", "expected"),
    [
        ("load_from: [", "while parsing a flow node"),
        ("a: 1", 'unexpected config entry "a"'),
        (None, "DAGSTER_HOME"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(
    workspace: str | None, expected: str, tmp_path: Path
) -> None:
    """A broken workspace file, and no instance of Dagster."""
    (tmp_path / "workspace.yaml").write_text(workspace or "load_from: []")
    (tmp_path / "dagster.yaml").touch()
    url = f"sqlite:///{tmp_path / 'arctic.db'}"
    Database.open(url).close()
    home = {"DAGSTER_HOME": str(tmp_path)} if workspace else {}
    around = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("arctic")), "webserver", "-w", "workspace.yaml"],
        env={**around, "ARCTIC_DATABASE_URL": url, **home},
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert expected in " ".join(done.stderr.split())


@pytest.mark.parametrize(("options", "status"), [((), 200), (("--require-token",), 401)])
def test_loopback_needs_a_token_if_that_is_required(
    arctic: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    status: int,
) -> None:
    """Below /arctic; Dagster's UI has no access control."""
    (tmp_path / "workspace.yaml").write_text("load_from: []")
    (tmp_path / "dagster.yaml").touch()
    url = f"sqlite:///{tmp_path / 'arctic.db'}"
    Database.open(url).close()
    monkeypatch.setenv("ARCTIC_DATABASE_URL", url)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    answers: list[int] = []

    def served(app: Any, **_: object) -> None:
        client = TestClient(app, base_url="http://localhost:3000", client=("127.0.0.1", 50_000))
        answers.append(client.get("/arctic/api/v1/schedules").status_code)

    monkeypatch.setattr(uvicorn, "run", served)
    done = arctic("webserver", "-w", str(tmp_path / "workspace.yaml"), *options)
    assert (done.code, answers) == (0, [status]), done.err


def test_graphql_subscriptions_work(url: str) -> None:
    """A real one, over the websocket of Dagster's UI."""
    where = f"{url.replace('http', 'ws')}/graphql"
    with connect(where, subprotocols=["graphql-ws"], proxy=None) as socket:  # type: ignore[list-item]

        def send(**message: Any) -> None:
            socket.send(json.dumps(message))

        def received() -> Any:
            return json.loads(socket.recv(timeout=PATIENCE_SECONDS))

        send(type="connection_init", payload={})
        assert received()["type"] == "connection_ack"
        payload = {"query": SUBSCRIPTION, "variables": {"run": NO_RUN}}
        send(type="start", id="1", payload=payload)
        answer = received()
        assert answer["type"] == "data", answer
        logs = answer["payload"]["data"]["pipelineRunLogs"]
        assert logs["__typename"] == "PipelineRunLogsSubscriptionFailure"
        assert NO_RUN in logs["message"]


def test_the_lifespans_of_both_are_run() -> None:
    """Each begins before the first request and ends with the server."""
    from contextlib import asynccontextmanager

    happened: list[str] = []

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def run(_: Any) -> Any:
            happened.append(f"{name} begins")
            yield
            happened.append(f"{name} ends")

        return run

    async def page(_: Request) -> PlainTextResponse:
        return PlainTextResponse("dagster")

    dagster = Starlette(routes=[Route("/", page)], lifespan=lifespan("dagster"))
    with listening(mounted(FastAPI(lifespan=lifespan("ours")), dagster)) as where:
        assert get(where).text == "dagster"
        assert happened == ["dagster begins", "ours begins"]
    until(lambda: len(happened) == 4, "both have ended")
    assert happened[2:] == ["ours ends", "dagster ends"]


def test_runs_and_assets_lead_to_dagster_if_it_is_known_where_it_is(
    database: Database, api: MakeApi, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are quoted; without the variable there is no link."""
    here = world([schedule("a")])
    here.feed.arrive("raw/a", "monday")
    here.tick(1)
    assert "/assets/" not in api().get("http://localhost/events", headers=HTML).text
    monkeypatch.setenv("ARCTIC_DAGSTER_URL", "https://dagster.example/prefix/")
    page = shown(browser(api()), "/events")
    assert "https://dagster.example/prefix/assets/raw/a" in page.links
    assert "https://dagster.example/prefix/" in page.links


def test_runs_and_schedules_lead_to_their_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a tag and by metadata, if the variable says where the pages are."""
    made = Schedule(name="a", target="rollup", trigger=schedule("a").trigger)
    monkeypatch.delenv("ARCTIC_SERVICE_URL", raising=False)
    assert service_page("jobs", "1") is None
    assert "page" not in schedule_assets([made], "here")[0].metadata
    assert "arctic/page" not in _requested().tags
    monkeypatch.setenv("ARCTIC_SERVICE_URL", "https://arctic.example/")
    assert service_page("jobs", "a/b ?") == "https://arctic.example/jobs/a%2Fb%20%3F"
    (asset,) = schedule_assets([made], "my lake")
    expected = "https://arctic.example/schedules/a?location=my+lake"
    assert asset.metadata["page"] == dg.MetadataValue.url(expected)
    assert _requested().tags["arctic/page"] == "https://arctic.example/jobs/j1"


def _requested() -> dg.RunRequest:
    @dg.op
    def nothing() -> None:
        return None

    @dg.job
    def rollup() -> None:
        nothing()

    request = LaunchRequest(
        run_key="j1/1",
        job_id="j1",
        target=Target(job="rollup"),
        partition_start=None,
        partition_end=None,
        tags={"arctic/job": "j1"},
        run_config={},
    )
    definitions = dg.Definitions(jobs=[rollup])
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(
            instance, repository_def=definitions.get_repository_def()
        ) as context,
    ):
        return RunRequests().make(request, context)
