"""An asset for each declared schedule, so that schedules can be found in Dagster's own UI.

Its metadata are the target, the assets that the schedule listens to, the trigger and the
constraints. It has no place in the lineage: a selection such as ``raw+`` would contain it, and
Dagster refuses jobs with an asset that no run makes. The dispatcher observes it without a run when
the state of the schedule has changed: what its job waits for, which run it became, why it ended
without one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import dagster as dg

from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.schedules.jobs import Job
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.tick_result import TickResult
from arctic_orchestration.schedules.views.schedule_state import (
    ScheduleState,
    ids_of_schedules,
    moved_schedules,
    schedule_state,
)
from arctic_orchestration.schedules.views.texts import one_line
from arctic_orchestration.settings import service_page
from arctic_orchestration.waits import command

#: declared schedules up to which they are shown, unless a location asks for more
SHOWN_BY_DEFAULT = 200
#: the least time between two observations of a schedule, and the most observations of a tick
_EVERY, _AT_ONCE = timedelta(seconds=30), 10
_PREFIX = ("arctic", "schedules")

_Metadata = dict[
    str, str | dg.DagsterRunMetadataValue | dg.MarkdownMetadataValue | dg.UrlMetadataValue
]


def schedule_key(name: str, location: str | None) -> dg.AssetKey:
    """Returns the key of a schedule's asset; with the location if its name is given in code."""
    return dg.AssetKey([*_PREFIX, *([location] if location else []), name])


def schedule_assets(schedules: Sequence[Schedule], location: str | None) -> list[dg.AssetSpec]:
    """Returns an asset that no run makes for each schedule."""
    return [
        dg.AssetSpec(
            key=schedule_key(schedule.name, location),
            description=schedule.description or None,
            group_name="arctic",
            kinds={"schedule"},
            metadata=dict(_declared(schedule, location)),
        )
        for schedule in schedules
    ]


def _declared(schedule: Schedule, location: str | None) -> Iterator[tuple[str, object]]:
    page = service_page("schedules", schedule.name, location=location)
    if page is not None:
        yield "page", dg.MetadataValue.url(page)
    if schedule.target.job:
        yield "target", f"job {schedule.target.job}"
    # What another kind of selection contains is not known before the location is loaded.
    keys = getattr(schedule.target.given, "selected_keys", None)
    if schedule.target.is_selection and not keys:
        yield "target", str(schedule.target.given)
    for key in keys or map(dg.AssetKey.from_user_string, schedule.target.assets):
        yield f"target {key.to_user_string()}", dg.MetadataValue.asset(key)
    for name in schedule.trigger_assets:
        yield f"listens to {name}", dg.MetadataValue.asset(dg.AssetKey.from_user_string(name))
    yield "trigger", one_line(schedule.trigger.to_form())
    for number, constraint in enumerate(schedule.constraints, 1):
        yield f"constraint {number}", one_line(constraint.to_form())
    yield "timeout", f"{format_duration(schedule.timeout)}, then {schedule.on_timeout}"


class ScheduleObservations:
    """Observes the schedules of an engine whose jobs have moved.

    A schedule is observed at most twice a minute, and a tick that requests runs observes none: they
    would begin later. What is left over comes with one of the next ticks.

    Args:
        engine: whose schedules are observed.
        shown: the keys of their assets, by their names; others are not observed.
    """

    def __init__(self, engine: Engine, shown: Mapping[str, dg.AssetKey]) -> None:
        self._engine = engine
        self._shown = shown
        #: the keys of their assets, by the ids of schedules
        self._keys: dict[str, dg.AssetKey] = {}
        self._observed_at: dict[str, datetime] = {}
        #: ids of schedules to observe, oldest change first
        self._changed: dict[str, None] = {}
        self._line = 0
        self._read_at: datetime | None = None

    def take(self, result: TickResult, now: datetime) -> list[dg.AssetObservation]:
        """Returns the observations that are due after a tick at ``now``.

        Errors:
            DatabaseUnavailable: the state database did not answer.
        """
        if not self._shown:
            return []
        # An idle tick costs no query, but now and then: commands move jobs, too.
        if not self._was_read_lately(now):
            self._read_keys()
            self._read_history()
            self._read_at = now
        elif any(result.counts.values()):
            self._read_history()
        self._mark(move.job.schedule_id for move in result.moves)
        if result.requests or not self._changed:
            return []
        due = [id for id in self._changed if self._is_due(id, now)][:_AT_ONCE]
        return [
            dg.AssetObservation(asset_key=self._keys[schedule_id], metadata=self._current(state))
            for schedule_id, state in self._states(due, now)
        ]

    def _was_read_lately(self, now: datetime) -> bool:
        return self._read_at is not None and timedelta(0) <= now - self._read_at < _EVERY

    def _read_keys(self) -> None:
        """Adds schedules that are new, with what has happened to them since."""
        engine = self._engine
        with engine.database.read() as tx:
            ids = ids_of_schedules(tx, engine.cluster, engine.location, list(self._shown))
        new = ids.keys() - self._keys.keys()
        self._keys = {schedule_id: self._shown[name] for schedule_id, name in ids.items()}
        # All of them are new to a code server that has just started: the history says what moved.
        if self._read_at is not None:
            self._mark(sorted(new))

    def _read_history(self) -> None:
        """Adds what commands, and the code server before this one, have moved."""
        engine = self._engine
        with engine.database.read() as tx:
            moved, self._line = moved_schedules(tx, engine.cluster, engine.location, self._line)
        self._mark(sorted(moved))

    def _mark(self, schedule_ids: Iterable[str]) -> None:
        # Those that are not shown may be many: they cost nothing more.
        self._changed.update((id, None) for id in schedule_ids if id in self._keys)

    def _is_due(self, schedule_id: str, now: datetime) -> bool:
        at = self._observed_at.get(schedule_id)
        # After a clock was set back, do not wait for the old moment.
        return at is None or not timedelta(0) <= now - at < _EVERY

    def _states(self, due: Sequence[str], now: datetime) -> list[tuple[str, ScheduleState]]:
        if not due:
            return []
        with self._engine.database.read() as tx:
            states = [(id, schedule_state(tx, id)) for id in due]
        for schedule_id in due:
            del self._changed[schedule_id]
            self._observed_at[schedule_id] = now
        return [(id, state) for id, state in states if state is not None]

    def _current(self, state: ScheduleState) -> _Metadata:
        metadata: _Metadata = {"state": state.summary, "status": state.status}
        if state.next_check_at is not None:
            metadata["next check"] = format_moment(state.next_check_at)
        run_id = next((job.run_id for job in state.latest if job.run_id), None)
        if run_id:
            metadata["last run"] = dg.MetadataValue.dagster_run(run_id)
        if state.latest:
            metadata["jobs"] = dg.MetadataValue.md(_table(state.latest))
            metadata["explanation"] = command(
                "jobs",
                "explain",
                state.latest[0].id,
                options=(f"--location={self._engine.location}",),
            )
            page = service_page("jobs", state.latest[0].id)
            if page is not None:
                metadata["page"] = dg.MetadataValue.url(page)
        return metadata


def _table(jobs: Sequence[Job]) -> str:
    rows = [
        (
            format_moment(job.created_at),
            _partitions(job),
            job.state.value.replace("_", " "),
            job.reason,
            # As Dagster's lists show it.
            (job.run_id or "")[:8],
        )
        for job in jobs
    ]
    header = ("since", "partition", "state", "reason", "run")
    return "\n".join(
        "| " + " | ".join(_cell(value) for value in row) + " |"
        for row in (header, ("---",) * len(header), *rows)
    )


def _partitions(job: Job) -> str:
    if job.partition_start is None or job.partition_start == job.partition_end:
        return job.partition or ""
    return f"{job.partition_start} to {job.partition_end}"


def _cell(text: str) -> str:
    """Returns a text without what ends a cell, or is markup in one."""
    for special in "\\|`*_[]<>":
        text = text.replace(special, f"\\{special}")
    return " ".join(text.split())
