"""The output of commands: tables and colors for people, one JSON document for programs."""

import os
import re
import sys
from datetime import datetime
from typing import Any

import typer
from rich.cells import cell_len
from rich.markup import render
from rich.padding import Padding
from rich.table import Table

from arctic_orchestration.console.terminal import Console, escape, json_text, visible
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import counted as counted
from arctic_orchestration.quantities import seconds as seconds
from arctic_orchestration.quantities import span as span

#: The width for output to programs, which need whole lines.
_UNBROKEN = 10_000
#: Text in a narrower column is harder to read than text on a line of its own.
_LEAST_ROOM = 30
#: columns of ids, which are no numbers even if all of their characters are digits
_IDS = frozenset({"run", "job", "task", "id"})
#: numbers, spans such as 1m18s, moments
_BARE = re.compile(r"[0-9]+|([0-9]{1,5}(d|h|m|s|ms))+|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]+Z?")

COLORS = {
    "enabled": "green",
    "suspended": "yellow",
    "shadowed": "cyan",
    "waiting_trigger": "cyan",
    "waiting_constraints": "yellow",
    "launching": "blue",
    "launched": "blue",
    "succeeded": "green",
    "failed": "red",
    "canceled": "magenta",
    "discarded": "magenta",
    "waiting": "cyan",
    "late": "yellow",
    "running": "blue",
    "done": "green",
    "admit": "green",
    "hold": "yellow",
    "cancel": "red",
    "exact": "green",
    "approximate": "yellow",
    "not possible": "red",
}


def console(*, stderr: bool = False) -> Console:
    """Returns the console of a command; outside of a terminal it breaks no lines."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty() or os.environ.get("COLUMNS"):
        return Console(highlight=False, stderr=stderr)
    return Console(highlight=False, width=_UNBROKEN, stderr=stderr)


class Rows:
    """A table in which one column is text for people, of any length.

    If the others leave it too little room, it is printed below each of their lines.
    """

    def __init__(self, title: str | None, *columns: str, text: str) -> None:
        self._title = title
        self._columns = columns
        self._text = columns.index(text)
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Adds a row; its cells are markup."""
        self._rows.append(cells)

    def print(self, *, header: bool = True, stderr: bool = False, empty: str | None = None) -> None:
        """Prints all rows, below the names of the columns.

        Without rows, only ``empty``, or the title.
        """
        out = console(stderr=stderr)
        if empty is not None and not self._rows:
            out.print(empty)
            return
        if self._title:
            out.print(f"[bold]{self._title}[/]")
        if not self._rows:
            return
        others = [n for n in range(len(self._columns)) if n != self._text]
        widths = {
            n: max(
                cell_len(render(row[n], emoji=False).plain) for row in (self._columns, *self._rows)
            )
            for n in others
        }
        # A column without any value is left out.
        others = [n for n in others if any(row[n] for row in self._rows)]
        room = out.width - sum(widths[n] + 2 for n in others)
        if room < _LEAST_ROOM:
            self._print_below(out, others)
            return
        shown = Table(box=None, padding=(0, 2, 0, 0), show_header=header)
        kept = sorted([*others, self._text])
        for n in kept:
            shown.add_column(
                self._columns[n],
                header_style="dim",
                overflow="fold",
                no_wrap=n != self._text,
                ratio=1 if n == self._text and out.is_terminal else None,
            )
        for row in self._rows:
            shown.add_row(*(row[n] for n in kept))
        out.print(shown)

    def _print_below(self, out: Console, others: list[int]) -> None:
        for row in self._rows:
            out.print("  ".join(filter(None, (self._named(n, row[n]) for n in others))))
            if row[self._text]:
                out.print(Padding(row[self._text], (0, 0, 0, 4)))

    def _named(self, column: int, cell: str) -> str:
        """Adds the column's name to a number, a span or a moment, which needs it."""
        name, plain = self._columns[column], render(cell, emoji=False).plain
        if name in _IDS:
            return cell
        if column and plain.isdecimal():
            return f"{cell} {name.removesuffix('s') if plain == '1' else name}"
        return f"{name} {cell}" if name and _BARE.fullmatch(plain) else cell


def print_json(document: Any) -> None:
    """Prints a document for programs."""
    typer.echo(json_text(document, indent=2))


def moment(at: datetime | None) -> str:
    """Returns the moment in UTC, to the second; empty if there is none."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%SZ}"


def short_id(job_id: str) -> str:
    """Returns the part of a job's id that distinguishes it, in a terminal; elsewhere all of it."""
    return job_id[-8:] if console().is_terminal else job_id


def colored(word: str) -> str:
    """Returns a state or status as markup."""
    color = COLORS.get(word)
    return f"[{color}]{word}[/]" if color else escape(word)


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Asks the person to confirm a change.

    Errors:
        InvalidInput: there is no terminal for a confirmation, and ``--yes`` was not given.
        typer.Exit: with code 1; the person does not agree.
    """
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        asked = "--json" if as_json else "no terminal"
        raise InvalidInput("confirmation", asked, "--yes; nothing was changed")
    if not typer.confirm(visible(question)):
        typer.echo("nothing was changed")
        raise typer.Exit(1)
