"""A worker merges on a real standalone cluster of Spark: a master and an executor, on loopback."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.run_once import offer_now
from arctic_orchestration.compaction.work import attempt_lookup
from arctic_orchestration.compaction.work.worker import What
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.reference_merge import BY_ORIGIN, add, new_table, rows_of
from arctic_orchestration_tests.lake.sessions import jvm_options
from arctic_orchestration_tests.lake.spark_daemons import daemon, logged
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.compaction.crew import WORKER, Crew, How
from arctic_orchestration_tests.proofs.compaction.sizes import LONG
from arctic_orchestration_tests.proofs.compaction.worker_job import merged_by_a_run

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]

_PACKAGE = "org.apache.spark.deploy"
_ORIGINS = ("JFK", "LGA", "EWR")


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster with one executor's place."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with ExitStack() as stack:
        log = stack.enter_context(
            daemon(
                tmp_path,
                "master",
                f"{_PACKAGE}.master.Master",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            )
        )
        listens = logged(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        url = until(listens, "the master listens")
        stack.enter_context(
            daemon(
                tmp_path,
                "executor",
                f"{_PACKAGE}.worker.Worker",
                *("--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "--webui-port", "0"),
                url,
            )
        )
        yield url


def _conf() -> dict[str, str]:
    return {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options(),
        "spark.cores.max": "2",
    }


def _applications(tmp_path: Path) -> int:
    """Spark's own worker keeps a directory for each application that it ran an executor of."""
    return len(list((tmp_path / "executor").glob("app-*/*")))


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_worker_merges_on_a_standalone_cluster(
    state: Database,
    catalog: Catalog,
    crew: Crew,
    master: str,
    tmp_path: Path,
) -> None:
    """Files of three partitions, one with a position delete: an executor reads and writes them."""
    table = new_table(catalog, "lake.clustered", spec=BY_ORIGIN)
    for number in range(4):
        for place, origin in enumerate(_ORIGINS):
            path = add(table, *((number * 100 + place * 10 + row, origin) for row in range(5)))
    # Of 320, 321, … 324, the third one.
    add_position_deletes(table, {path: [2]})
    before = rows_of(table.refresh())
    assert len(before) == 59
    assert (322, "EWR") not in before
    worker = crew.start(WORKER, How(life=LONG, master=master, conf=_conf()))
    _, offered = offer_now(state, catalog, "lake.clustered", utc_now(), force=True)
    assert offered is not None
    assert len(offered.taken) == 3
    worker.reports(What.MERGED, 3)

    def has_ended() -> bool:
        with state.read() as tx:
            return {task.state for task in task_store.tasks(tx)} == {TaskState.MERGED}

    until(has_ended, "three tasks are merged")
    assert Committer(state, catalog).tick().committed == 3
    with state.read() as tx:
        made = [attempt_lookup.attempts_of(tx, task.id) for task in task_store.tasks(tx)]
    assert [(one.way, one.rows_deleted) for (one,) in made].count(("decode", 1)) == 1
    assert {one.way for (one,) in made} == {"decode"}
    assert rows_of(table.refresh()) == before
    assert len(list(table.scan().plan_files())) == 3
    assert _applications(tmp_path) == 1


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_worker_run_of_dagster_has_an_application_of_its_own(
    state: Database, catalog: Catalog, lake: Path, master: str, tmp_path: Path
) -> None:
    """On the cluster of its queue: neither the location's own Spark nor a lent JVM is used."""
    application = {"spark.master": master, **_conf()}
    # Nothing listens there.
    merged_by_a_run(state, catalog, lake, application, ARCTIC_SPARK_REMOTE="sc://127.0.0.1:1")
    assert _applications(tmp_path) == 1
