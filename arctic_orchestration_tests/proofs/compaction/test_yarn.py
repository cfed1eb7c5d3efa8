"""A worker run of Dagster's merges on YARN, in an application of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.lake.sessions import jvm_options
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.compaction.worker_job import merged_by_a_run
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
    state: Database, catalog: Catalog, lake: Path, cluster: Yarn
) -> None:
    """By the properties of its queue and ``HADOOP_CONF_DIR``; it ends with the run."""
    application = {
        "spark.master": "yarn",
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options(),
        "spark.yarn.am.memory": "512m",
    }
    configuration = str(cluster.configuration)
    attempt = merged_by_a_run(state, catalog, lake, application, HADOOP_CONF_DIR=configuration)
    assert "decoded by Arrow" in (attempt.because or "")

    def has_ended() -> bool:
        ((_, found),) = cluster.applications()
        return found == "FINISHED"

    until(has_ended, "the application has ended")
