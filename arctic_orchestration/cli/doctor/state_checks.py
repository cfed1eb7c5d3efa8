"""The checks of the state database and its use, in ``arctic doctor``."""

import shlex
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa

from arctic_orchestration import private_files
from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.display import counted, moment
from arctic_orchestration.console.findings import Finding, good, some, warning
from arctic_orchestration.console.state import read_state, sqlite_file
from arctic_orchestration.consumers.store import IS_THERE
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.freshness import definitions
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.mismatches import remarks_of_location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_cycles import stored_cycles
from arctic_orchestration.schedules.views.deferred import deferred
from arctic_orchestration.schedules.views.locations import list_locations
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.compaction_tables import compaction_tables
from arctic_orchestration.state.consumer_tables import consumers
from arctic_orchestration.state.freshness_tables import task_definitions, tasks
from arctic_orchestration.state.tables import schedules
from arctic_orchestration.waits import command


class Use(StrEnum):
    """The features that can be used, each with or without the others."""

    SCHEDULES = "schedules"
    TASKS = "tasks"
    CONSUMERS = "consumers"
    #: the only one that works without Dagster
    COMPACTION = "compaction"


_ROWS = (
    (Use.SCHEDULES, sa.select(schedules)),
    (Use.TASKS, sa.select(task_definitions)),
    (Use.TASKS, sa.select(tasks)),
    (Use.CONSUMERS, sa.select(consumers).where(IS_THERE)),
    (Use.COMPACTION, sa.select(compaction_tables)),
)


#: the file of SQLite itself, and the files it makes beside it
_BESIDE = ("", "-wal", "-shm", "-journal")


def permissions() -> list[Finding]:
    """Checks whether users besides its owner may read the state database, if it is a file."""
    file = sqlite_file(Settings.from_environment().database_url)
    if file is None or not file.exists():
        return []
    check, paths = "permissions", [Path(f"{file}{suffix}") for suffix in _BESIDE]
    exposed = private_files.exposed(paths)
    if not exposed:
        return [good(check, f"only its owner can read {file}")]
    names = " ".join(shlex.quote(str(path)) for path in exposed)
    return [
        warning(
            check,
            f"others can read or write {names}, which hold run configuration and metadata",
            f"chmod 600 {names}",
        )
    ]


def locations() -> list[Finding]:
    """Finds locations of the cluster whose dispatchers do not tick."""
    with read_state() as state:
        if state is None:
            return []
        tx, cluster = state
        found = list_locations(tx, cluster, utc_now())
        of_schedules = [
            finding
            for listed in found
            for finding in _schedules(tx, location_by_name(tx, cluster, listed.name))
        ]
    return of_schedules + [
        warning(
            f"location {listed.name}",
            f"last tick {moment(listed.ticked_at) or 'never'}; "
            f"{counted(listed.schedules, 'schedule')}, "
            f"{counted(listed.jobs_waiting, 'job')} waiting",
            "start its dispatcher; if it was renamed: "
            f"{command('locations', 'rename', listed.name, 'NEW')}; if it is gone: "
            f"{command('locations', 'delete', listed.name)}",
        )
        for listed in found
        if not listed.alive
    ]


def _schedules(tx: sa.Connection, location: Location) -> Iterator[Finding]:
    """Finds schedules of a location that can never fire, or never stop, and unmatched arrivals."""
    store = ScheduleStore()
    if remarks := remarks_of_location(tx, store, location):
        yield warning(
            f"schedules of {location.name}",
            some([text for _, text in remarks]),
            "fix the schedule or the code, unless it is about a code location without "
            "Arctic(...), which is not known here",
        )
    if endless := [cycle for cycle in stored_cycles(tx, store, location) if cycle.endless]:
        yield warning(
            f"cycles of {location.name}",
            some([str(cycle) for cycle in endless]),
            "change a trigger, or add a minimum_interval, rate, delay or window",
        )
    unmatched, total = deferred(tx, location, limit=1)
    if unmatched:
        yield warning(
            f"unmatched arrivals of {location.name}",
            f"{counted(total, 'arrival')} without a target partition, the newest {unmatched[0]}",
            f"see: {command('events', 'unmatched', options=('--location', location.name))}",
        )


def sends_notices() -> bool:
    """Returns whether a code location ticks, and so sends notices; true if that is unknown."""
    with read_state() as state:
        if state is None:
            return True
        (tx, cluster), now = state, utc_now()
        alive = any(one.alive for one in list_locations(tx, cluster, now))
        return alive or cluster in {place for place, _ in definitions.live_locations(tx, now)}


def uses() -> frozenset[Use]:
    """Returns the features with rows in the state database; empty if it cannot be read."""
    try:
        with read_state() as state:
            if state is None:
                return frozenset()
            known = sa.select(*(sa.exists(rows) for _, rows in _ROWS))
            found = state[0].execute(known).one()
    except ArcticError:
        # Another check reports it.
        return frozenset()
    return frozenset(use for (use, _), has in zip(_ROWS, found, strict=True) if has)
