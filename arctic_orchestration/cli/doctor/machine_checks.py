"""The checks of the machine in ``arctic doctor``: its environment, its clock and its disks."""

import os
import shutil
from contextlib import closing
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.findings import Finding, bad, good, warning
from arctic_orchestration.console.state import sqlite_file
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.quantities import format_bytes
from arctic_orchestration.settings import VARIABLES, Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

#: Leases use the database's time, cron ticks and timeouts that of the process.
_SKEW = timedelta(seconds=5)
#: with less free space, databases and logs soon fail to write
_FULL, _NEARLY = 100_000_000, 1_000_000_000


def clock() -> list[Finding]:
    """Checks that this process and the state database agree on the time."""
    settings = Settings.from_environment()
    if sqlite_file(settings.database_url) is not None:
        # SQLite uses the clock of the process.
        return []
    try:
        with closing(Database(settings.database_url)) as database, database.read() as tx:
            before = utc_now()
            theirs = database_time(tx)
            after = utc_now()
    except ArcticError:
        # Another check reports it.
        return []
    # The answer was made at some moment between the two.
    off = max(before - theirs, theirs - after, timedelta(0))
    ahead = theirs < before
    if off <= _SKEW:
        return [good("clock", "this process and the state database agree")]
    found = (
        f"this process is {off.total_seconds():.0f} s {'ahead of' if ahead else 'behind'} the "
        "state database: schedules fire at the wrong time"
    )
    return [bad("clock", found, "set the clocks of both machines, for example by NTP")]


def environment() -> list[Finding]:
    """Finds misspelled names of variables. Other ``ARCTIC_`` names may be those of a deployment."""
    findings = []
    for name in sorted(os.environ):
        close = get_close_matches(name, VARIABLES, n=1, cutoff=0.88)
        if close and name not in VARIABLES:
            found = f"{name} is set, and nothing reads it"
            advice = f"if {close[0]} is meant, rename it"
            findings.append(warning("environment", found, advice))
    return findings


def disk() -> list[Finding]:
    """Checks the free space where Dagster and, on SQLite, the state database write."""
    file = sqlite_file(Settings.from_environment().database_url)
    folders = [Path(home) for home in [os.environ.get("DAGSTER_HOME")] if home]
    folders += [file.absolute().parent] if file is not None else []
    # By device: two folders on one disk are one finding.
    disks = {folder.stat().st_dev: folder for folder in folders if folder.is_dir()}
    return [_of_disk(folder) for folder in disks.values()]


def _of_disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    found = f"{format_bytes(free)} free at {folder}"
    if free < _FULL:
        found += ": writes fail when it is full"
        return bad("disk", found, "make space on that disk")
    if free < _NEARLY:
        return warning("disk", found, "make space on that disk")
    return good("disk", found)
