"""A worker over HTTP: the same loop, without state database and catalog."""

import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_runner, workers
from arctic_orchestration.compaction.work.http_source import HttpSource, Server
from arctic_orchestration.compaction.work.worker import What, Worker
from arctic_orchestration.errors import (
    InvalidInput,
    RequestRefused,
    ServerUnavailable,
    UnsupportedFile,
)
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome, arctic
from arctic_orchestration_tests.compaction.small_lake import (
    Merging,
    lake_in,
    offered,
    rows_of,
    table_of,
    tasks_of,
)
from arctic_orchestration_tests.compaction.test_attempting import Miscounting
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.service.lossy_service import Fault, Served, served
from arctic_orchestration_tests.service.test_access import token

__all__ = ["arctic"]

AT_ONCE = timedelta(0)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return lake_in(tmp_path / "lake")


@pytest.fixture
def service(database: Database, tmp_path: Path) -> Iterator[Served]:
    with served(database, tmp_path / "lake") as made:
        yield made


def http_worker(service: Served, merging: Merging, **more: object) -> Worker:
    source = HttpSource(Server(service.address))
    return Worker(source, merging, poll=AT_ONCE, **more)  # type: ignore[arg-type]


def test_it_merges_what_waits_and_a_committer_publishes_it(
    database: Database, catalog: Catalog, service: Served
) -> None:
    """Readers see the same rows in fewer files; the worker's row is gone at the end."""
    table = table_of(catalog, files=6)
    before = rows_of(table)
    offered(database, table, at_once=2)
    done = http_worker(service, Merging(), parallelism=2).run(AT_ONCE)
    assert (done.of(What.CLAIMED), done.of(What.MERGED), done.of(What.FAILED)) == (3, 3, 0)
    assert Committer(database, catalog).tick().committed == 3
    assert {task.state for task in tasks_of(database)} == {TaskState.COMMITTED}
    assert rows_of(table) == before
    assert len(list(table.refresh().scan().plan_files())) == 3
    assert service.proxy.requests("DELETE")[0].status == 204
    assert all(one.status < 300 for one in service.proxy.seen)


def test_a_worker_that_waits_for_a_task_ends_when_it_is_drained(
    database: Database, catalog: Catalog, service: Served
) -> None:
    """Its waiting claim is cut off; what that would have claimed is put back."""
    worker = http_worker(service, Merging())
    thread = threading.Thread(target=worker.run)
    thread.start()
    waiters = service.proxy.app.state.service.waiters
    until(lambda: bool(waiters._waiters), "it waits, for up to 100 s")
    worker.drain()
    # The end of the worker is a request that does not wait.
    service.proxy.waits_for("DELETE")
    thread.join(PATIENCE_SECONDS)
    offered(database, table_of(catalog))
    assert not thread.is_alive()
    assert [task.state for task in tasks_of(database)] == [TaskState.PLANNED]


def test_a_worker_that_was_forgotten_registers_again(
    database: Database, catalog: Catalog, service: Served
) -> None:
    """As after a day without a connection."""
    offered(database, table_of(catalog, files=2), at_once=1)
    source = HttpSource(Server(service.address))
    merging = Merging(before=lambda group: forget(database))
    done = Worker(source, merging, poll=AT_ONCE).run(AT_ONCE)
    assert done.of(What.MERGED) == 2
    assert len(service.proxy.requests("PUT")) >= 2


@pytest.mark.parametrize("name", ["\udcff.parquet", "\0.parquet"])
def test_a_failure_is_reported_whatever_its_text_is(
    database: Database, catalog: Catalog, service: Served, name: str
) -> None:
    """A file name that is not UTF-8: the report would be refused, and the task merged forever."""
    offered(database, table_of(catalog, files=2))

    def fails(group: FileGroup) -> None:
        raise UnsupportedFile(f"no Parquet file: {name}")

    done = http_worker(service, Merging(before=fails)).run(AT_ONCE)
    assert (done.of(What.FAILED), done.of(What.LOST)) == (1, 0)
    (task,) = tasks_of(database)
    assert task.state is TaskState.QUARANTINED
    assert task.reason == "given up after 1 of 3 attempts: no Parquet file: \ufffd.parquet"


@pytest.mark.parametrize("name", ["東京\u3000便", "a\u00a0b", "a\tb", "a%20b?#"])
def test_a_merge_is_reported_wherever_the_table_is(
    database: Database, catalog: Catalog, service: Served, name: str
) -> None:
    """Wide and unbreakable spaces do not count as printable: the task would be merged forever."""
    offered(database, table_of(catalog, f"lake.{name}", files=2))
    assert http_worker(service, Merging()).run(AT_ONCE).of(What.MERGED) == 1
    assert [task.state for task in tasks_of(database)] == [TaskState.MERGED]


def test_a_merge_whose_report_is_refused_has_failed_with_the_reason(
    database: Database, catalog: Catalog, service: Served
) -> None:
    """It would be put back when its worker ends, and merged in the same way without end."""
    offered(database, table_of(catalog, files=2))
    done = http_worker(service, Miscounting()).run(AT_ONCE)
    assert (done.of(What.FAILED), done.of(What.LOST)) == (1, 0)
    (task,) = tasks_of(database)
    assert (task.state, task.attempts) == (TaskState.FAILED, 1)
    assert "answered 422: rows_in: got 21, expected the 20 of the files" in task.reason


def test_a_redirect_of_a_proxy_is_no_answer(
    database: Database, catalog: Catalog, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as to a login: what it redirects is repeated, and not taken for done."""
    monkeypatch.setattr(attempt_runner, "_RETRY_SECONDS", 0)
    offered(database, table_of(catalog, files=2))
    service.proxy.faults["merged"] = [Fault.REDIRECTED, Fault.REDIRECTED]
    assert http_worker(service, Merging()).run(AT_ONCE).of(What.MERGED) == 1
    assert [one.status for one in service.proxy.requests("merged")] == [302, 302, 200]
    assert [task.state for task in tasks_of(database)] == [TaskState.MERGED]


@pytest.mark.parametrize(
    ("status", "content", "shown"),
    [
        (301, b"", "answered 301: Moved Permanently"),
        (502, b'"bad gateway"', "answered 502: Bad Gateway"),
        (502, b"<html>", "did not answer: JSONDecodeError"),
        (200, b"[]", "answered 200: OK"),
        (200, b"null", "answered 200: OK"),
    ],
)
def test_an_answer_of_another_server_is_none(status: int, content: bytes, shown: str) -> None:
    """The request may be repeated: the service has not answered it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Writes nothing to the terminal."""

    with HTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        server = Server(f"http://127.0.0.1:{other.server_address[1]}")
        with pytest.raises(ServerUnavailable, match=shown):
            server.request("GET", "")
        other.shutdown()


def forget(database: Database) -> None:
    with database.begin() as tx:
        for one in workers.live_workers(tx):
            workers.forget_worker(tx, one.id)


def test_the_token_is_read_for_each_request(database: Database, tmp_path: Path) -> None:
    """So that it can be replaced without a restart; a wrong one is refused with its reason."""
    file = tmp_path / "token"
    with served(database, tmp_path / "lake", require_token=True) as made:
        server = Server(made.address, write(file, "wrong"))
        with pytest.raises(RequestRefused, match="401: the token is unknown"):
            server.request("GET", "")
        write(file, token(database, "workers:write") + "\n")
        assert server.request("GET", "") == {"workers": []}


def test_a_merge_is_reported_when_the_token_has_been_replaced(
    database: Database, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has the new one before the file has it: hours of merging are not lost."""
    monkeypatch.setattr(attempt_runner, "_RETRY_SECONDS", 0)
    offered(database, table_of(catalog, files=2))
    file, good = tmp_path / "token", token(database, "workers:write")
    with served(database, tmp_path / "lake", require_token=True) as made:

        def outdated(group: FileGroup) -> None:
            write(file, "the one before")

        def replaced(word: str) -> None:
            if word == "merged":
                write(file, good)

        made.proxy.on_request = replaced
        source = HttpSource(Server(made.address, write(file, good)))
        worker = Worker(source, Merging(before=outdated), poll=AT_ONCE)
        assert worker.run(AT_ONCE).of(What.MERGED) == 1
        assert [one.status for one in made.proxy.requests("merged")] == [401, 200]
    assert [task.state for task in tasks_of(database)] == [TaskState.MERGED]


def test_a_token_that_is_gone_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """At the start it is refused, as a mistake."""
    file = write(tmp_path / "token", "any")
    server = Server("http://127.0.0.1:1", file)
    file.unlink()
    with pytest.raises(ServerUnavailable, match="--token-file"):
        server.request("GET", "")


@pytest.mark.parametrize("text", ["secret\n# of the worker", "secret\u20ac", "secret\0"])
def test_a_file_that_is_no_token_is_refused_without_its_contents(tmp_path: Path, text: str) -> None:
    """A header cannot contain them; the error of the HTTP client would show the token in logs."""
    expected = "--token-file.*one line of ASCII characters"
    with pytest.raises(InvalidInput, match=expected) as refused:
        Server("http://127.0.0.1:1", write(tmp_path / "token", text))
    assert "secret" not in str(refused.value)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        file = write(tmp_path / "token", "any")
        server = Server(f"http://127.0.0.1:{listening.getsockname()[1]}", file)
        write(file, text)
        with pytest.raises(ServerUnavailable, match=expected) as later:
            server.request("GET", "")
    assert "secret" not in str(later.value)


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (("--token-file", "t"), "--token-file"),
        (("--server", "host:3001"), "--server"),
        (("--server", "ftp://host"), "--server"),
        (("--server", "http://host:99999"), "--server"),
        (("--server", "http://127.0.0.1:1", "--lease", "90s"), "--lease"),
        (("--server", "http://127.0.0.1:1", "--token-file", "none"), "--token-file"),
        (("--server", "http://127.0.0.1:1"), "http://127.0.0.1:1 did not answer"),
    ],
)
def test_the_command_refuses_before_spark_starts(
    arctic: Callable[..., Outcome], arguments: tuple[str, ...], refused: str
) -> None:
    """Options that do not fit, a server that does not answer."""
    result = arctic("compaction", "worker", *arguments)
    assert (result.code, refused in result.err) == (2, True), result.err
