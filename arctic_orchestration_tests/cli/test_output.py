"""Output of commands that cannot be written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--version", "--help", "schema"])
def test_output_that_cannot_be_written_is_one_message(command: str, unbuffered: str) -> None:
    """As on a full disk. Exit code 2 would say that nothing was changed."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "arctic_orchestration.cli", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    said = "error: standard output: No space left on device; what was changed before stays changed"
    assert " ".join(done.stderr.split()) == said
    assert done.returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_the_output_cannot_encode_are_escaped(tmp_path: Path, encoding: str) -> None:
    """For people and in JSON, which stays JSON; what can be encoded stays as it is."""
    subject = "Łódź \N{SNOWFLAKE}\N{GRINNING FACE}"
    database = Database.open(f"sqlite:///{tmp_path / 'arctic.db'}")
    with database.begin() as tx:
        actor = audit.Actor(name="Zoë", cluster="default")
        audit.record(tx, actor, "queues", "pause", subject)
    database.close()

    def printed(*options: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "arctic_orchestration.cli", "audit", *options],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONIOENCODING": encoding, "DAGSTER_HOME": str(tmp_path)},
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        return done.stdout.decode("latin-1" if encoding == "latin-1" else "utf-8")

    assert json.loads(printed("--json"))["records"][0]["subject"] == subject
    shown = {
        "ascii": (r"Zo\u00eb", r"\u0141\u00f3d\u017a \u2744\ud83d\ude00"),
        "latin-1": ("Zoë", r"\u0141ód\u017a \u2744\ud83d\ude00"),
        "utf-8": ("Zoë", subject),
    }
    text = printed()
    assert all(part in text for part in shown[encoding])


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_stream_that_is_closed_leads_to_nowhere(tmp_path: Path, closed: int) -> None:
    """As for a program that closed its own before it began the command; a question is refused."""
    database = Database.open(f"sqlite:///{tmp_path / 'arctic.db'}")
    with database.begin() as tx:
        here = {"cluster": "default", "name": "here", "ticked_at": utc_now()}
        tx.execute(sa.insert(locations).values(here))
    database.close()
    command = [sys.executable, "-m", "arctic_orchestration.cli"]
    for words, code in ((["audit"], 0), (["locations", "unbind", "here"], 2)):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command, *words],
            capture_output=True,
            env=os.environ | {"DAGSTER_HOME": str(tmp_path)},
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
