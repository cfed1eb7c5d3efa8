"""One table, planned, merged and committed at once; and the round that services make."""

from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction.cli.run import _is_done
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.queue import queues, task_store
from arctic_orchestration.compaction.queue.task import LIVE, TaskState
from arctic_orchestration.compaction.run_once import compact_now, offer_now
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Worker
from arctic_orchestration.errors import CatalogUnavailable, NotFound
from arctic_orchestration.lake import catalog_answers
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import Merging, add_file, rows_of, table_of

NOW = datetime.now(UTC)


def test_a_table_is_one_file_afterwards(state: Database, catalog: Catalog) -> None:
    """Twelve small files are enough by the defaults; the record says what was done."""
    table = table_of(catalog, files=12)
    before = rows_of(table)
    done = compact_now(state, catalog, Merging(), "lake.words", NOW)
    assert [(one.files_in, one.files_out, one.rows) for one in done.records] == [(12, 1, 120)]
    assert (done.left, done.trouble) == ((), None)
    assert len(list(table.refresh().scan().plan_files())) == 1
    assert rows_of(table) == before


def test_below_the_thresholds_only_what_is_forced(state: Database, catalog: Catalog) -> None:
    table = table_of(catalog, files=3, **{"arctic.compaction.minor.interval": "never"})
    done = compact_now(state, catalog, Merging(), "lake.words", NOW)
    assert done.records == ()
    done = compact_now(state, catalog, Merging(), "lake.words", NOW, force=True)
    assert [one.files_in for one in done.records] == [3]
    assert len(list(table.refresh().scan().plan_files())) == 1


def test_again_there_is_nothing_to_do(state: Database, catalog: Catalog) -> None:
    table_of(catalog, files=12)
    compact_now(state, catalog, Merging(), "lake.words", NOW, force=True)
    done = compact_now(state, catalog, Merging(), "lake.words", NOW, force=True)
    assert (done.plan.tasks, done.records) == ((), ())


def test_a_table_that_is_none(state: Database, catalog: Catalog) -> None:
    table_of(catalog, files=1)
    with pytest.raises(NotFound, match=r"lake\.wordz.*lake\.words"):
        compact_now(state, catalog, Merging(), "lake.wordz", NOW)


def test_a_catalog_that_goes_away_after_the_first_answer_is_named(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked five times more; four times without an answer, and the table is compacted."""
    table_of(catalog, files=12)
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)
    load, silent = catalog.load_table, [0]
    calls = 0

    def answer(identifier: str) -> Table:
        nonlocal calls
        calls += 1
        if 1 < calls <= 1 + silent[0]:
            raise ConnectionError("connection refused")
        return load(identifier)

    monkeypatch.setattr(catalog, "load_table", answer)
    silent[0] = 5
    with pytest.raises(CatalogUnavailable, match=r"lake\.words.*tried 5 times: connection refused"):
        compact_now(state, catalog, Merging(), "lake.words", NOW)
    calls, silent[0] = 0, 4
    done = compact_now(state, catalog, Merging(), "lake.words", NOW)
    assert [one.files_in for one in done.records] == [12]


def test_what_fails_is_left_with_its_reason(state: Database, catalog: Catalog) -> None:
    table = table_of(catalog, files=12)
    before = rows_of(table)

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    done = compact_now(state, catalog, Merging(before=full), "lake.words", NOW)
    assert done.records == ()
    assert [task.state for task in done.left] == [TaskState.FAILED]
    assert "No space left on device" in done.left[0].reason
    assert rows_of(table) == before


def test_what_is_given_up_is_left_with_its_reason(state: Database, catalog: Catalog) -> None:
    """Of this request; what went to quarantine before is left out by its plan."""
    table_of(catalog, files=12, **{"arctic.compaction.attempts": "1"})

    def broken(_: object) -> None:
        raise OSError(5, "a page is broken")

    done = compact_now(state, catalog, Merging(before=broken), "lake.words", NOW)
    assert done.records == ()
    assert [task.state for task in done.left] == [TaskState.QUARANTINED]
    assert "a page is broken" in done.left[0].reason
    assert not _is_done(done), "the command's exit code is 1"
    assert compact_now(state, catalog, Merging(), "lake.words", NOW).left == ()


def test_rounds_of_the_service_and_a_worker_keep_a_table_small(
    state: Database, catalog: Catalog
) -> None:
    """Found, planned, merged and committed, while files come; readers see every row."""
    table = table_of(catalog, files=12, **{"arctic.compaction.commit-interval": "0s"})
    service = CompactionService(state, catalog)
    now = NOW
    for number in range(100, 112):
        service.tick(now)
        Worker(DatabaseSource(state, catalog), Merging()).run(timedelta(0))
        add_file(table.refresh(), number)
        now += timedelta(minutes=2)
    counts = service.tick(now)
    assert counts.lost == 0
    assert len(rows_of(table)) == 24 * 10
    assert len(list(table.refresh().scan().plan_files())) < 14
    with state.read() as tx:
        assert sum(record.files_in for record in records.records(tx)) >= 12
        states = {task.state for task in task_store.tasks(tx)}
    assert TaskState.QUARANTINED not in states


def live(state: Database) -> list[tuple[str, TaskState]]:
    with state.read() as tx:
        return [(task.id, task.state) for task in task_store.tasks(tx, states=LIVE)]


def test_to_force_a_plan_twice_offers_the_same_task(state: Database, catalog: Catalog) -> None:
    """The second one keeps what the first one offered."""
    table_of(catalog, files=3)
    _, first = offer_now(state, catalog, "lake.words", NOW, force=True)
    _, second = offer_now(state, catalog, "lake.words", NOW, force=True)
    assert first is not None
    assert second is not None
    assert (second.taken, second.kept, second.superseded) == ((), first.taken, ())
    assert live(state) == [(first.taken[0], TaskState.PLANNED)]


def test_a_forced_task_of_a_disabled_table_stays(state: Database, catalog: Catalog) -> None:
    """Also when it has failed; one from before the table was disabled is canceled."""
    table = table_of(catalog, files=3)
    offer_now(state, catalog, "lake.words", NOW, force=True)
    with table.refresh().transaction() as change:
        change.set_properties({"arctic.compaction.enabled": "false"})
    planner = Planner(state, catalog)
    planner.tick(NOW)
    assert live(state) == []
    _, offered = offer_now(state, catalog, "lake.words", NOW, force=True)
    assert offered is not None
    planner.tick(NOW + timedelta(minutes=1))
    # As one that starts now.
    Planner(state, catalog).tick(NOW + timedelta(minutes=1))
    assert live(state) == [(offered.taken[0], TaskState.PLANNED)]
    with state.begin() as tx:
        claim = attempts.claim(tx, [], "w")
        assert claim is not None
        attempts.failed(tx, claim.attempt_id, claim.token, "no space left on device")
    Planner(state, catalog).tick(NOW + timedelta(minutes=2))
    assert live(state) == [(offered.taken[0], TaskState.FAILED)]


def test_a_forced_task_of_a_table_that_no_planner_has_seen_stays(
    state: Database, catalog: Catalog
) -> None:
    table_of(catalog, files=3, **{"arctic.compaction.enabled": "false"})
    _, offered = offer_now(state, catalog, "lake.words", NOW, force=True)
    assert offered is not None
    Planner(state, catalog).tick(NOW)
    assert live(state) == [(offered.taken[0], TaskState.PLANNED)]


def test_to_force_a_run_after_one_that_failed_merges(state: Database, catalog: Catalog) -> None:
    """At once: the failed task does not wait for its retry interval."""

    def breaks(group: object) -> None:
        raise OSError("no space left on device")

    table = table_of(catalog, files=3)
    failed = compact_now(state, catalog, Merging(breaks), "lake.words", NOW, force=True)
    assert [task.state for task in failed.left] == [TaskState.FAILED]
    done = compact_now(state, catalog, Merging(), "lake.words", NOW, force=True)
    assert [one.files_in for one in done.records] == [3]
    assert len(list(table.refresh().scan().plan_files())) == 1


def test_a_run_of_a_paused_queue_says_so_at_once(state: Database, catalog: Catalog) -> None:
    """And leaves the task that it offered."""
    table_of(catalog, files=3)
    with state.begin() as tx:
        queues.set_state(tx, "default", queues.QueueState.PAUSED)
    done = compact_now(state, catalog, Merging(), "lake.words", NOW, force=True)
    assert done.trouble == (
        "queue default is paused; end that with: arctic compaction queues resume default"
    )
    assert [task.state for task in done.left] == [TaskState.PLANNED]
