"""A state database is about one catalog; another one is refused."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import catalog_binding
from arctic_orchestration.compaction.catalog_binding import identity_of, require_same
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import What, Worker, WorkerEvent
from arctic_orchestration.compaction.work.workers import WorkerInfo
from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import (
    Merging,
    lake_in,
    offered,
    table_of,
    tasks_of,
)


class Elsewhere(NoopCatalog):
    """What a catalog says of itself."""

    def __init__(self, name: str = "lake", **properties: str) -> None:
        super().__init__(name, **properties)


def test_a_second_catalog_does_not_touch_the_tables_of_the_first(
    state: Database, catalog: Catalog, tmp_path: Path
) -> None:
    """It has none of them, and would have canceled their tasks."""
    table = table_of(catalog, "lake.a")
    Planner(state, catalog).tick(utc_now())
    offered(state, table)
    other = lake_in(tmp_path / "other")
    with pytest.raises(ConfigurationError) as refused:
        Planner(state, other).tick(utc_now())
    assert str(refused.value) == (
        f"The state database is about the catalog lake in {tmp_path}/lake/catalog.db, and not "
        f"about lake in {tmp_path}/other/catalog.db. Give this one a state database of its own: "
        "ARCTIC_DATABASE_URL. If it is the same catalog, and has moved: "
        "arctic compaction forget-catalog"
    )
    with state.begin() as tx:
        assert [task.state for task in task_store.tasks(tx)] == [TaskState.PLANNED]
        assert catalog_binding.forget(tx) == f"lake in {tmp_path}/lake/catalog.db"
        assert catalog_binding.forget(tx) is None
    require_same(state, other)
    with pytest.raises(ConfigurationError, match="is about the catalog lake in .*/other/"):
        require_same(state, catalog)


def test_a_worker_merges_nothing_once_the_state_database_has_another_catalog(
    state: Database, catalog: Catalog, tmp_path: Path
) -> None:
    """It still has the old one, whose table of that name is elsewhere: its task waits again."""
    table_of(catalog, "lake.words")
    merging = Merging()
    moved = lake_in(tmp_path / "moved")

    class Late(DatabaseSource):
        """A worker that has begun before the catalog moved."""

        def start(self, worker: WorkerInfo) -> None:
            super().start(worker)
            with state.begin() as tx:
                catalog_binding.forget(tx)
            require_same(state, moved)
            offered(state, table_of(moved, "lake.words"))

    events = list[WorkerEvent]()

    def end(event: WorkerEvent) -> None:
        events.append(event)
        if event.what is not What.CLAIMED:
            worker.drain()

    worker = Worker(Late(state, catalog), merging, on_event=end)
    worker.run()
    assert merging.directories == []
    assert [event.what for event in events] == [What.CLAIMED, What.RELEASED]
    assert "is about the catalog" in events[1].text
    (task,) = tasks_of(state)
    assert (task.state, task.attempts) == (TaskState.PLANNED, 0)


def test_an_embedded_catalog_is_its_name_and_its_file_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative, with dots, through a link: the same file; with another name another catalog."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.db").touch()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    expected = f"lake in {tmp_path.resolve()}/lake/catalog.db"
    for uri in (
        f"sqlite:///{tmp_path}/lake/catalog.db",
        f"sqlite:///{tmp_path}/lake/../lake//catalog.db",
        "sqlite:///lake/catalog.db",
        "sqlite+pysqlite:///./link/catalog.db?timeout=5",
    ):
        for warehouse in ("lake", f"file://{tmp_path}/lake"):
            assert identity_of(Elsewhere(uri=uri, warehouse=warehouse)) == expected
    assert identity_of(Elsewhere("ice", uri="sqlite:///lake/catalog.db")) != expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"uri": "postgresql+psycopg2://me:secret@DB:5432/ice", "warehouse": "s3://lake"},
            "lake at postgresql://db:5432/ice",
        ),
        ({"uri": "postgresql://db:5432/ice"}, "lake at postgresql://db:5432/ice"),
        (
            {"uri": "https://me:secret@rest:8181/api/", "warehouse": "prod", "token": "secret"},
            "lake at https://rest:8181/api, warehouse prod",
        ),
        ({"uri": "thrift://hive:9083", "warehouse": "s3://lake/"},
         "lake at thrift://hive:9083, warehouse s3://lake"),
        ({"type": "glue", "warehouse": "s3://lake"}, "lake at glue, warehouse s3://lake"),
    ],
)  # fmt: skip
def test_a_catalog_of_a_server_is_identified_by_its_address(
    properties: dict[str, Any], expected: str
) -> None:
    """Without user, password or driver; a warehouse counts where one address has several."""
    assert identity_of(Elsewhere(**properties)) == expected
