"""What ``--help`` prints, in a terminal of 80 columns."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from arctic_orchestration.cli.main import app
from arctic_orchestration.console.lazy_command import LazyCommand

_COLUMNS = 80


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group."""
    yield path
    if isinstance(command, LazyCommand):
        command = command.load()
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


ALL = list(commands(get_command(app)))


def shown(path: tuple[str, ...]) -> list[str]:
    """The lines of its help."""
    environment = {"COLUMNS": str(_COLUMNS), "TERM": "dumb"}
    result = CliRunner().invoke(app, [*path, "--help"], env=environment)
    assert result.exit_code == 0
    return [line.rstrip() for line in result.output.splitlines()]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_line_ends_where_no_other_word_fits(path: tuple[str, ...]) -> None:
    """Not where it ends in the code: that leaves single words on lines of their own."""
    lines = shown(path)
    assert max(map(len, lines)) <= _COLUMNS
    text = lines[: next(n for n, line in enumerate(lines) if line.startswith("╭"))]
    for line, following in pairwise(text):
        if line and following:
            # One column to each side is free.
            assert len(line) + len(f" {following.split()[0]}") > _COLUMNS - 1, line


def test_there_are_as_many_commands_as_people_can_call() -> None:
    """Groups, commands, and commands of groups in groups."""
    assert {(), ("doctor",), ("consumers", "delete"), ("compaction", "queues", "add")} < set(ALL)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_help_line_is_short(path: tuple[str, ...]) -> None:
    command: Any = get_command(app)
    for name in path:
        command = command.get_command(None, name)
        command = command.load() if hasattr(command, "load") else command
    line = command.help.split("\n\n")[0].replace("\n", " ")
    assert len(line) <= 60
    assert line.endswith(".")


def test_the_line_of_a_command_is_the_first_of_its_own_help() -> None:
    """The line is printed without the module that has the rest."""
    for command in get_command(app).commands.values():  # type: ignore[attr-defined]
        assert command.load().help.split("\n\n")[0] == command.help


def test_a_word_is_completed_with_its_line_and_options_of_what_it_names() -> None:
    """The first without an import, the second with one."""
    ways = {
        "arctic sched": r'"schedules":"Manage schedules."',
        "arctic schedules sus": '"suspend":"',
        "arctic compaction queues add --sha": '"--share":"Workers that serve several queues',
        "arctic audit --fea": r'"--feature":"Only of this command\\: consumers',
    }
    for words, expected in ways.items():
        environment = {"_ARCTIC_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words}
        answer = CliRunner().invoke(app, [], prog_name="arctic", env=environment)
        assert expected in answer.output


def test_a_typo_is_refused_with_the_nearest_names() -> None:
    """Of commands, and of the commands of a group."""
    answer = CliRunner().invoke(app, ["schedul"])
    assert (answer.exit_code, "Did you mean 'schedules'" in answer.output) == (2, True)
    answer = CliRunner().invoke(app, ["schedules", "lst"])
    assert (answer.exit_code, "Did you mean 'list'" in answer.output) == (2, True)


def test_what_may_be_left_out_stands_in_brackets_once() -> None:
    """And a name stands in capitals."""
    usage = {
        ("consumers", "retry"): "arctic consumers retry [OPTIONS] {NAME} [KEY]...",
        ("schedules", "delete"): "schedules delete [OPTIONS] {NAME}...",
        ("schedules", "next"): "schedules next [OPTIONS] [NAME]",
        ("partitions", "add"): "partitions add [OPTIONS] {ASSET} {KEY}",
        ("feed", "restart"): "feed restart [OPTIONS] {LOCATION}",
    }
    for path, message in usage.items():
        assert shown(path)[1].endswith(message)
