"""Reads Dagster's run queue from its run storage: queued, active and ended runs.

Read at each pass of the daemon, so it must be cheap: the records of runs are cached, and read again
only when Dagster's ``update_timestamp`` of a run changes. So ten thousand queued runs cost one
statement; on SQLite none while the file has no new writes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from dagster import DagsterInstance

from arctic_orchestration.event_log.dagster_log import run_sql_of
from arctic_orchestration.event_log.runs import RunView, runs_by_id
from arctic_orchestration.run_queue.tags import PRIORITY, QUEUE

QUEUED = "QUEUED"
#: The active statuses of Dagster's own limits.
ACTIVE = ("STARTING", "STARTED", "CANCELING")
ENDED = ("SUCCESS", "FAILURE", "CANCELED")

#: Dagster writes the time of every change of a run; sorted in Python, and only after a change.
_PRESENT = "select id, run_id, update_timestamp from runs where status {in}"
_ENDED_SINCE = (
    "select run_id from runs where update_timestamp > {mark} and end_time > {mark} "
    "and start_time is not null and status {in}"
)
#: A requested level, which no pass has written yet, goes before that of the tags. The keys are no
#: plain columns: SQLite would search all runs of a key for each run, by the index on keys.
_WAITING = f"""
    with requested(run_id, priority) as ({{requested}}),
    tagged as (
        select r.id, r.run_id,
            (select max(t.value) from run_tags t
                where t.run_id = r.run_id and t.key || '' = '{PRIORITY}') as number,
            (select max(t.value) from run_tags t
                where t.run_id = r.run_id and t.key || '' = '{QUEUE}') as queue
        from runs r where r.status = '{QUEUED}'
    ),
    numbered as (
        select t.id, t.run_id, t.queue, coalesce(q.priority, {{number}}) as priority
        from tagged t left join requested q on q.run_id = t.run_id
    ),
    placed as (
        select id, run_id, queue, priority,
            row_number() over (order by priority desc, id) as place
        from numbered
    )
    select id, run_id, priority, place from placed
    where {{conditions}} order by place limit {{limit}}
"""
_COUNTS = "select status, count(*) from runs where status {in} group by status"
_ACTIVE = "select run_id from runs where status {in} order by id"
_QUEUES = (
    "select distinct t.value from run_tags t join runs r on r.run_id = t.run_id "
    f"where t.key || '' = '{QUEUE}' and r.status {{in}}"
)
#: The clocks of hosts differ, and a run's end is committed some time after it happened.
_OVERLAP = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Present:
    """The queued and the active runs, each in the order of creation."""

    queued: Sequence[RunView]
    active: Sequence[RunView]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedRun:
    """A queued run at its place.

    Attributes:
        after: its number and its id in Dagster's storage, after which the next page begins.
        place: its place in the whole queue, from 1.
        run: the run; None: it left the queue just now.
    """

    after: tuple[int, int]
    place: int
    run: RunView | None


class QueuedRuns:
    """Reads one Dagster instance's run queue; caches what it read."""

    def __init__(self, instance: DagsterInstance) -> None:
        """Finds the storage; opens no database.

        Errors:
            ConfigurationError: the storage is neither SQLite nor Postgres.
        """
        self._sql = run_sql_of(instance)
        self._known: dict[str, tuple[Any, RunView]] = {}
        self._rows: list[Any] = []
        self._present = Present(queued=(), active=())
        #: the state of the storage at the last read
        self._version: object = None
        self._returned: set[str] = set()
        self._version_of_ends: object = None
        self._read_until: datetime | None = None

    def present(self) -> Present:
        """Returns the current runs; the same object while nothing changes.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        # Read before the rows: a change in between is then seen the next time.
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
        # A run that was deleted or changed since is returned as last read.
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

    def counts(self) -> tuple[int, int]:
        """Returns how many runs are queued, and how many are active."""
        counts = dict(self._sql.rows_in(_COUNTS, (QUEUED, *ACTIVE)))
        return counts.get(QUEUED, 0), sum(counts.get(status, 0) for status in ACTIVE)

    def active(self) -> Sequence[RunView]:
        """Returns the active runs in the order of creation."""
        ids = [row[0] for row in self._sql.rows_in(_ACTIVE, ACTIVE)]
        views = runs_by_id(self._sql, ids)
        return [views[id] for id in ids if id in views]

    def queue_names(self) -> list[str]:
        """Returns the queues that a queued run waits in, by their tags."""
        return sorted(row[0] for row in self._sql.rows_in(_QUEUES, [QUEUED]))

    def page(
        self,
        requested: Mapping[str, int],
        *,
        after: tuple[int, int] | None,
        queues: Sequence[str] | None,
        limit: int,
    ) -> list[PlacedRun]:
        """Returns queued runs in the order in which Dagster's daemon takes them.

        The storage sorts them: only those of the page are read.

        Args:
            requested: numbers by run that replace those of the tags.
            after: the last run of the page before.
            queues: only runs of these queues; none: all runs.
            limit: at most so many.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        mark = self._sql.placeholder
        values: list[Any] = [value for pair in requested.items() for value in pair]
        pairs = ", ".join([f"({mark}, {mark})"] * len(requested))
        conditions = ["1 = 1"]
        if after is not None:
            conditions.append(f"(priority < {mark} or (priority = {mark} and id > {mark}))")
            values += [after[0], *after]
        if queues is not None:
            table, names = self._sql.table_of(queues)
            conditions.append(f"queue in {table}")
            values.append(names)
        statement = _WAITING.format(
            requested=f"values {pairs}" if pairs else "select run_id, 0 from runs where 1 = 0",
            number=self._sql.whole_number("t.number"),
            conditions=" and ".join(conditions),
            limit=limit,
        )
        with self._sql.session() as run:
            rows = run(statement, values)
        views = runs_by_id(self._sql, [row[1] for row in rows])
        queued = {id: view for id, view in views.items() if view.dagster_status == QUEUED}
        return [
            PlacedRun(after=(priority, id), place=place, run=queued.get(run_id))
            for id, run_id, priority, place in rows
        ]

    def ended_since(self, since: datetime, now: datetime) -> Sequence[RunView]:
        """Returns the started runs that ended after ``since`` and were not returned before.

        After the clock was set back, all that ended after ``since`` are returned again.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        version = self._sql.version()
        if self._read_until is not None and self._read_until > now:
            # The clock was set back: ends of the present would look as if they were read.
            self._read_until, self._version_of_ends, self._returned = None, None, set()
        if version == self._version_of_ends:
            self._read_until = now
            return []
        from_ = since if self._read_until is None else max(since, self._read_until)
        statement = _ENDED_SINCE.replace("{mark}", self._sql.placeholder)
        # The end column is exact and has no index; the other one has an index and may be off.
        ended_after = from_ - _OVERLAP
        before = (self._sql.moment_before(ended_after), ended_after.timestamp())
        rows = self._sql.rows_in(statement, ENDED, *before)
        found = {row[0] for row in rows}
        # Rows of the overlap with the last read were returned then.
        new = runs_by_id(self._sql, found - self._returned)
        self._returned, self._read_until, self._version_of_ends = found, now, version
        return [run for run in new.values() if run.ended_at is None or run.ended_at > since]

    def ids_like(self, part: str) -> list[str]:
        """Returns the ids of queued and active runs that begin with a text, at most three.

        Errors:
            DatabaseUnavailable: Dagster's storage did not answer.
        """
        rows = self._sql.rows_in(_PRESENT, (QUEUED, *ACTIVE))
        return [run_id for _, run_id, _ in sorted(rows) if run_id.startswith(part)][:3]

    def close(self) -> None:
        """Closes the connections."""
        self._sql.close()


_Seen = TypeVar("_Seen")


def kept(
    known: Mapping[str, tuple[RunView, _Seen]],
    runs: Sequence[RunView],
    convert: Callable[[RunView], _Seen],
) -> dict[str, tuple[RunView, _Seen]]:
    """Returns converted runs by id; only changed ones are converted again."""
    seen = {}
    for run in runs:
        before = known.get(run.run_id)
        seen[run.run_id] = (
            before if before is not None and before[0] is run else (run, convert(run))
        )
    return seen
