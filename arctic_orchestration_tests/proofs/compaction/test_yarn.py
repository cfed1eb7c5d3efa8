"""A worker run of Dagster's merges on YARN, in an application of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.run_once import offer_now
from arctic_orchestration.compaction.work import attempt_lookup
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.lake.reference_merge import BY_ORIGIN, add, new_table, rows_of
from arctic_orchestration_tests.lake.sessions import jvm_options
from arctic_orchestration_tests.proofs.compaction.sizes import LONG, SECONDS
from arctic_orchestration_tests.proofs.compaction.worker_job import run_worker_job
from arctic_orchestration_tests.proofs.dagster_processes import until
from arctic_orchestration_tests.yarn import ABSENT, Yarn, is_absent, yarn

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(900),
    pytest.mark.skipif(is_absent(), reason=ABSENT),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Yarn]:
    with yarn(tmp_path) as found:
        yield found


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_worker_run_has_an_application_on_yarn(
    state: Database, catalog: Catalog, lake: Path, database_url: str, cluster: Yarn
) -> None:
    """By the properties of its queue and ``HADOOP_CONF_DIR``; it ends with the run."""
    table = new_table(catalog, "lake.clustered", spec=BY_ORIGIN)
    for number in range(4):
        add(table, *((number * 100 + row, "JFK") for row in range(5)))
    before = rows_of(table.refresh())
    _, offered = offer_now(state, catalog, "lake.clustered", utc_now(), force=True)
    assert offered is not None
    environment = {
        "ARCTIC_DATABASE_URL": database_url,
        "ARCTIC_LAKE": str(lake),
        "HADOOP_CONF_DIR": str(cluster.configuration),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Of the executors.
        "PYSPARK_PYTHON": sys.executable,
    }
    application = {
        "spark.master": "yarn",
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options(),
        "spark.yarn.am.memory": "512m",
    }
    config = {"until_idle": 0.0, "application": application}
    process = forkserver().Process(target=run_worker_job, args=(environment, config))
    process.start()
    process.join(LONG.total_seconds())
    assert process.exitcode == 0
    assert Committer(state, catalog).tick().committed == 1
    assert rows_of(table.refresh()) == before
    assert len(list(table.scan().plan_files())) == 1
    with state.read() as tx:
        (task,) = task_store.tasks(tx)
        (attempt,) = attempt_lookup.attempts_of(tx, task.id)
    assert "decoded by Arrow" in (attempt.because or "")

    def has_ended() -> bool:
        ((_, found),) = cluster.applications()
        return found == "FINISHED"

    until(has_ended, SECONDS, "the application has ended")
