"""What the committer does about errors, backups, and tables that are gone."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction.commit import commit_leases, commits
from arctic_orchestration.compaction.commit import committer as module
from arctic_orchestration.compaction.commit.cleaner import clean
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.tables import table_by_name
from arctic_orchestration.errors import CatalogUnavailable
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_tasks,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.merged_tasks import merged, states_of
from arctic_orchestration_tests.compaction.small_lake import (
    rows_of,
    table_of,
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table of six files with ten rows each."""
    return table_of(catalog, files=6)


def test_an_unexpected_error_costs_the_others_nothing(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is left for later, with the reason; the other one is committed to."""
    merged(state, catalog, table)
    merged(state, catalog, table_of(catalog, "lake.other", files=4))
    load = load_table

    def strange(catalog: Catalog, name: str) -> Table:
        if name == "lake.words":
            raise KeyError("a bug")
        return load(catalog, name)

    monkeypatch.setattr(module, "load_table", strange)
    counts = Committer(state, catalog).tick()
    assert (counts.snapshots, counts.committed, counts.troubled) == (1, 2, 1)
    with state.read() as tx:
        assert "a bug" in (table_by_name(tx, "lake.words").commit_trouble or "")
        assert table_by_name(tx, "lake.words").commit_expires_at is None


def test_a_state_database_from_a_backup_removes_nothing_that_is_live(
    state: Database, catalog: Catalog, table: Table
) -> None:
    """It takes the merges that were committed since for lost; the table knows better."""
    before = rows_of(table)
    ids = merged(state, catalog, table)
    with state.read() as tx:
        kept = [dict(row) for row in tx.execute(sa.select(compaction_tasks)).mappings()]
        attempted = [dict(row) for row in tx.execute(sa.select(compaction_attempts)).mappings()]
    assert Committer(state, catalog).tick().committed == 3
    with state.begin() as tx:
        for row in kept:
            tx.execute(
                sa.update(compaction_tasks).where(compaction_tasks.c.id == row["id"]).values(**row)
            )
        for row in attempted:
            tx.execute(
                sa.update(compaction_attempts)
                .where(compaction_attempts.c.id == row["id"])
                .values(**row)
            )
        lease = commit_leases.take_commit_lease(tx, "lake.words", "of the backup")
        assert lease is not None
        for id in ids:
            commits.conflicted(tx, id, "it is a test", lease=lease)
    counts = clean(state, catalog, grace=timedelta(days=-1))
    assert (counts.removed, counts.kept) == (0, 3)
    assert rows_of(table) == before


def test_a_catalog_that_is_down_costs_nothing(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is merged waits; once the catalog is back it is committed."""
    merged(state, catalog, table)

    def down(*_: Any) -> Any:
        raise CatalogUnavailable("lake.words: the catalog did not answer, asked 3 times")

    with monkeypatch.context() as patched:
        patched.setattr(module, "load_table", down)
        assert Committer(state, catalog).tick().troubled == 1
    assert states_of(state) == [TaskState.MERGED] * 3
    round_ = Committer(state, catalog).commit("lake.words")
    assert round_ is not None
    assert round_.counts.committed == 3


def test_the_tasks_of_a_table_that_is_gone_end(
    state: Database, catalog: Catalog, table: Table
) -> None:
    merged(state, catalog, table)
    catalog.drop_table("lake.words")
    counts = Committer(state, catalog).tick()
    assert (counts.committed, counts.conflicts) == (0, 3)
    assert states_of(state) == [TaskState.SUPERSEDED] * 3
    with state.read() as tx:
        assert table_by_name(tx, "lake.words").gone_at is not None
