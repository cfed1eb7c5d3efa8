"""A feed and runs in tables, for several dispatchers of one location; their time is given."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from arctic_orchestration.event_log.arrival_checks import ArrivalChecks
from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.event_log.feed import Batch, FeedMode, Position
from arctic_orchestration.run_tags import JOB_TAG, RUN_KEY_TAG
from arctic_orchestration.schedules.launch_requests import SCHEDULE_TAG, LaunchRequest
from arctic_orchestration.state.dialect import UtcTime

metadata = sa.MetaData()
feed = sa.Table(
    "proof_feed",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("event", sa.Text, nullable=False),
)
runs = sa.Table(
    "proof_timed_runs",
    metadata,
    sa.Column("run_key", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, nullable=False, index=True),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),
    sa.Column("dispatcher", sa.Integer, nullable=False),
    sa.Column("begun_at", UtcTime, nullable=False),
    sa.Column("ended_at", UtcTime),
)


@dataclass(frozen=True, kw_only=True)
class TimedRun:
    """A row of the table of runs, as the engine looks it up."""

    run_id: str
    job: str
    tags: Mapping[str, str]
    begun_at: datetime
    ended_at: datetime | None
    started: bool = True
    submitted: bool = True

    @property
    def status(self) -> RunStatus:
        return RunStatus.STARTED if self.ended_at is None else RunStatus.SUCCESS


class SharedDagster:
    """Stands for Dagster's storages: what one process writes, all of them read.

    Writers take turns, so that ids become visible in their order.
    """

    retries_enabled = False
    mode = FeedMode.EXACT
    mode_reason = "its writers take turns"
    storage_id = "proof"

    def __init__(self, engine: sa.Engine, *, location: str, dispatcher: int) -> None:
        self._engine = engine
        self._location = location
        self._dispatcher = dispatcher

    def read(self, position: Position | None, limit: int) -> Batch:
        read = int(position.state["read"]) if position else 0
        query = sa.select(feed).where(feed.c.id > read).order_by(feed.c.id).limit(limit)
        with self._engine.begin() as tx:
            rows = tx.execute(query).all()
        return Batch(
            events=[Event.from_json(json.loads(row.event)) for row in rows],
            position=Position({"read": rows[-1].id if rows else read}),
            more=len(rows) == limit,
        )

    def end(self) -> Position:
        with self._engine.begin() as tx:
            newest = tx.execute(sa.select(sa.func.max(feed.c.id))).scalar()
        return Position({"read": newest or 0})

    # Nothing is known of arrivals beyond their events.

    def backfills_of(self, run_ids: Iterable[str]) -> dict[str, str]:
        return {}

    def arrived(
        self, asset: str, partitions: Collection[str], position: Position | None
    ) -> set[str]:
        return set()

    def checks_of(self, arrivals: Sequence[Event]) -> dict[int, ArrivalChecks]:
        return {event.storage_id: ArrivalChecks() for event in arrivals}

    def changed(self, arrivals: Sequence[Event]) -> set[int]:
        return {event.storage_id for event in arrivals}

    def arrive(self, asset: str, partition: str, now: datetime) -> None:
        """A partition arrives."""
        arrival = Event(kind=EventKind.PARTITION, subject=asset, at=now, partition=partition)
        with self._alone() as tx:
            self._report(tx, arrival)

    def submit(self, requests: Sequence[LaunchRequest], now: datetime) -> None:
        """Begins a run of each request whose run key is new."""
        for request in requests:
            tags = {**request.tags, RUN_KEY_TAG: request.run_key}
            values = {
                "run_key": request.run_key,
                "job_id": request.job_id,
                "job": request.target.job,
                "tags": json.dumps(tags),
                "dispatcher": self._dispatcher,
                "begun_at": now,
            }
            with self._alone() as tx:
                new = insert(runs).values(values).on_conflict_do_nothing().returning(runs)
                for row in tx.execute(new):
                    self._report(tx, self._news_of(_run(row), now))

    def finish(self, begun_before: datetime, now: datetime) -> None:
        """Ends the runs that this dispatcher began, up to a moment."""
        mine = (runs.c.dispatcher == self._dispatcher) & runs.c.ended_at.is_(None)
        due = sa.update(runs).where(mine, runs.c.begun_at <= begun_before)
        with self._alone() as tx:
            for row in tx.execute(due.values(ended_at=now).returning(runs)):
                self._report(tx, self._news_of(_run(row), now))

    def run_statuses(self, run_ids: Sequence[str]) -> dict[str, TimedRun]:
        return {run.run_id: run for run in self.found(runs.c.run_key.in_(run_ids))}

    def runs_by_tag(self, key: str, values: Sequence[str]) -> dict[str, list[TimedRun]]:
        assert key == JOB_TAG
        found: dict[str, list[TimedRun]] = {}
        for run in self.found(runs.c.job_id.in_(values)):
            found.setdefault(run.tags[JOB_TAG], []).append(run)
        return found

    def found(self, *where: sa.ColumnElement[bool]) -> list[TimedRun]:
        """The runs for which the conditions hold, in the order in which they began."""
        query = sa.select(runs).where(*where).order_by(runs.c.begun_at, runs.c.run_key)
        with self._engine.begin() as tx:
            return [_run(row) for row in tx.execute(query)]

    @contextmanager
    def _alone(self) -> Iterator[sa.Connection]:
        with self._engine.begin() as tx:
            tx.execute(sa.text("lock table proof_feed in exclusive mode"))
            yield tx

    def _news_of(self, run: TimedRun, now: datetime) -> Event:
        return Event(
            kind=EventKind.RUN,
            subject=run.job,
            at=now,
            run_id=run.run_id,
            status=run.status,
            location=self._location,
            tags=run.tags,
            started=True,
        )

    @staticmethod
    def _report(tx: sa.Connection, event: Event) -> None:
        tx.execute(sa.insert(feed).values(event=json.dumps(event.to_json())))


def schedule_of(run: TimedRun) -> str:
    """The name of the schedule that requested a run."""
    return run.tags[SCHEDULE_TAG]


def _run(row: Any) -> TimedRun:
    return TimedRun(
        run_id=row.run_key,
        job=row.job,
        tags=json.loads(row.tags),
        begun_at=row.begun_at,
        ended_at=row.ended_at,
    )
