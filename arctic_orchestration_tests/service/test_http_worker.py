"""A worker over HTTP: the same loop, without state database and catalog."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work.http_source import HttpSource, Server
from arctic_orchestration.compaction.work.worker import What, Worker
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import (
    Merging,
    lake_in,
    offered,
    rows_of,
    table_of,
    tasks_of,
)
from arctic_orchestration_tests.service.lossy_service import Served, served

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
