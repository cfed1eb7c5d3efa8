"""Two clusters are two Dagster instances, each with its own storage, over one state database."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.definitions import declared
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_publications, tasks
from arctic_orchestration_tests.conftest import BACKENDS
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.freshness.clusters import Cluster
from arctic_orchestration_tests.proofs.freshness.sizes import FULL

pytestmark = pytest.mark.proof


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

        until(registered, "both have registered their tasks")
        yield made
    finally:
        for name, cluster in made.items():
            cluster.end()
            # Shown with a test that fails.
            print(f"{name}:\n{cluster.log()}")


# In its small size only where several hosts would have it.
@pytest.mark.parametrize("backend", BACKENDS if FULL else ["postgres"], indirect=True)
def test_ten_submissions_on_two_clusters_are_one_run_and_a_parent_elsewhere_is_waited_for(
    state: Database, clusters: dict[str, Cluster]
) -> None:
    """All of it by their daemons, code servers and run processes."""

    def submit(task: str, cluster: str) -> Submission:
        return _submit(state, task, cluster)

    def again(submitted: list[Submission]) -> list[Submission]:
        return _again(state, submitted)

    report = submit("report", "west")
    until(lambda: again([report])[0].state is SubmissionState.WAITING, "the child waits")
    ten = [submit("flights", cluster) for cluster in ("east", "west") * 5]
    until(lambda: all(one.ended_at for one in again(ten)), "all ten have ended")
    # It waits for the east, and holds nothing meanwhile: no run of it is there.
    (waiting,) = again([report])
    assert (waiting.state, waiting.run_id) == ("waiting", None), waiting.reason
    assert waiting.reason.startswith("waits for raw (never made")
    submit("raw", "east")
    until(lambda: bool(again([report])[0].ended_at), "the child has ended")

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
    maker = f"by run {made_by['run_id']} of cluster {made_by['cluster']}"
    assert [one.state for one in shares] == ["fresh"] * 9
    assert all(maker in one.reason for one in shares)


@pytest.mark.parametrize("backend", BACKENDS if FULL else ["postgres"], indirect=True)
def test_a_run_that_is_killed_is_made_up_for_and_who_shares_it_waits_for_that(
    state: Database, clusters: dict[str, Cluster]
) -> None:
    """SIGKILL hits the process of the run; what it had started works on, and publishes nothing."""
    east = clusters["east"]

    def now(submission: Submission) -> Submission:
        (found,) = _again(state, [submission])
        return found

    def begun(submission: Submission, attempt: int) -> tuple[str, psutil.Process]:
        """The run of an attempt, and the process that works in it, once it waits at its gate."""

        def waits() -> bool:
            one = now(submission)
            assert not one.ended_at, one.reason
            run = one.run_id if one.attempt == attempt else None
            return run is not None and east.at_gate(run) is not None

        until(waits, f"attempt {attempt} is at work")
        run = now(submission).run_id
        assert run is not None
        working = east.at_gate(run)
        assert working is not None
        return run, working

    def shared() -> tuple[Submission, Submission]:
        """A submission of the east, whose run is at work, and one of the west that shares it."""
        mine = _submit(state, "held", "east")
        begun(mine, 1)
        other = _submit(state, "held", "west")
        until(lambda: now(other).state is SubmissionState.SHARING, "the west shares it")
        return mine, other

    def published() -> list[tuple[int, str, str]]:
        with state.read() as tx:
            rows = tx.execute(sa.select(task_publications).order_by("at")).mappings().all()
        return [(row["token"], row["run_id"], row["cluster"]) for row in rows]

    mine, other = shared()
    first, left_behind = begun(mine, 1)
    east.run_process(left_behind).kill()
    second, _ = begun(mine, 2)
    assert left_behind.is_running(), f"what the first run had started is gone: {now(mine).reason}"
    east.open_gate(first)
    until(lambda: _has_ended(left_behind), "what was left of the first run has ended")
    assert published() == []
    sharing = now(other)
    assert sharing.state is SubmissionState.SHARING, sharing.reason
    east.open_gate(second)
    until(lambda: bool(now(mine).ended_at and now(other).ended_at), "both have ended")

    assert published() == [(2, second, "east")]
    assert (now(mine).state, now(mine).attempt) == ("succeeded", 2), now(mine).reason
    assert now(other).state is SubmissionState.FRESH, now(other).reason
    assert f"by run {second} of cluster east" in now(other).reason

    # The control: the same again, as if it had never been made, and nobody is killed.
    with state.begin() as tx:
        tx.execute(sa.update(tasks).values(last_success_at=None, last_acquired_at=None))
    mine, other = shared()
    third, _ = begun(mine, 1)
    east.open_gate(third)
    until(lambda: bool(now(mine).ended_at and now(other).ended_at), "both have ended")
    assert published() == [(2, second, "east"), (3, third, "east")]
    assert now(mine).attempt == 1

    statuses = east.statuses_at_the_end(PATIENCE_SECONDS)
    assert statuses == {first: "FAILURE", second: "SUCCESS", third: "SUCCESS"}
    assert clusters["west"].runs() == []


def _submit(state: Database, task: str, cluster: str) -> Submission:
    with state.begin() as tx:
        (made,) = submissions.submit(tx, [task], cluster=cluster, by="ann")
    return made


def _again(state: Database, submitted: list[Submission]) -> list[Submission]:
    with state.read() as tx:
        found = submissions.by_ids(tx, [one.id for one in submitted])
    return [found[one.id] for one in submitted]


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
