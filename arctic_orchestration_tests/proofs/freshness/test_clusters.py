"""Two clusters are two Dagster instances, each with its own storage, over one state database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from arctic_orchestration.database.engine import Database
from arctic_orchestration.database.freshness_tables import task_publications
from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.definitions import declared
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration_tests.conftest import BACKENDS
from arctic_orchestration_tests.proofs.dagster_processes import until
from arctic_orchestration_tests.proofs.freshness.clusters import Cluster
from arctic_orchestration_tests.proofs.freshness.sizes import FULL

pytestmark = pytest.mark.proof
_SECONDS = 180


@pytest.fixture
def clusters(state: Database, database_url: str, tmp_path: Path) -> Iterator[dict[str, Cluster]]:
    """``east`` and ``west``, whose tasks are registered."""
    made = {name: Cluster(name, tmp_path / name, database_url) for name in ("east", "west")}
    try:
        for cluster in made.values():
            cluster.start()

        def registered() -> bool:
            with state.read() as tx:
                return set(declared(tx, ["raw", "report"])) == {"raw", "report"}

        until(registered, _SECONDS, "both have registered their tasks")
        yield made
    finally:
        for cluster in made.values():
            cluster.end()


# In its small size only where several hosts would have it.
@pytest.mark.parametrize("backend", BACKENDS if FULL else ["postgres"], indirect=True)
def test_ten_submissions_on_two_clusters_are_one_run_and_a_parent_elsewhere_is_waited_for(
    state: Database, clusters: dict[str, Cluster]
) -> None:
    """All of it by their daemons, code servers and run processes."""

    def submit(task: str, cluster: str) -> Submission:
        with state.begin() as tx:
            (made,) = submissions.submit(tx, [task], cluster=cluster, by="ann")
        return made

    def again(asked: list[Submission]) -> list[Submission]:
        with state.read() as tx:
            found = submissions.by_ids(tx, [one.id for one in asked])
        return [found[one.id] for one in asked]

    report = submit("report", "west")
    until(lambda: again([report])[0].state is SubmissionState.WAITING, _SECONDS, "the child waits")
    ten = [submit("flights", cluster) for cluster in ("east", "west") * 5]
    until(lambda: all(one.ended_at for one in again(ten)), _SECONDS, "all ten have ended")
    # It waits for the east, and holds nothing meanwhile: no run of it is there.
    (waiting,) = again([report])
    assert (waiting.state, waiting.run_id) == ("waiting", None), waiting.reason
    assert waiting.reason.startswith("waits for raw (never made")
    submit("raw", "east")
    until(lambda: bool(again([report])[0].ended_at), _SECONDS, "the child has ended")

    (ended,) = again([report])
    assert ended.state is SubmissionState.SUCCEEDED, ended.reason
    with state.read() as tx:
        published = tx.execute(sa.select(task_publications).order_by("at")).mappings().all()
    assert [row["task"] for row in published] == ["flights", "raw", "report"]
    made_by = published[0]
    runs = {run.run_id: name for name, cluster in clusters.items() for run in cluster.runs()}
    assert runs == {
        made_by["run_id"]: made_by["cluster"],
        published[1]["run_id"]: "east",
        published[2]["run_id"]: "west",
    }
    shares = [one for one in again(ten) if one.run_id is None]
    assert len(shares) == 9
    said = f"by run {made_by['run_id']} of cluster {made_by['cluster']}"
    assert [one.state for one in shares] == ["fresh"] * 9
    assert all(said in one.reason for one in shares)
