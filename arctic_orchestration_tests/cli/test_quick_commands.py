"""Commands that people wait for import no package that takes longer than they do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.main import get_command

from arctic_orchestration.cli.main import app
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.schedules.simulated import MakeWorld

SLOW = {"dagster", "pyspark", "pyiceberg", "apprise", "alembic"}
#: Calls the command as its entry point does, then prints which of the slow packages it imported.
_PROGRAM = f"""
import sys
from arctic_orchestration.cli.main import main
try:
    main()
finally:
    print("imported:", *sorted({SLOW!r} & set(sys.modules)), file=sys.stderr)
"""
STORY = Path(__file__).parents[1] / "acceptance" / "stories" / "feed_on_arrival"
FILE = f"{STORY}.yaml"
CDAP = Path(__file__).parents[1] / "schedules" / "imports" / "samples" / "cdap.json"

#: Each reads only; JOB is the id of a job that waits.
READING = (
    "schedules list",
    "schedules show waits",
    "schedules history",
    "schedules next",
    f"schedules diff {FILE}",
    "schedules partitions each",
    "schedules why-not waits --at 2026-01-01T00:00:01Z",
    f"schedules import --from cdap {CDAP}",
    "jobs list",
    "jobs show JOB",
    "jobs explain JOB",
)
#: Without DAGSTER_HOME there is no event log that would have to be read before the change.
CHANGING = (
    f"schedules apply {FILE} --yes",
    f"schedules update ingest {FILE} --yes",
    "schedules enable ingest",
    "schedules suspend ingest",
    "schedules delete ingest --yes",
    "jobs launch JOB",
    "jobs cancel JOB",
)


def imported(arguments: str) -> set[str]:
    """The slow packages that a process of its own imported for the command, which succeeded."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, *arguments.split()],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    # The answer 1: diff has found a difference, and import what is not possible.
    assert done.returncode == int(" diff " in arguments or " import " in arguments), done.stderr
    label, *packages = done.stderr.splitlines()[-1].split()
    assert label == "imported:"
    return set(packages)


@pytest.fixture
def job(world: MakeWorld) -> str:
    """The id of a job that waits for two more arrivals."""
    made = world(
        [
            Schedule(
                name="waits",
                target="rollup",
                trigger=on.partitions("raw/a", count=3) | on.cron("0 4 * * *"),
                enabled=True,
            ),
            Schedule(
                name="each", target="x", trigger=on.partitions("raw/b"), partitions="each",
            ),
        ]
    )  # fmt: skip
    made.feed.arrive("raw/a", "monday")
    made.tick(1)
    with made.database.read() as tx:
        return str(tx.execute(sa.select(jobs.c.id)).scalar_one())


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_commands_about_schedules_and_jobs(
    job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that read, also where there is an instance of Dagster; then those that change."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    for command in READING:
        assert (command, imported(command.replace("JOB", job))) == (command, set())
    monkeypatch.delenv("DAGSTER_HOME")
    for command in CHANGING:
        assert (command, imported(command.replace("JOB", job))) == (command, set())


def test_a_list_in_either_database(job: str) -> None:
    """The driver of Postgres is none of the slow packages, and brings none."""
    assert imported("jobs list") == set()
    assert imported("waiting --group-by cause") == set()


def test_every_command_about_schedules_and_jobs_is_tried() -> None:
    """One that is added later is missing above."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    tried = {tuple(command.split()[:2]) for command in READING + CHANGING}
    assert tried == {
        (group, name) for group in ("schedules", "jobs") for name in commands[group].load().commands
    }


@pytest.mark.parametrize(
    "command",
    ["--help", "--version", "schedules --help", f"simulate {FILE} {STORY}.jsonl"],
    ids=lambda command: command.replace(f"{STORY.parent}/", ""),
)
def test_help_and_a_simulation(command: str) -> None:
    """They need no database."""
    assert imported(command) == set()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_change_beside_an_instance_reads_its_log_with_dagster(
    job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The control: a package that was imported is seen."""
    monkeypatch.setitem(os.environ, "DAGSTER_HOME", str(tmp_path))
    assert imported("schedules suspend waits") == {"dagster", "alembic"}
