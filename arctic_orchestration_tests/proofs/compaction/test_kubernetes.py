"""A worker run of Dagster's merges in executors that it asks Kubernetes for."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.kubernetes import kubernetes
from arctic_orchestration_tests.lake.sessions import jvm_options
from arctic_orchestration_tests.proofs.compaction.worker_job import merged_by_a_run

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_worker_run_has_executors_on_kubernetes(
    state: Database, catalog: Catalog, lake: Path, tmp_path: Path
) -> None:
    """By the properties of its queue; pods and what belongs to them end with the run."""
    pods = tmp_path / "pods"
    pods.mkdir()
    with kubernetes(pods) as cluster:
        application = {
            "spark.master": cluster.master,
            "spark.kubernetes.container.image": "lake:1",
            "spark.kubernetes.executor.label.team": "lake",
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": jvm_options(),
        }
        attempt = merged_by_a_run(state, catalog, lake, application)
        assert "decoded by Arrow" in (attempt.because or "")
        (pod,) = cluster.posted
        assert pod["spec"]["containers"][0]["image"] == "lake:1"
        assert pod["metadata"]["labels"]["team"] == "lake"
        assert cluster.names() == []
