"""The probes behind ``load``: a real instance, this machine, and a small real web server."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_run_id

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules.dagster.load import LoadProbes
from arctic_orchestration.settings import Settings

#: Dagster has no queued run without one.
ORIGIN = RemoteJobOrigin(
    RemoteRepositoryOrigin(
        ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(module_name="m")), "r"
    ),
    "j",
)


def instance_with(home: Path, **config: Any) -> DagsterInstance:
    text = yaml.safe_dump({"telemetry": {"enabled": False}, **config})
    (home / "dagster.yaml").write_text(text)
    return DagsterInstance.from_config(str(home))


def add_runs(instance: DagsterInstance, statuses: list[DagsterRunStatus]) -> None:
    for status in statuses:
        run = DagsterRun(
            job_name="j", run_id=make_new_run_id(), status=status, remote_job_origin=ORIGIN
        )
        instance.add_run(run)


class TestRuns:
    """Runs in progress, of Dagster's limit on them."""

    def test_every_run_counts_until_it_has_ended(self, tmp_path: Path) -> None:
        """Not started, queued, starting, started, canceling and suspended: six, of five.

        Dagster 1.12 suspends no run: five.
        """
        begun = 6 if hasattr(DagsterRunStatus, "SUSPENDED") else 5
        coordinator = {
            "module": "dagster.core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"max_concurrent_runs": 5},
        }
        with instance_with(tmp_path, run_coordinator=coordinator) as instance:
            probes = LoadProbes(lambda: instance)
            assert probes.measure("runs") == 0
            add_runs(instance, list(DagsterRunStatus))
            assert probes.measure("runs") == begun / 5
            add_runs(instance, [DagsterRunStatus.STARTED] * 3)
            assert probes.measure("runs") == (begun + 3) / 5
            assert probes.one_more("runs") == 0.2

    def test_without_a_word_dagsters_limit_is_ten(self, tmp_path: Path) -> None:
        """One run of ten; the limit of ``concurrency`` in dagster.yaml replaces it."""
        with instance_with(tmp_path) as instance:
            add_runs(instance, [DagsterRunStatus.STARTED])
            assert LoadProbes(lambda: instance).measure("runs") == 0.1
        runs = {"runs": {"max_concurrent_runs": 4}}
        with instance_with(tmp_path, concurrency=runs) as instance:
            assert LoadProbes(lambda: instance).measure("runs") == 0.25

    @pytest.mark.parametrize(
        ("config", "load"),
        [
            ({"concurrency": {"runs": {"max_concurrent_runs": -1}}}, 0.0),
            ({"concurrency": {"runs": {"max_concurrent_runs": 0}}}, 1.0),
            (
                {
                    "run_coordinator": {
                        "module": "dagster.core.run_coordinator",
                        "class": "DefaultRunCoordinator",
                    }
                },
                0.0,
            ),
        ],
    )
    def test_no_limit_is_no_load_and_a_limit_of_none_is_full(
        self, tmp_path: Path, config: dict[str, Any], load: float
    ) -> None:
        """-1 and a coordinator without a queue let everything start; 0 lets nothing."""
        with instance_with(tmp_path, **config) as instance:
            add_runs(instance, [DagsterRunStatus.STARTED])
            assert LoadProbes(lambda: instance).measure("runs") == load

    def test_on_postgres_the_same(self, dagster_instance: Callable[[str], DagsterInstance]) -> None:
        """Two of ten."""
        instance = dagster_instance("postgres")
        add_runs(instance, [DagsterRunStatus.STARTED, DagsterRunStatus.STARTING])
        assert LoadProbes(lambda: instance).measure("runs") == 0.2

    def test_an_instance_that_fails_measures_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """And the log says why."""

        def instance() -> DagsterInstance:
            raise ConnectionError("gone")

        assert LoadProbes(instance).measure("runs") is None
        assert "the load of runs could not be measured: ConnectionError('gone')" in caplog.text


def no_instance() -> DagsterInstance:
    raise AssertionError("nobody asked for runs")


class TestMachine:
    """The processors and the memory of this machine."""

    def test_processors_and_memory_are_shares(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Three programs want four processors; then ten do; 6 of 8 GB are taken."""
        probes = LoadProbes(no_instance)
        monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
        monkeypatch.setattr(psutil, "getloadavg", lambda: (3.0, 9.0, 9.0))
        assert probes.measure("cpu") == 0.75
        monkeypatch.setattr(psutil, "getloadavg", lambda: (10.0, 0.0, 0.0))
        assert probes.measure("cpu") == 2.5

    def test_the_real_ones_can_be_measured(self) -> None:
        """Linux says itself how much memory is available to new programs."""
        probes = LoadProbes(no_instance)
        cpu, memory = probes.measure("cpu"), probes.measure("memory")
        assert cpu is not None
        assert cpu >= 0
        kilobytes = dict(
            line.split()[:2] for line in Path("/proc/meminfo").read_text().splitlines()
        )
        available = int(kilobytes["MemAvailable:"]) / int(kilobytes["MemTotal:"])
        assert memory == pytest.approx(1 - available, abs=0.1)

    def test_a_probe_that_does_not_exist_measures_nothing(self) -> None:
        """Nothing is raised into a tick."""
        assert LoadProbes(no_instance).measure("moon") is None


@contextmanager
def served(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A web server on loopback that answers each request so; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page(body: str, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answers ``/json/`` with a body, and all else with 404."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status if request.path == "/json/" else 404)
        request.end_headers()
        request.wfile.write(body.encode())

    return answer


def master(**state: Any) -> str:
    """What a standalone master says on its page, in part."""
    return json.dumps({"url": "spark://127.0.0.1:7077", "status": "ALIVE", **state})


class TestSpark:
    """The cores of a standalone cluster."""

    @pytest.mark.parametrize("ending", ["", "/"])
    def test_the_cores_that_are_used_are_a_share_of_all(self, ending: str) -> None:
        """Three of eight, with or without a slash at the end of the address."""
        with served(page(master(aliveworkers=2, cores=8, coresused=3))) as address:
            assert LoadProbes(no_instance, spark_ui=address + ending).measure("spark") == 0.375

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (master(aliveworkers=0, cores=0, coresused=0), 200),
            (master(cores="8", coresused=3), 200),
            (master(cores=8, coresused=-1), 200),
            (master(cores=8), 200),
            ("[]", 200),
            ("<html>", 200),
            (master(cores=8, coresused=3), 500),
        ],
    )
    def test_a_page_that_says_nothing_of_use_measures_nothing(self, body: str, status: int) -> None:
        """A cluster without workers has no capacity, and so no share of it."""
        with served(page(body, status)) as address:
            assert LoadProbes(no_instance, spark_ui=address).measure("spark") is None

    def test_a_master_that_is_gone_or_not_configured_measures_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The port was free a moment ago."""
        with served(page("")) as address:
            pass
        assert LoadProbes(no_instance, spark_ui=address).measure("spark") is None
        assert LoadProbes(no_instance).measure("spark") is None
        assert "ARCTIC_SPARK_UI is not set" in caplog.text

    def test_a_master_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After two seconds, here a tenth of one; the server answers when nobody listens."""
        from arctic_orchestration.schedules.dagster import load

        assert load._ANSWER_SECONDS == 2
        monkeypatch.setattr(load, "_ANSWER_SECONDS", 0.1)
        given_up = threading.Event()

        def hang(request: BaseHTTPRequestHandler) -> None:
            given_up.wait(30)

        with served(hang) as address:
            assert LoadProbes(no_instance, spark_ui=address).measure("spark") is None
            given_up.set()


def test_the_address_of_the_master_is_a_setting() -> None:
    """Empty is as none; what is no web address is refused by name."""
    for value, expected in (("http://host:8080", "http://host:8080"), ("", None)):
        assert Settings.from_environment({"ARCTIC_SPARK_UI": value}).spark_ui == expected
    for wrong in ("host:8080", "spark://host:7077", "file:///etc/passwd", "http://", "http:// x"):
        with pytest.raises(InvalidInput) as refusal:
            Settings.from_environment({"ARCTIC_SPARK_UI": wrong})
        assert (refusal.value.field, refusal.value.value) == ("ARCTIC_SPARK_UI", wrong)
        assert refusal.value.expected == "an address such as http://host:8080"
