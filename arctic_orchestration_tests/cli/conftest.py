"""The ``arctic`` command, called as the console script calls it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from arctic_orchestration.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def arctic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs ``arctic`` with arguments, on a terminal wide enough to break no line."""
    monkeypatch.setenv("COLUMNS", "400")

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["arctic", *arguments])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return run
