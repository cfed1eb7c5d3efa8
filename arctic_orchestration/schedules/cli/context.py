"""Opens the state database for a command, at one location."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from arctic_orchestration.console.state import opened_state
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.schedules.dagster.catch_up import Change
from arctic_orchestration.schedules.dagster.catch_up import changing as caught_up
from arctic_orchestration.schedules.location_state import State


@contextmanager
def opened(location: str | None) -> Iterator[State]:
    """Opens the state at a location, in the database of the environment's settings.

    Errors:
        ConfigurationError: there is no database yet, or its schema is another.
        InvalidInput: a setting is invalid.
    """
    with opened_state() as (settings, database):
        yield State(database, settings.cluster, location)


@contextmanager
def changing(state: State, now: datetime, *, ticks: bool = False) -> Iterator[Change]:
    """Begins the transaction of a change; prints a note if Dagster's log cannot be read."""
    notes: list[str] = []
    with caught_up(state, now, ticks=ticks, note=notes.append) as change:
        yield change
    for text in notes:
        Console(stderr=True, highlight=False).print(f"[yellow]note:[/] {escape(text)}")
