"""Runs in Dagster's run storage, read in bulk."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from dagster import AssetKey, DagsterRun, deserialize_value

from arctic_orchestration.event_log.event import RunStatus

_COLUMNS = "r.run_id, r.pipeline_name, r.status, r.run_body, r.start_time, r.end_time"

#: Dagster's statuses; those without an event of their own count as the nearest one.
_STATUS = {
    "QUEUED": RunStatus.QUEUED,
    "NOT_STARTED": RunStatus.QUEUED,
    "MANAGED": RunStatus.QUEUED,
    "STARTING": RunStatus.STARTING,
    "STARTED": RunStatus.STARTED,
    "SUSPENDED": RunStatus.STARTED,
    "CANCELING": RunStatus.STARTED,
    "SUCCESS": RunStatus.SUCCESS,
    "FAILURE": RunStatus.FAILURE,
    "CANCELED": RunStatus.CANCELED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """One run.

    Attributes:
        run_id: Dagster's id.
        status: its status; canceling counts as started, not started as queued.
        job: the name of its job.
        location: its code location, if its record names one.
        tags: its tags.
        started: it got beyond the queue: its record has a start time.
        started_at: when it started, aware UTC.
        ended_at: when it ended, aware UTC.
        assets: the selected assets, if there was a selection.
        dagster_status: Dagster's own status.
    """

    run_id: str
    status: RunStatus
    job: str
    location: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    started: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    assets: tuple[str, ...] = ()
    dagster_status: str = ""

    @property
    def submitted(self) -> bool:
        """Whether it was handed to the run coordinator; before that only its tick goes on."""
        return self.dagster_status != "NOT_STARTED"


class BulkSql(Protocol):
    """A database that runs statements about many values at once."""

    placeholder: str

    def rows_in(self, statement: str, values: Any, *before: Any) -> list[tuple[Any, ...]]:
        """Returns rows of a statement whose ``{in}`` stands for a membership test in ``values``."""


def runs_by_id(sql: BulkSql, run_ids: Iterable[str]) -> dict[str, RunView]:
    """Returns the runs with these ids; missing runs are left out."""
    values = sorted(set(run_ids))
    if not values:
        return {}
    rows = sql.rows_in(f"select {_COLUMNS} from runs r where r.run_id {{in}}", values)
    return {row[0]: _view(row) for row in rows}


def runs_by_tag(sql: BulkSql, key: str, values: Iterable[str]) -> dict[str, tuple[RunView, ...]]:
    """Returns the runs whose tag ``key`` has one of these values, by value, oldest first."""
    wanted = sorted(set(values))
    if not wanted:
        return {}
    rows = sql.rows_in(
        f"select t.value, {_COLUMNS} from run_tags t join runs r on r.run_id = t.run_id "
        f"where t.key = {sql.placeholder} and t.value {{in}} order by r.id",
        wanted,
        key,
    )
    found: dict[str, list[RunView]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(_view(row[1:]))
    return {value: tuple(views) for value, views in found.items()}


def _view(row: tuple[Any, ...]) -> RunView:
    run_id, job, status, body, started, ended = row
    try:
        tags, location, assets = _from_body(body)
    except Exception:
        # Another form, or a broken one: Dagster's own code decides.
        tags, location, assets = _by_dagster(body)
    return RunView(
        run_id=run_id,
        status=_STATUS.get(status, RunStatus.STARTED),
        job=job or "",
        location=location,
        tags=tags,
        started=started is not None,
        started_at=_moment(started),
        ended_at=_moment(ended),
        assets=assets,
        dagster_status=status,
    )


def _from_body(body: str) -> tuple[dict[str, str], str | None, tuple[str, ...]]:
    document = json.loads(body)
    origin = document["external_pipeline_origin"]
    location = None
    if origin is not None:
        repository = origin["external_repository_origin"]
        location = repository["repository_location_origin"]["location_name"]
    selection = document["asset_selection"]
    assets: list[str] = []
    if selection is not None:
        items = selection["__set__"] if "__set__" in selection else selection["__frozenset__"]
        assets = sorted(AssetKey(item["path"]).to_user_string() for item in items)
    return dict(document["tags"]), location, tuple(assets)


def _by_dagster(body: str) -> tuple[dict[str, str], str | None, tuple[str, ...]]:
    try:
        run = deserialize_value(body, DagsterRun)
        origin = run.remote_job_origin
        location = origin.repository_origin.code_location_origin.location_name if origin else None
        assets = sorted(key.to_user_string() for key in run.asset_selection or ())
        return dict(run.tags), location, tuple(assets)
    except Exception:
        # A run with a newer or broken record is still a run; its columns are readable.
        return {}, None, ()


def _moment(seconds: float | None) -> datetime | None:
    """Returns the moment in a column; one outside the calendar counts as the beginning of time."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None
    except (TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
