"""Dagster's run queue as its run storage has it: what waits, what is in progress, what ended.

Read at each pass of the daemon, so it must be cheap: the records of runs are kept, and read again
only when Dagster's ``update_timestamp`` of a run says that it changed. Ten thousand queued runs
cost one statement that way; on SQLite none, as long as nobody has written to the file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dagster import DagsterInstance

from arctic_orchestration.event_log.dagster_log import run_sql_of
from arctic_orchestration.event_log.runs import RunView, runs_by_id

QUEUED = "QUEUED"
#: In progress, as Dagster's own limits count it.
ACTIVE = ("STARTING", "STARTED", "CANCELING")
ENDED = ("SUCCESS", "FAILURE", "CANCELED")

#: With every change of a run Dagster writes when it was; sorted here, and only after a change.
_PRESENT = "select id, run_id, update_timestamp from runs where status {in}"
_ENDED_SINCE = (
    "select run_id from runs where update_timestamp > {mark} and end_time > {mark} "
    "and start_time is not null and status {in}"
)
#: Clocks of hosts differ, and a run's end is committed some time after it happened.
_OVERLAP = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Present:
    """What is in the queue and what is in progress, each in the order of creation."""

    queued: Sequence[RunView]
    active: Sequence[RunView]


class QueuedRuns:
    """Reads one Dagster instance's run queue; keeps what it read for the next time."""

    def __init__(self, instance: DagsterInstance) -> None:
        """Finds the storage; touches no database.

        Errors:
            ConfigurationError: the storage is neither SQLite nor Postgres.
        """
        self._sql = run_sql_of(instance)
        self._known: dict[str, tuple[Any, RunView]] = {}
        self._rows: list[Any] = []
        self._present = Present(queued=(), active=())
        #: of the storage, when what is kept was read
        self._version: object = None
        self._returned: set[str] = set()
        self._version_of_ends: object = None
        self._read_until: datetime | None = None

    def present(self) -> Present:
        """What is there now; the same object as long as nothing changes.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        # Before the rows: what changes in between is then seen the next time.
        version = self._sql.version()
        if version == self._version:
            return self._present
        rows = self._sql.rows_in(_PRESENT, (QUEUED, *ACTIVE))
        if rows == self._rows and len(rows) == len(self._known):
            self._version = version
            return self._present
        known = self._known
        marks = {run_id: mark for _, run_id, mark in sorted(rows)}
        stale = [id for id, mark in marks.items() if id not in known or known[id][0] != mark]
        found = runs_by_id(self._sql, stale) if stale else {}
        # A run that is gone by now, or went on, is seen as it was read last.
        known.update((id, (marks[id], view)) for id, view in found.items())
        self._known = {id: known[id] for id in marks if id in known}
        views = [view for _, view in self._known.values()]
        self._rows = rows
        if len(rows) == len(self._known):
            self._version = version
        self._present = Present(
            queued=[view for view in views if view.dagster_status == QUEUED],
            active=[view for view in views if view.dagster_status in ACTIVE],
        )
        return self._present

    def ended_since(self, since: datetime, now: datetime) -> Sequence[RunView]:
        """The runs that were started, ended after ``since``, and were not returned before.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        version = self._sql.version()
        if version == self._version_of_ends:
            self._read_until = now
            return []
        from_ = since if self._read_until is None else max(since, self._read_until)
        statement = _ENDED_SINCE.replace("{mark}", self._sql.placeholder)
        # The column of the end is right, and has no index; the other has one, and may be off.
        ended_after = from_ - _OVERLAP
        before = (self._sql.moment_before(ended_after), ended_after.timestamp())
        rows = self._sql.rows_in(statement, ENDED, *before)
        found = {row[0] for row in rows}
        # What was there the last time, and is looked at again, was among the rows of that time.
        new = runs_by_id(self._sql, found - self._returned)
        self._returned, self._read_until, self._version_of_ends = found, now, version
        return [run for run in new.values() if run.ended_at is None or run.ended_at > since]

    def run(self, run_id: str) -> RunView | None:
        """One run, as it is now; none: there is no such run.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        return runs_by_id(self._sql, [run_id]).get(run_id)

    def ids_like(self, part: str) -> list[str]:
        """The ids of queued and active runs that begin with a text, at most three.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        rows = self._sql.rows_in(_PRESENT, (QUEUED, *ACTIVE))
        return [run_id for _, run_id, _ in sorted(rows) if run_id.startswith(part)][:3]

    def close(self) -> None:
        """Closes the connections."""
        self._sql.close()
