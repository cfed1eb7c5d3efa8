"""Several processes append to one table; one of them is killed and starts again."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.settings import Settings

WRITERS = 4
BATCHES = 3


def start(settings: Settings, who: int) -> "subprocess.Popen[str]":
    module = "arctic_orchestration_tests.lake.appender"
    command = [sys.executable, "-m", module, str(settings.lake), "lake.race"]
    return subprocess.Popen(
        [*command, str(who), str(BATCHES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def await_line(process: "subprocess.Popen[str]", expected: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == expected:
            return
    raise AssertionError(f"the process ended before it said {expected!r}")


def release(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.timeout(240)
def test_four_processes_lose_nothing_and_a_killed_one_doubles_nothing(settings: Settings) -> None:
    """4 writers, 3 batches of 10 rows; one is killed after two and runs again from the start."""
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    table = ensure_table(open_catalog(settings), "lake.race", schema)
    writers = [start(settings, who) for who in range(WRITERS)]
    try:
        for writer in writers:
            await_line(writer, "ready")
        for writer in writers:
            release(writer)
        await_line(writers[0], "appended 1")
        writers[0].kill()
        writers[0].wait(timeout=30)
        writers[0] = start(settings, 0)
        release(writers[0])
        for writer in writers:
            writer.communicate(timeout=180)
            assert writer.returncode == 0
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(timeout=30)
    expected = [
        who * 1000 + batch * 10 + row
        for who in range(WRITERS)
        for batch in range(BATCHES)
        for row in range(10)
    ]
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == expected
    assert len(table.snapshots()) == WRITERS * BATCHES


@pytest.mark.timeout(120)
def test_processes_that_make_the_same_table_get_the_same(tmp_path: Path) -> None:
    """Eight processes, no catalog yet: one table, and all of them load it."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pyiceberg.schema import Schema\n"
        "from pyiceberg.types import LongType, NestedField\n"
        "from arctic_orchestration.lake import ensure_table, open_catalog\n"
        "from arctic_orchestration_tests.lake.conftest import settings_for\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "catalog = open_catalog(settings_for(Path(sys.argv[1])))\n"
        "schema = Schema(NestedField(1, 'id', LongType()))\n"
        "print(ensure_table(catalog, 'a.b.t', schema).metadata.table_uuid)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "lake")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for process in processes:
        await_line(process, "ready")
    for process in processes:
        release(process)
    found = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 8
    assert len(found) == 1
