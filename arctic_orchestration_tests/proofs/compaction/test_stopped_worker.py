"""Proof: who is stopped for longer than its lease, and goes on, changes nothing any more.

Real processes get SIGSTOP at a step, their leases end by the database's time, which alone decides,
another process does their work, and they get SIGCONT. A worker that is stopped after its merge has
the JVM of the test. With ``ARCTIC_PROOF=full`` each has its own, and one is stopped in the middle
of its merge on Postgres, too.
"""

import signal
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.commit.cleaner import clean
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import Attempt, AttemptState
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.output_paths import directory_of
from arctic_orchestration.compaction.work.worker import What, Worker
from arctic_orchestration.lake.merging.merge import merge
from arctic_orchestration.lake.replacing import replace as replacing
from arctic_orchestration.lake.replacing.replace import TASKS
from arctic_orchestration.lake.upkeep.known_files import KnownFiles
from arctic_orchestration.state.compaction_tables import compaction_attempts, compaction_tables
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.small_lake import Merging, offered, rows_of, table_of
from arctic_orchestration_tests.lake.sessions import RunningJvm
from arctic_orchestration_tests.proofs.compaction.crew import (
    COMMITTER,
    WORKER,
    Crew,
    How,
    Member,
)
from arctic_orchestration_tests.proofs.compaction.sizes import FULL, LONG
from arctic_orchestration_tests.proofs.compaction.steps import Without

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

STOPPED = signal.SIGSTOP
AT_ONCE = timedelta(0)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table of four files with ten rows each."""
    return table_of(catalog, files=4)


def only_task(state: Database) -> Task:
    with state.read() as tx:
        (task,) = task_store.tasks(tx)
    return task


def attempts_at(state: Database) -> list[Attempt]:
    with state.read() as tx:
        return attempt_lookup.attempts_of(tx, only_task(state).id)


def outputs_of(table: Table, attempt: Attempt) -> list[Path]:
    """The files that an attempt has written, as far as they are there."""
    directory = Path(directory_of(table, attempt.directory).removeprefix("file://"))
    return sorted(directory.rglob("*.parquet"))


def let_leases_end(state: Database) -> None:
    """Those of whoever is stopped."""
    with state.begin() as tx:
        now = database_time(tx)
        live, held = compaction_attempts.c.expires_at, compaction_tables.c.commit_expires_at
        tx.execute(sa.update(compaction_attempts).where(live > now).values(expires_at=now))
        tx.execute(sa.update(compaction_tables).where(held > now).values(commit_expires_at=now))


def let_it_be_lost(state: Database) -> None:
    """The attempt of the worker that is stopped."""
    let_leases_end(state)
    with state.begin() as tx:
        assert attempts.expire(tx) == 1


def compactions(table: Table) -> list[str]:
    """The tasks that the table's snapshots name."""
    summaries = [one.summary for one in table.refresh().snapshots()]
    found = [one.additional_properties.get(TASKS) for one in summaries if one is not None]
    return [one for one in found if one is not None]


def stopped_worker(
    crew: Crew, step: str, without: Without = Without.NOTHING, *, jvm: RunningJvm | None = None
) -> Member:
    """A worker that has claimed a task, and stands at the step, its JVM too, if it is its own."""
    worker = crew.start(WORKER, How(life=LONG, without=without, jvm=jvm))
    crew.arm(step, how=STOPPED)
    worker.is_stopped_at(crew, step)
    for child in psutil.Process(worker.pid).children(recursive=True):
        child.suspend()
    return worker


def goes_on(worker: Member) -> None:
    for child in psutil.Process(worker.pid).children(recursive=True):
        child.resume()
    worker.goes_on()


def when_idle(spark: SparkSession) -> RunningJvm | None:
    """The JVM for a worker for which nothing is under way there when it is stopped."""
    return None if FULL else RunningJvm.of(spark)


@pytest.mark.parametrize(
    ("backend", "step"),
    [
        ("sqlite", "OUTPUTS_BEGUN"),
        ("sqlite", "OUTPUTS_WRITTEN"),
        ("postgres", "OUTPUTS_WRITTEN"),
        *([("postgres", "OUTPUTS_BEGUN")] if FULL else []),
    ],
)
def test_a_worker_that_was_stopped_too_long_is_refused(
    state: Database, catalog: Catalog, table: Table, crew: Crew, spark: SparkSession, step: str
) -> None:
    """Another one has done its task; what it has written is removed, and the table is equal."""
    before = rows_of(table)
    offered(state, table)
    jvm = when_idle(spark) if step == "OUTPUTS_WRITTEN" else None
    worker = stopped_worker(crew, step, jvm=jvm)
    let_it_be_lost(state)
    Worker(DatabaseSource(state, catalog), partial(merge, spark)).run(AT_ONCE)
    counts = Committer(state, catalog).tick()
    assert (counts.snapshots, counts.committed) == (1, 1)
    goes_on(worker)
    worker.reports(What.LOST)
    assert worker.events_of(What.MERGED) == []
    first, second = attempts_at(state)
    assert (first.state, second.state) == (AttemptState.LOST, AttemptState.COMMITTED)
    # By itself, if it knows that it is late before it reports; else by the cleaner.
    assert clean(state, catalog, grace=AT_ONCE).kept == 0
    assert outputs_of(table, first) == []
    assert only_task(state).state is TaskState.COMMITTED
    assert rows_of(table) == before
    assert compactions(table) == [only_task(state).id]
    assert [file.file.file_path for file in table.scan().plan_files()] == [
        one.path for one in second.outputs or ()
    ]


@pytest.mark.parametrize("without", [Without.NOTHING, Without.LEASE])
def test_a_late_report_is_refused_also_without_another_owner(
    state: Database,
    catalog: Catalog,
    table: Table,
    crew: Crew,
    spark: SparkSession,
    without: Without,
) -> None:
    """With the control: where nobody requests the lease, files are taken that the cleaner took.

    Its directory was removed, as its attempt was lost, when the report comes.
    """
    offered(state, table)
    worker = stopped_worker(crew, "OUTPUTS_WRITTEN", without, jvm=when_idle(spark))
    (attempt,) = attempts_at(state)
    assert outputs_of(table, attempt) != []
    let_it_be_lost(state)
    # Another one has claimed the task, and is at it.
    with state.begin() as tx:
        claim = attempts.claim(tx, (), "another one")
    assert claim is not None
    assert clean(state, catalog, grace=AT_ONCE).removed == 1
    goes_on(worker)
    if without is Without.NOTHING:
        worker.reports(What.LOST)
        assert only_task(state).state is TaskState.CLAIMED
        with state.begin() as tx:
            assert attempts.renew(tx, claim.attempt_id, claim.token)
        print("a late report was refused")
    else:
        worker.reports(What.MERGED)
        # It counts as the other one's report, which has written nothing.
        assert only_task(state).state is TaskState.MERGED
        assert outputs_of(table, attempt) == []
        print("without the lease: a late report was taken, of files that are gone")


@pytest.mark.parametrize("step", ["COMMITTER_LEASED", "SNAPSHOT_WRITTEN", "SNAPSHOT_COMMITTED"])
def test_a_committer_that_was_stopped_too_long_commits_nothing_twice(
    state: Database, catalog: Catalog, table: Table, crew: Crew, step: str
) -> None:
    """Stopped before its snapshot, or between it and the report; another one took over.

    It may have requested its lease just before it was stopped; then its snapshot has the wrong
    parent.
    """
    before = rows_of(table)
    offered(state, table, at_once=2)
    Worker(DatabaseSource(state, catalog), Merging()).run(AT_ONCE)
    crew.arm(step, how=STOPPED)
    committer = crew.start(COMMITTER, How(life=LONG))
    committer.is_stopped_at(crew, step)
    # A round of one snapshot, its own or the one that it finds in the table's history.
    let_leases_end(state)
    counts = Committer(state, catalog).tick()
    assert (counts.snapshots, counts.committed) == (1, 2)
    with state.read() as tx:
        tasks = {task.id: task for task in task_store.tasks(tx)}
        (record,) = records.records(tx)
    committer.goes_on()
    committer.reports("refused")
    assert committer.events_of("round") == []
    assert rows_of(table) == before
    (named,) = compactions(table)
    assert sorted(named.split(",")) == sorted(tasks) == sorted(record.tasks)
    with state.read() as tx:
        assert {task.id: task for task in task_store.tasks(tx)} == tasks
        assert records.records(tx) == [record]
    assert len(list(table.scan().plan_files())) == 2
    assert all(Path(file.file.file_path).exists() for file in table.scan().plan_files())


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("cleaner_looks", [True, False])
def test_without_the_tables_history_a_take_over_loses_rows(
    state: Database,
    catalog: Catalog,
    table: Table,
    crew: Crew,
    monkeypatch: pytest.MonkeyPatch,
    cleaner_looks: bool,
) -> None:
    """The control: who takes over and does not look there takes its own snapshot for a conflict.

    Then the cleaner alone still keeps the files; one that does not look either removes them.
    """
    before = rows_of(table)
    offered(state, table)
    Worker(DatabaseSource(state, catalog), Merging()).run(AT_ONCE)
    crew.arm("SNAPSHOT_COMMITTED", how=STOPPED)
    committer = crew.start(COMMITTER, How(life=LONG))
    committer.is_stopped_at(crew, "SNAPSHOT_COMMITTED")
    monkeypatch.setattr(replacing, "made_before", lambda *_: {})
    other = Committer(state, catalog)
    let_leases_end(state)
    # With its own snapshot.
    assert other.tick().conflicts == 1
    if cleaner_looks:
        assert clean(state, catalog, grace=AT_ONCE).kept == 1
        assert rows_of(table) == before
    else:
        monkeypatch.setattr(KnownFiles, "below", lambda *_: None)
        assert clean(state, catalog, grace=AT_ONCE).removed == 1
        with pytest.raises(FileNotFoundError):
            rows_of(table)
