"""Workers are held against the protocol: this package's, and the example in TypeScript."""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import DecimalType, TimestamptzType

from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration_tests.compaction.small_lake import offered, rows_of, table_of, tasks_of
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.sessions import OPTIONS
from arctic_orchestration_tests.service.worker_conformance import bench_of, check_worker

EXAMPLE = Path(__file__).parents[2] / "examples" / "typescript-worker"
_ENDPOINT = ["--server", "{server}", "--token-file", "{token_file}"]


@pytest.fixture(scope="session")
def typescript_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built with what npm installs; without Node or npm a skip."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    place = tmp_path_factory.mktemp("typescript") / "worker"
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("node_modules", "dist"))
    for command in (["npm", "ci", "--prefer-offline"], ["npm", "run", "build"]):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode and command[1] == "ci":
            pytest.skip(f"npm cannot install the example: {done.stderr[-500:]}")
        assert done.returncode == 0, done.stdout + done.stderr
    return place / "dist" / "worker.js"


def test_the_python_worker_follows_the_protocol(tmp_path: Path) -> None:
    """``arctic compaction worker --server``, with a Spark of its own."""
    command = [str(Path(sys.executable).with_name("arctic"))]
    kept = (OPTIONS, "JAVA_HOME", "PYTHONDONTWRITEBYTECODE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    check_worker([*command, "compaction", "worker", *_ENDPOINT], tmp_path, environment)


def test_the_typescript_worker_follows_the_protocol(
    tmp_path: Path, typescript_worker: Path
) -> None:
    """Of another language and another engine; its files are published, too."""
    check_worker(["node", str(typescript_worker), *_ENDPOINT], tmp_path)


def test_the_typescript_worker_reads_columns_by_id_and_applies_deletes(
    tmp_path: Path, typescript_worker: Path
) -> None:
    """Of a table whose column was renamed, and one added, with rows deleted by position."""
    with bench_of(["node", str(typescript_worker), *_ENDPOINT], tmp_path) as bench:
        table = table_of(bench.catalog, "lake.changed")
        with table.update_schema() as update:
            update.rename_column("word", "the 'word'")
            update.add_column("price", DecimalType(9, 2))
            update.add_column("at", TimestamptzType())
        table.refresh().append(
            pa.table(
                {
                    "id": [1],
                    "the 'word'": ["new"],
                    "price": [Decimal("12.30")],
                    "at": [datetime(2026, 1, 1, 12, tzinfo=UTC)],
                },
                schema=schema_to_pyarrow(table.schema(), include_field_ids=False),
            )
        )
        first = min(file.path for file in live_files(table.refresh()).files if file.rows == 10)
        add_position_deletes(table, {first: [0, 7]})
        before = rows_of(table)
        assert len(before) == 39
        offered(bench.database, table)
        (task,) = tasks_of(bench.database)
        with bench.worker() as process:
            bench.reaches(task, TaskState.MERGED)
            process.terminate()
        done = Committer(bench.database, bench.catalog).commit("lake.changed")
        assert done is not None
        assert (done.counts.committed, done.trouble) == (1, None), bench.now(task).reason
        assert rows_of(table) == before
        assert [len(file.deletes) for file in live_files(table.refresh()).files] == [0]


def test_the_typescript_worker_merges_no_files_without_field_ids(
    tmp_path: Path, typescript_worker: Path
) -> None:
    """DuckDB would find nulls in files that were added to the table as they were."""
    with bench_of(["node", str(typescript_worker), *_ENDPOINT], tmp_path) as bench:
        table = table_of(bench.catalog, "lake.added")
        added = tmp_path / "added.parquet"
        pq.write_table(pa.table({"id": [1], "word": ["old"]}), added)
        table.add_files([str(added)])
        offered(bench.database, table)
        (task,) = tasks_of(bench.database)
        with bench.worker() as process:
            failed = bench.reaches(task, TaskState.FAILED)
            process.terminate()
    assert f"{added} has no field ids" in failed.reason


def test_the_lock_file_names_no_address() -> None:
    """Packages are found by name, at whatever registry npm is configured for."""
    for file in EXAMPLE.glob("*.json"):
        assert "://" not in file.read_text(), file.name
