"""The examples of the pages to copy from are accepted: YAML, Python and commands."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.main import get_command

from arctic_orchestration.cli.main import app
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.notifications.channels import read_channels
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.yaml_file import load

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "how-to.md", DOCS / "tutorial.md"]
WITH_COMMANDS = [*PAGES, DOCS.parent / "README.md", DOCS / "first-steps.md"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ )?(arctic [^#\n]+)", re.MULTILINE)


def blocks(kind: str) -> list[Any]:
    """The blocks of a kind, each as a parameter that is named by its page and line."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match[1] == kind:
                found.append(pytest.param(match[2], id=f"{page.stem}-{line}"))
    return found


def read(text: str, folder: Path) -> object:
    """What a block of YAML says to the part of the package that it is for.

    Errors:
        InvalidDefinition: it is refused there, or is for no part.
    """
    form = load(text, name="block")
    assert isinstance(form, Mapping)
    if "run_coordinator" in form:
        return Rules.parse(form["run_coordinator"]["config"])
    if "channels" in form:
        file = folder / "channels.yaml"
        file.write_text(text)
        return read_channels(file, {"MAIL_PASSWORD": "secret"})
    return read_schedules(text, name="block")


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_is_accepted_by_what_it_is_for(text: str, tmp_path: Path) -> None:
    """Schedules, rules of the run queue, channels of notifications."""
    assert read(text, tmp_path)


def test_yaml_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """The control: a misspelled field of each kind."""
    for text in (
        "schedules: [{name: a, target: {job: a}, trigger: {cron: {expresion: '0 4 * * *'}}}]",
        "run_coordinator: {config: {groups: {a: {limits: 1, match: {job: a}}}}}",
        "channels: [{uri: 'json://localhost'}]",
        "schedule: []",
    ):
        with pytest.raises(InvalidDefinition):
            read(text, tmp_path)


@pytest.mark.parametrize("text", blocks("python"))
def test_python_compiles_and_its_definitions_load(text: str) -> None:
    """Blocks with ``defs`` are complete code locations; others are parts of one."""
    code = compile(text, "block", "exec")
    if "defs = " in text:
        made: dict[str, Any] = {"__name__": "block"}
        exec(code, made)
        dg.Definitions.validate_loadable(made["defs"])


def commands(page: Path) -> Iterator[str]:
    """The calls of ``arctic`` in the blocks of a page."""
    for match in _FENCE.finditer(page.read_text()):
        if match[1] in ("", "sh"):
            yield from _COMMAND.findall(match[2])


def unknown_words(call: str) -> list[str]:
    """The first word of a call that is no command, or the options that a command lacks."""
    words = shlex.split(call)[1:]
    command: Any = get_command(app)
    while hasattr(command, "list_commands") and words and not words[0].startswith("-"):
        word = words.pop(0)
        command = command.get_command(None, word)
        if command is None:
            return [word]
        command = command.load() if hasattr(command, "load") else command
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return [word for word in words if word.startswith("-") and word not in options]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_commands_and_their_options_exist(page: Path) -> None:
    """In the blocks of shell and of terminals."""
    assert {call: unknown_words(call) for call in commands(page) if unknown_words(call)} == {}


def test_a_command_that_does_not_exist_is_found() -> None:
    """The control."""
    assert unknown_words("arctic jobs explain orders") == []
    assert unknown_words("arctic jobs explian orders")
    assert unknown_words("arctic jobs explain orders --partitoin x")
