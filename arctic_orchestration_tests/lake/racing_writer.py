"""Processes that write to a table while another one merges its files.

::

    with racing_writers(settings.lake, "lake.replaced", 2) as (one, other):
        one.does("append", [(1, "JFK")])
        other.begins("delete", 1)      # does not wait
        other.ends()

Each change is made on the condition that the head is the one that was looked at; another writer
that was first leads to another look. So whatever is lost was lost by another writer.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from arctic_orchestration.lake import open_catalog
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.lake.delete_writer import (
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.reference_merge import Row, arrow, kept_places
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

#: A table with this does not try again by itself.
NO_RETRIES = {"commit.retry.num-retries": "0"}


class RacingWriter:
    """One process that changes the table on request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def does(self, what: str, *arguments: Any) -> None:
        """Returns when the change is in the table."""
        self.begins(what, *arguments)
        self.ends()

    def begins(self, what: str, *arguments: Any) -> None:
        self._connection.send((what, arguments))

    def has_answered(self) -> bool:
        """Whether `ends` would return at once."""
        return self._connection.poll()

    def ends(self) -> None:
        if not self._connection.poll(PATIENCE_SECONDS):
            raise AssertionError(f"no answer in {PATIENCE_SECONDS} s")
        answer = self._connection.recv()
        assert answer == "done", answer


@contextmanager
def racing_writers(lake: Path, table: str, count: int) -> Iterator[Sequence[RacingWriter]]:
    """Starts processes; they are ended at the end."""
    processes = forkserver()
    with ExitStack() as stack:
        writers = []
        for _ in range(count):
            here, there = processes.Pipe()
            process = processes.Process(target=_serve, args=(there, lake, table))
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            writers.append(RacingWriter(here))
        for writer in writers:
            writer.ends()
        yield writers


def _serve(connection: Connection, lake: Path, name: str) -> None:
    end_with_the_parent()
    # The lake may have a catalog in a file of pyiceberg's.
    os.environ["PYICEBERG_HOME"] = str(lake)
    catalog = open_catalog(Settings.from_environment({"ARCTIC_LAKE": str(lake)}))
    # The races on it are set up before the table is made, too.
    connection.send("done")
    while True:
        what, arguments = connection.recv()
        try:
            _CHANGES[what](catalog.load_table(name), *arguments)
        except Exception as error:
            connection.send(repr(error))
        else:
            connection.send("done")


def append(table: Table, rows: Sequence[Row]) -> None:
    """Adds one file a row."""
    for row in rows:
        while True:
            try:
                table.refresh().append(arrow([row]))
                break
            except CommitFailedException:
                continue


def overwrite(table: Table, number: int, rows: Sequence[Row]) -> None:
    """Puts rows in the place of those with an id, by writing their files again."""
    while True:
        try:
            table.refresh().overwrite(arrow(rows), overwrite_filter=f"id == {number}")
            return
        except CommitFailedException:
            continue


def delete(table: Table, *numbers: int) -> None:
    """Deletes the rows with the ids, by their positions, one snapshot each."""
    for number in numbers:
        while True:
            places = {
                file.path: found
                for file in live_files(table.refresh()).files
                if (found := [at for at, row in kept_places(table, file) if row[0] == number])
            }
            try:
                add_position_deletes(table, places)
                break
            except (CommitFailedException, KeyError):
                # A file that was looked at is gone by now.
                continue


def delete_by_value(table: Table, *numbers: int) -> None:
    """Deletes the rows with the ids, by an equality delete, one snapshot each."""
    for number in numbers:
        while True:
            try:
                add_equality_deletes(table, pa.table({"id": [number]}), ["id"])
                break
            except CommitFailedException:
                continue


def mixed(table: Table, who: int, times: int) -> None:
    """Appends two rows at a time, deletes one of them and overwrites the other, again and again.

    What is left: of each time, the row that took the other's place.
    """
    for time in range(times):
        first = who * 1_000_000 + time * 10
        append(table, [(first, "JFK"), (first + 1, "JFK")])
        delete(table, first)
        overwrite(table, first + 1, [(first + 2, "JFK")])


def left_by_mixed(who: int, times: int) -> list[Row]:
    return [(who * 1_000_000 + time * 10 + 2, "JFK") for time in range(times)]


_CHANGES: dict[str, Callable[..., Any]] = {
    "append": append,
    "overwrite": overwrite,
    "delete": delete,
    "delete_by_value": delete_by_value,
    "mixed": mixed,
}
