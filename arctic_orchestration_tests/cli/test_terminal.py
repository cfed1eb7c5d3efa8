"""What others wrote reaches no terminal raw: no escape sequence, no line that is not ours."""

import json
import re
from collections.abc import Callable, Sequence

import pytest

from arctic_orchestration.console import terminal
from arctic_orchestration.console.display import Rows, console
from arctic_orchestration.console.terminal import escape, json_text, visible
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.simulated import World

#: Clears the screen, sets the title, begins a line, goes back to its beginning, C1's CSI, and
#: turns the direction of letters around.
EVIL = "x\x1b[2J\x1b]0;owned\x07\nfake line\r\x9b31m\u202eabc\u2028"
#: as it is shown, computed manually
SHOWN = r"x\x1b[2J\x1b]0;owned\x07\nfake line\r\x9b31m\u202eabc\u2028"
#: what may act on a terminal, but for the end of a line
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def test_each_control_character_is_written_out() -> None:
    """All of C0, DEL and C1; letters of any script and emoji stay."""
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        assert not ACTS.search(visible(chr(code)))
        assert "\n" not in visible(chr(code))
    assert visible(EVIL) == SHOWN
    assert visible("Zürich 東京 🛫 [bold]") == "Zürich 東京 🛫 [bold]"
    assert visible("caf\udce9") == r"caf\udce9"
    assert visible("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert escape("[bold]\x1b[0m") == r"\[bold]\x1b[0m"


@pytest.mark.parametrize("text", [EVIL, "caf\udce9", "\x9b", "plain ü"])
def test_json_stays_json_and_says_the_same(text: str) -> None:
    """Read back, it is what was written; as bytes, it holds nothing that acts."""
    for indent in (None, 2):
        written = json_text({text: [text]}, indent=indent)
        assert json.loads(written) == {text: [text]}
        assert not ACTS.search(written)
        written.encode()


def test_an_unescaped_string_does_not_act_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Printed alone, and in the cells of a table."""
    terminal.Console(width=80).print("\x1b[2Jx\x9b2J")
    console().print("\x1b]0;t\x07")
    shown = Rows(None, "a", "b", text="b")
    shown.add("1", "\x1b[2J")
    shown.print()
    assert not ACTS.search(capsys.readouterr().out)


def test_a_number_below_has_the_noun_of_its_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has no plural; without rows there is the title alone."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = Rows("tables", "table", "files", "small", "reason", text="reason")
    shown.print()
    assert capsys.readouterr().out == "tables\n"
    monkeypatch.setenv("COLUMNS", "20")
    shown.add("a", "1", "1", "")
    shown.add("b", "12", "0", "")
    shown.print()
    assert capsys.readouterr().out == "tables\na  1 file  1 small\nb  12 files  0 small\n"


@pytest.mark.parametrize("width", ["", "20"], ids=["table", "below"])
def test_a_name_between_colons_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    """Rich would print ``:b:`` and ``:100:`` as emoji."""
    monkeypatch.setenv("COLUMNS", width)
    console().print(escape("eu:b:01"))
    shown = Rows(None, "partition", "reason", text="reason")
    shown.add("eu:x:02", "waits for us:100:a")
    shown.print()
    printed = " ".join(capsys.readouterr().out.split())
    for name in ("eu:b:01", "eu:x:02", "us:100:a"):
        assert name in printed


@pytest.mark.parametrize(
    "name",
    [
        "C:\\in\\",
        "a\\[0",
        "[red]",
        "\\[red]",
        "[red\\\\\\",
        "[/]",
        "\\\\[/]",
        "[",
        "[[a]",
        "\\",
        "[red",
    ],
)
def test_brackets_and_backslashes_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Alone, and with markup or a bracket after them, none of which may end it or become a tag."""
    for text in ("{}", "[dim]{}[/] x", "x {}[bold]y[/]", "{}]"):
        console().print(text.format(escape(name)))
    printed = capsys.readouterr().out.splitlines()
    assert printed == [name, f"{name} x", f"x {name}y", f"{name}]"]


def test_an_id_of_digits_is_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no room for a header, numbers have the name of their column."""
    monkeypatch.setenv("COLUMNS", "40")
    shown = Rows(None, "run", "number", "files", "held by", text="held by")
    shown.add("23488054", "7", "12", "a limit of another group of runs")
    shown.print()
    assert capsys.readouterr().out.splitlines()[0] == "23488054  7 number  12 files"


def evil_world(world: Callable[[Sequence[Schedule]], World]) -> World:
    """A job whose asset, partition, metadata, run and reason come from another person."""
    asset = f"raw/{EVIL}"
    made = world([Schedule(name="s", target="j", trigger=on.partitions(asset), enabled=True)])
    made.feed.arrive(asset, EVIL)
    made.tick(5)
    made.dagster.end("run-1", tags={"x": EVIL})
    made.feed.arrive(asset, EVIL)
    made.tick(10)
    return made


COMMANDS = [
    ("events", "tail"),
    ("jobs", "list"),
    ("jobs", "explain", "s"),
    ("jobs", "show", "JOB"),
    ("jobs", "explain", "JOB"),
    ("schedules", "list"),
    ("schedules", "show", "s"),
    ("schedules", "show", EVIL),
    ("jobs", "show", EVIL),
    ("events", "tail", "--location", EVIL),
    ("feed", "restart", EVIL),
    ("consumers", "show", EVIL),
    ("tasks", "show", EVIL),
]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_lets_it_act(
    command: tuple[str, ...],
    columns: str,
    world: Callable[[Sequence[Schedule]], World],
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For people and as JSON; the line in the partition key begins no line."""
    evil_world(world)
    jobs = json.loads(arctic("jobs", "list", "--json").out)["jobs"]
    monkeypatch.setenv("COLUMNS", columns)
    words = [jobs[0]["id"] if word == "JOB" else word for word in command]
    result = arctic(*words)
    assert not ACTS.search(result.out + result.err.replace("\t", ""))
    own = result.out if EVIL not in command else ""
    assert not any(line.startswith("fake line") for line in own.splitlines())
    as_json = arctic(*words, "--json")
    assert not ACTS.search(as_json.out)
    if as_json.code == 0:
        json.loads(as_json.out)


def test_the_control_shows_what_was_wrong(
    world: Callable[[Sequence[Schedule]], World],
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without this file's work the table of events would let the sequences through."""
    evil_world(world)
    monkeypatch.setattr(terminal, "visible", lambda text, *, lines=False: text)
    assert ACTS.search(arctic("events", "tail").out)
