"""Runs as a table that several processes share: one run key, one run, which at once succeeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.run_tags import JOB_TAG, RUN_KEY_TAG
from arctic_orchestration.schedules.launch_requests import SCHEDULE_TAG, LaunchRequest

metadata = sa.MetaData()
runs = sa.Table(
    "proof_runs",
    metadata,
    sa.Column("run_key", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, nullable=False, index=True),
    sa.Column("attempt", sa.Text, nullable=False),
    sa.Column("schedule", sa.Text, nullable=False),
)


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """A run that succeeded in the moment it was submitted."""

    run_id: str
    tags: Mapping[str, str]
    status: RunStatus = RunStatus.SUCCESS
    started: bool = True
    ended_at: datetime | None = None
    submitted: bool = True


class RunTable:
    """Stands for Dagster's run storage."""

    retries_enabled = False

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def submit(self, requests: Sequence[LaunchRequest]) -> int:
        """Makes a run of each request whose run key is new; returns how many."""
        made = 0
        with self._engine.begin() as tx:
            for request in requests:
                values = {
                    "run_key": request.run_key,
                    "job_id": request.job_id,
                    "attempt": request.run_key.rpartition("-")[2],
                    "schedule": request.tags[SCHEDULE_TAG],
                }
                insert = sa.dialects.postgresql.insert(runs).values(values)
                made += tx.execute(insert.on_conflict_do_nothing()).rowcount
        return made

    def run_statuses(self, run_ids: Sequence[str]) -> dict[str, TableRun]:
        return {run.run_id: run for run in self._found(runs.c.run_key, run_ids)}

    def runs_by_tag(self, key: str, values: Sequence[str]) -> dict[str, list[TableRun]]:
        assert key == JOB_TAG
        found: dict[str, list[TableRun]] = {}
        for run in self._found(runs.c.job_id, values):
            found.setdefault(run.tags[JOB_TAG], []).append(run)
        return found

    def _found(self, column: sa.Column[str], values: Sequence[str]) -> list[TableRun]:
        array = sa.dialects.postgresql.ARRAY(sa.Text)
        query = sa.select(runs).where(column == sa.func.any(sa.cast(list(values), array)))
        with self._engine.begin() as tx:
            return [
                TableRun(run_id=row.run_key, tags={JOB_TAG: row.job_id, RUN_KEY_TAG: row.run_key})
                for row in tx.execute(query)
            ]
