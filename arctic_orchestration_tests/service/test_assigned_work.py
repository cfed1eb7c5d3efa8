"""What a worker over HTTP gets of a task, for how long, and which reports of it are refused."""

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import queues, table_queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import PlannedTask, TaskKind, TaskState
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, FileGroup, LiveFile
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in, offered, table_of
from arctic_orchestration_tests.compaction.stored import NOON, seen
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_access import token

VECTOR = DeleteFile(
    path="d.puffin", kind=DeleteKind.VECTOR, size=40, rows=2, sequence_number=5, offset=4,
    referenced="a.parquet",
)  # fmt: skip
POSITIONS = DeleteFile(
    path="p.parquet", kind=DeleteKind.POSITION, size=30, rows=3, sequence_number=6
)
MANY = DeleteFile(path="m.parquet", kind=DeleteKind.POSITION, size=30, rows=15, sequence_number=6)
VALUES = DeleteFile(
    path="v.parquet", kind=DeleteKind.EQUALITY, size=20, rows=1, sequence_number=7,
    equality_ids=(1, 2),
)  # fmt: skip


def group(
    of_first: tuple[DeleteFile, ...] = (), of_second: tuple[DeleteFile, ...] = ()
) -> FileGroup:
    """Two files of ten rows, with their deletes."""
    first = LiveFile(
        path="a.parquet", size=900, rows=10, sequence_number=3, spec_id=2,
        partition=(Decimal("1.20"), None), sort_order_id=1, first_row_id=70, deletes=of_first,
    )  # fmt: skip
    second = LiveFile(
        path="b.parquet", size=800, rows=10, sequence_number=4, spec_id=2,
        partition=(Decimal("1.20"), None), deletes=of_second,
    )  # fmt: skip
    return FileGroup(snapshot_id=8, sequence_number=9, spec_id=2, files=(first, second))


@pytest.fixture
def client(api: MakeApi) -> TestClient:
    """With a registered worker, ``w``."""
    made = api()
    assert made.put("/workers/w", json={"name": "one"}).status_code == 200
    return made


def claimed(
    client: TestClient, database: Database, place: Path, files: FileGroup, **properties: str
) -> Any:
    """The assignment of a task of these files, of a table with these properties."""
    table_of(lake_in(place / "lake"), files=0, **properties)
    task = PlannedTask(
        kind=TaskKind.MAJOR, partition="", group=files, small_files=2, bytes=files.bytes,
        reason="deletes", gain="2 files → 1",
    )  # fmt: skip
    with database.begin() as tx:
        seen(tx, "lake.words")
        offer(tx, "lake.words", [task], NOON)
    return client.post("/workers/w/claim", json={"key": "k"}).json()["assignment"]


def test_nothing_of_a_group_is_lost_on_the_way_to_a_worker(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    """Row ids, deletion vectors, values of the partition: without them, rows would change."""
    files = group((VECTOR, POSITIONS, VALUES))
    found = claimed(client, database, tmp_path, files)["group"]
    assert FileGroup.from_json(json.dumps(found)) == files
    assert found["partition"] == [{"decimal": "1.20"}, None]
    assert found["deletes"][0] == {
        "path": "d.puffin", "kind": "vector", "size": 40, "rows": 2, "sequence_number": 5,
        "equality_ids": [], "offset": 4, "referenced": "a.parquet",
    }  # fmt: skip
    assert [one["deletes"] for one in found["files"]] == [[0, 1, 2], []]


@pytest.mark.parametrize(("properties", "is_sorted"), [({}, False), ({"sort": "id"}, True)])
def test_a_worker_learns_how_outputs_are_to_be(
    client: TestClient,
    database: Database,
    tmp_path: Path,
    properties: dict[str, str],
    is_sorted: bool,
) -> None:
    """Their size, and whether their rows are to be sorted."""
    named = {f"arctic.compaction.{key}": value for key, value in properties.items()}
    named |= {"write.target-file-size-bytes": "123456789"}
    work = claimed(client, database, tmp_path, group(), **named)
    assert (work["table"]["is_sorted"], work["target_bytes"]) == (is_sorted, 123456789)


@pytest.mark.parametrize(
    ("of_first", "of_second", "most"),
    [
        ((), (), 0),
        ((POSITIONS,), (), 3),
        ((VECTOR, POSITIONS), (), 5),
        # The positions are those of both files.
        ((POSITIONS,), (POSITIONS,), 3),
        ((MANY,), (), 10),
        ((VALUES,), (), 10),
        ((VALUES,), (POSITIONS,), 13),
        ((VALUES,), (VALUES,), 20),
    ],
)
def test_no_more_rows_are_deleted_than_the_deletes_can(
    client: TestClient,
    database: Database,
    tmp_path: Path,
    of_first: tuple[DeleteFile, ...],
    of_second: tuple[DeleteFile, ...],
    most: int,
) -> None:
    """Else the rows that a worker loses are lost for good; each file counts for itself."""
    work = claimed(client, database, tmp_path, group(of_first, of_second))

    def reported(deleted: int) -> tuple[int, list[str]]:
        left = 20 - deleted
        outputs = [{"path": f"{work['directory']}/a.parquet", "size": 900, "rows": left}]
        body = {
            "fencing_token": 1, "outputs": outputs if left else [], "rows_in": 20,
            "rows_deleted": deleted, "way": "decode",
        }  # fmt: skip
        answer = client.post(f"/workers/attempts/{work['attempt']}/merged", json=body)
        return answer.status_code, [one["field"] for one in answer.json().get("errors", ())]

    if most < 20:
        assert reported(most + 1) == (422, ["rows_deleted"])
    assert reported(most) == (200, [])


@pytest.mark.parametrize(("retry", "rests"), [("not these files", False), ("not this table", True)])
def test_a_table_that_no_worker_can_merge_rests(
    client: TestClient, database: Database, tmp_path: Path, retry: str, rests: bool
) -> None:
    """Its other tasks would fail too; after bad files alone, they would not."""
    work = claimed(client, database, tmp_path, group())
    body = {"fencing_token": 1, "reason": "format 9", "retry": retry}
    path = f"/workers/attempts/{work['attempt']}/failed"
    assert client.post(path, json=body).json()["task_state"] == TaskState.QUARANTINED
    with database.read() as tx:
        assert (tables.table_by_name(tx, "lake.words").rest_reason is not None) == rests
        assert task_store.task_by_id(tx, work["task"]).attempts == 1


def test_a_repeated_claim_has_the_rest_of_its_lease(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    """Not a whole one: the worker would write while another one may have the task."""
    work = claimed(client, database, tmp_path, group())
    soon = utc_now() + timedelta(seconds=40)
    with database.begin() as tx:
        tx.execute(sa.update(compaction_attempts).values(expires_at=soon))
    again = client.post("/workers/w/claim", json={"key": "k"}).json()["assignment"]
    assert again["attempt"] == work["attempt"]
    assert again["lease_seconds"] <= 40


def test_a_limited_token_has_no_part_in_tasks_of_other_queues(
    api: MakeApi, database: Database, tmp_path: Path
) -> None:
    """It renews no lease of their workers, and ends none, whatever these serve since."""
    with database.begin() as tx:
        queues.add_queue(tx, queues.CompactionQueue(name="night"), NOON)
    night = api(token=token(database, "workers:write@queue=night", name="night"))
    every = api(token=token(database, "workers:write", name="every"))
    assert every.put("/workers/w", json={"name": "one"}).status_code == 200
    work = claimed(every, database, tmp_path, group())
    held = {"attempts": [{"attempt": work["attempt"], "fencing_token": 1}]}
    assert night.post("/workers/w/beat", json=held).status_code == 403
    form = {"name": "one", "queues": ["night"]}
    assert every.put("/workers/w", json=form).status_code == 200
    assert night.delete("/workers/w").status_code == 403
    with database.read() as tx:
        assert task_store.task_by_id(tx, work["task"]).state is TaskState.CLAIMED


@pytest.mark.parametrize(
    ("word", "body", "task_state"),
    [("released", {}, "planned"), ("failed", {"reason": "the disk is full"}, "failed")],
)
def test_a_token_of_a_queue_reports_a_task_whose_table_was_mapped_to_another(
    api: MakeApi, database: Database, tmp_path: Path, word: str, body: dict[str, Any],
    task_state: str,
) -> None:  # fmt: skip
    """A task that is put back is in the other queue; a repeated report has the same answer."""
    with database.begin() as tx:
        for name in ("night", "day"):
            queues.add_queue(tx, queues.CompactionQueue(name=name), NOON)
    offered(database, table_of(lake_in(tmp_path / "lake")))
    with database.begin() as tx:
        table_queues.map_table(tx, "lake.words", "night", NOON)
    night, day = (
        api(token=token(database, f"workers:write@queue={name}", name=name))
        for name in ("night", "day")
    )
    assert night.put("/workers/n", json={"name": "n", "queues": ["night"]}).status_code == 200
    work = night.post("/workers/n/claim", json={"key": "k"}).json()["assignment"]
    with database.begin() as tx:
        table_queues.map_table(tx, "lake.words", "day", NOON)
    path = f"/workers/attempts/{work['attempt']}"
    assert day.get(path).status_code == 403
    answers = [night.post(f"{path}/{word}", json={"fencing_token": 1, **body}) for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].json() == answers[1].json() == night.get(path).json()
    assert (answers[0].json()["state"], answers[0].json()["task_state"]) == (word, task_state)
    with database.read() as tx:
        assert [task.queue for task in task_store.tasks(tx)] == ["day"]
