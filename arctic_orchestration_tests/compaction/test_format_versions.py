"""A table that is not supported is shown as refused, and left alone."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.catalog_planner import Planner, mark_due
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake

MINUTE = timedelta(minutes=1)


def rewrite(lake: Lake, name: str, **fields: Any) -> None:
    """What another program writes into the table's metadata."""
    location = lake.catalog.load_table(name).metadata_location.removeprefix("file://")
    metadata = json.loads(Path(location).read_text())
    metadata |= {key.replace("_", "-"): value for key, value in fields.items()}
    Path(location).write_text(json.dumps(metadata))


def test_an_encrypted_table_is_refused_until_it_is_one_no_more(
    state: Database, tmp_path: Path
) -> None:
    """Its row says so, once; what waited is taken back, and other tables go on."""
    lake, now = Lake.at(tmp_path / "lake"), utc_now()
    lake.table("lake.plain", files=12)
    lake.table("lake.secret", files=12)
    planner = Planner(state, lake.catalog)
    assert planner.tick(now).offered == 2
    key = {"key-id": "k", "encrypted-key-metadata": "eA=="}
    rewrite(lake, "lake.secret", format_version=3, next_row_id=0, encryption_keys=[key])
    with state.begin() as tx:
        mark_due(tx, "lake.secret", "another program changed it", now)
    counts = planner.tick(now + MINUTE)
    assert (counts.looked, counts.unchanged) == (1, 1)
    assert (counts.refused, counts.troubled) == (1, 0)
    refused = "lake.secret: it has encryption-keys, which are not supported"
    with state.read() as tx:
        row = tables.table_by_name(tx, "lake.secret")
        found = {task.table: task for task in task_store.tasks(tx)}
    assert (row.refused, row.due_since) == (refused, None)
    assert found["lake.secret"].state is TaskState.CANCELED
    assert found["lake.secret"].reason == f"not compacted: {refused}"
    assert found["lake.plain"].state is TaskState.PLANNED
    # Another process finds it as it is, and says nothing new.
    assert Planner(state, lake.catalog).tick(now + 2 * MINUTE).refused == 0
    rewrite(lake, "lake.secret", encryption_keys=[])
    with state.begin() as tx:
        mark_due(tx, "lake.secret", "another program changed it", now + 2 * MINUTE)
    assert planner.tick(now + 3 * MINUTE).offered == 1
    with state.read() as tx:
        assert tables.table_by_name(tx, "lake.secret").refused is None
