"""A table of a format that is not supported is shown as refused, and left alone."""

import json
from datetime import timedelta
from pathlib import Path

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.catalog_planner import Planner, mark_due
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake

MINUTE = timedelta(minutes=1)


def set_format(lake: Lake, name: str, version: int) -> None:
    """What another program writes into the table's metadata; pyiceberg reads 3 and writes 2."""
    location = lake.catalog.load_table(name).metadata_location.removeprefix("file://")
    metadata = json.loads(Path(location).read_text())
    metadata["format-version"] = version
    metadata["next-row-id"] = 0
    Path(location).write_text(json.dumps(metadata))
    assert lake.catalog.load_table(name).format_version == version


def test_a_table_of_format_3_is_refused_until_it_is_of_another_one(
    state: Database, tmp_path: Path
) -> None:
    """Its row says so, once; what waited is taken back, and other tables go on."""
    lake, now = Lake.at(tmp_path / "lake"), utc_now()
    lake.table("lake.plain", files=12)
    lake.table("lake.newer", files=12)
    planner = Planner(state, lake.catalog)
    assert planner.tick(now).offered == 2
    set_format(lake, "lake.newer", 3)
    with state.begin() as tx:
        mark_due(tx, "lake.newer", "another program changed it", now)
    counts = planner.tick(now + MINUTE)
    assert (counts.looked, counts.refused, counts.troubled) == (2, 1, 0)
    refused = "lake.newer: got format version 3, expected 1 or 2"
    with state.read() as tx:
        row = tables.table_by_name(tx, "lake.newer")
        found = {task.table: task for task in task_store.tasks(tx)}
    assert (row.refused, row.due_since) == (refused, None)
    assert found["lake.newer"].state is TaskState.CANCELED
    assert found["lake.newer"].reason == f"not compacted: {refused}"
    assert found["lake.plain"].state is TaskState.PLANNED
    # Another process finds it as it is, and says nothing new.
    assert Planner(state, lake.catalog).tick(now + 2 * MINUTE).refused == 0
    set_format(lake, "lake.newer", 2)
    with state.begin() as tx:
        mark_due(tx, "lake.newer", "another program changed it", now + 2 * MINUTE)
    assert planner.tick(now + 3 * MINUTE).offered == 1
    with state.read() as tx:
        assert tables.table_by_name(tx, "lake.newer").refused is None
