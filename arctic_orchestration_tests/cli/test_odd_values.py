"""Each command with each of its arguments and options, and values that nobody should give.

Whatever is given, a command ends with 0, 1 or 2, in one message and without a traceback; and a
value that cannot be used is named. ``ARCTIC_PROOF=full`` tries all values, by default some.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.main import get_command

from arctic_orchestration.cli.main import app
from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.serve import Service
from arctic_orchestration.console.lazy_command import LazyCommand
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.cli.conftest import Outcome

Command = Callable[..., Outcome]

#: no text in UTF-8, as the shell hands it over
NO_TEXT = "caf\udce9"
#: more than any database counts
HUGE = str(2**63)
NUMBERS = ["0", "-1", HUGE, "1e3", "", "9" * 5000, str(2**31)]
FRACTIONS = ["nan", "inf", "-1", "1e308", "", "x"]
TEXTS = ["", NO_TEXT, "9" * 5000]
MORE_TEXTS = [
    "x" * 100_000,
    "-1d",
    "99999999999999999999d",
    "nan",
    "9999-12-31T23:59:59+00:00",
    "0001-01-01T00:00:00+14:00",
    "k=" + "[" * 5000,
    "\x1b[2J",
    "a\nb",
    "/nonexistent/folder/file",
]
FULL = os.environ.get("ARCTIC_PROOF") == "full"
#: begins to work, with Spark and until it is ended, with any text that it takes
WORKER = ("compaction", "worker")


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command with its words."""
    if isinstance(command, LazyCommand):
        command = command.load()
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*path, name))


def kind_of(parameter: Any) -> type | None:
    """What a parameter holds; none: it is Typer's own."""
    described = getattr(parameter, "type_descriptor", None)
    return None if described is None else described.annotation


def arguments(path: tuple[str, ...], command: Any, odd: Any, value: str) -> list[str]:
    """The words of a command with one odd value, and something for what must be given."""
    words = list(path)
    for one in command.params:
        if one is not odd and not getattr(one, "required", False):
            continue
        given = value if one is odd else "1"
        is_option = one.param_type_name == "option"
        words.append(f"{max(one.opts, key=len)}={given}" if is_option else given)
    return words


def cases() -> Iterator[Any]:
    """Every command with every parameter that takes a value."""
    for path, command in leaves(get_command(app)):
        for parameter in command.params:
            kind = kind_of(parameter)
            if kind in (None, bool) or parameter.name == "help":
                continue
            values = {int: NUMBERS, float: FRACTIONS}.get(kind, TEXTS)
            if path == WORKER and kind is not int:
                continue
            if FULL and values is TEXTS:
                values = TEXTS + MORE_TEXTS
            id = f"{' '.join(path)} {parameter.name}"
            yield pytest.param(path, command, parameter, values, id=id)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance of Dagster, and a state database with one location."""
    home = tmp_path_factory.mktemp("home")
    (home / "dagster.yaml").touch()
    database = Database.open(f"sqlite:///{home / 'arctic.db'}")
    with database.begin() as tx:
        here = {"cluster": "default", "name": "here", "ticked_at": utc_now()}
        tx.execute(sa.insert(locations).values(here))
    database.close()
    return home


@pytest.fixture(autouse=True)
def surroundings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands find, and a folder for what they write."""
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.delenv("ARCTIC_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    # With a value that it takes, it would go on until it is stopped.
    monkeypatch.setattr(Service, "run", lambda service, pause: None)


@pytest.mark.proof
@pytest.mark.parametrize(("path", "command", "parameter", "values"), list(cases()))
def test_no_value_is_a_traceback(
    path: tuple[str, ...], command: Any, parameter: Any, values: list[str], arctic: Command
) -> None:
    """An exception that is none of ours would leave the call, and fail this test."""
    for value in values:
        result = arctic(*arguments(path, command, parameter, value))
        assert result.code in (0, 1, 2), value[:100]
        assert "Traceback" not in result.err
        if value in (HUGE, "9" * 5000) and kind_of(parameter) is int:
            assert result.code == 2
            assert max(parameter.opts, key=len) in result.err


def test_the_table_has_every_command() -> None:
    """But those that take no value; and commands that were added since are in it."""
    with_values = {
        path
        for path, command in leaves(get_command(app))
        if any(kind_of(one) not in (None, bool) for one in command.params)
    }
    assert {case.values[0] for case in cases()} == with_values
    assert len(list(cases())) > 100


def test_a_value_that_is_no_text_is_named(arctic: Command) -> None:
    """By the name that the help has for it."""
    result = arctic("schedules", "show", NO_TEXT)
    assert (result.code, result.out) == (2, "")
    assert "NAME: got 'caf\\udce9', expected text in UTF-8" in result.err
    result = arctic("jobs", "list", "--limit", HUGE)
    assert "--limit: got 9223372036854775808, expected a number up to 2147483647" in result.err


URLS = [
    "postgresql://u:pw-1@[::1/d",
    "postgresql://u:pw-1@h:port/d",
    "postgresql//u:pw-1@h/d",
    "://u:p@pw-1@h",
    "mysql://h/d?password=pw-1",
    "sqlite:///file.db?password=pw-1",
    "sqlite:////nonexistent/folder/file.db",
    "postgresql://u:pw-1@127.0.0.1:99999/d",
    f"postgresql://u:pw-1{NO_TEXT}@h/d",
]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("path", "command"),
    [pytest.param(path, command, id=" ".join(path)) for path, command in leaves(get_command(app))],
)
def test_no_database_url_is_a_traceback_or_printed(
    path: tuple[str, ...], command: Any, arctic: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in ARCTIC_DATABASE_URL, whoever reads it."""
    for url in URLS if FULL else URLS[:2]:
        monkeypatch.setattr(sys, "stdin", None)
        monkeypatch.setitem(os.environ, "ARCTIC_DATABASE_URL", url)
        result = arctic(*arguments(path, command, None, ""))
        assert result.code in (0, 1, 2)
        for text in (result.out, result.err):
            assert "pw-1" not in text
            assert "Traceback" not in text
