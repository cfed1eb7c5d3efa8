"""What an attempt leaves behind when its report is refused, or its answer is lost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_runner, attempts
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.task_source import ClaimedTask
from arctic_orchestration.compaction.work.worker import What, Worker
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import (
    Done,
    Merging,
    offered,
    rows_of,
    table_of,
    tasks_of,
)

_LONG_SECONDS = 600


def test_a_report_that_comes_after_the_lease_leaves_no_file(
    state: Database, catalog: Catalog
) -> None:
    """The worker has not noticed that the task is lost; the refusal tells it."""
    offered(state, table_of(catalog))
    with state.begin() as tx:
        claim = attempts.claim(tx, (), "slow")
    assert claim is not None

    def meanwhile(group: FileGroup) -> None:
        with state.begin() as tx:
            tx.execute(sa.update(compaction_attempts).values(expires_at=claim.claimed_at))
            assert attempts.expire(tx) == 1

    merging = Merging(before=meanwhile)
    held = ClaimedTask(claim=claim, trusted_until=time.monotonic() + _LONG_SECONDS)
    outcome = attempt_runner.attempt(held, DatabaseSource(state, catalog), merging, lambda: False)
    assert outcome.what is What.LOST
    assert len(merging.directories) == 1
    assert not Path(merging.directories[0]).exists()


def test_a_report_whose_answer_was_lost_keeps_its_files(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committer may have published them: they stay, and the task counts as merged."""
    table = table_of(catalog)
    before = rows_of(table)
    offered(state, table)
    report, begin = attempts.merged, state.begin
    reported: list[str] = []

    def noted(tx: Any, attempt_id: str, *args: Any, **named: Any) -> None:
        report(tx, attempt_id, *args, **named)
        reported.append(attempt_id)

    @contextmanager
    def lost() -> Iterator[Any]:
        with begin() as tx:
            yield tx
        if reported:
            reported.clear()
            assert Committer(state, catalog).tick().committed == 1
            raise DatabaseUnavailable("the connection was lost before the answer came")

    monkeypatch.setattr(attempts, "merged", noted)
    monkeypatch.setattr(state, "begin", lost)
    done = Worker(DatabaseSource(state, catalog), Merging()).run(timedelta(0))
    assert not reported
    assert (done.of(What.MERGED), done.of(What.LOST)) == (1, 0)
    assert rows_of(table) == before
    assert [task.state for task in tasks_of(state)] == [TaskState.COMMITTED]


class Miscounting(Merging):
    """Reports one row more than its inputs have."""

    def __call__(
        self, table: Table, group: FileGroup, directory: str, *, target_bytes: int
    ) -> Done:
        done = super().__call__(table, group, directory, target_bytes=target_bytes)
        return replace(done, rows_in=done.rows_in + 1)


def test_a_merge_whose_report_is_invalid_has_failed_with_the_reason(
    state: Database, catalog: Catalog
) -> None:
    """It would be put back when its worker ends, and merged in the same way without end."""
    offered(state, table_of(catalog))
    done = Worker(DatabaseSource(state, catalog), Miscounting()).run(timedelta(0))
    assert (done.of(What.FAILED), done.of(What.LOST)) == (1, 0)
    (task,) = tasks_of(state)
    assert (task.state, task.attempts) == (TaskState.FAILED, 1)
    assert task.reason.startswith(
        "attempt 1 of 3 failed: rows_out: got 40, expected 41 - 0 rows; again at "
    )
