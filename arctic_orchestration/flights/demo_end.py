"""The end of the demo: the scheduler is at rest, or a job has failed; never a time limit.

On a busy machine a Spark session alone may take minutes to start, so that time means nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import dagster as dg

from arctic_orchestration.arctic import DISPATCHER
from arctic_orchestration.dagster_internals import InstigatorType, SensorInstigatorData
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.views.overview import Overview, ScheduleView

#: The tick that runs when the last job ends may have read the log before; the next one has not.
_TICKS_AT_REST = 2
_NOT_ENDED = [
    status
    for status in dg.DagsterRunStatus
    if status
    not in (
        dg.DagsterRunStatus.SUCCESS,
        dg.DagsterRunStatus.FAILURE,
        dg.DagsterRunStatus.CANCELED,
    )
]


@dataclass
class Rest:
    """Detects that nothing happens any more without new files.

    Args:
        last_tick: when the dispatcher's last completed tick was begun, in seconds; none: none was.
        runs: how many live runs schedules have.
    """

    last_tick: Callable[[], float | None]
    runs: Callable[[], int]
    _ticks: set[float] = field(default_factory=set)

    def reached(self, seen: Overview) -> bool:
        """Returns whether two ticks have ended while no job waited to start and no run was active.

        A job that then still waits for its trigger waits for a file or an hour that does not come:
        one side of a join arrived once more, as after a killed run is repeated.
        """
        if any(_going_on(schedule) for schedule in seen.schedules) or self.runs():
            self._ticks.clear()
            return False
        tick = self.last_tick()
        if tick is not None:
            self._ticks.add(tick)
        # The first one had ended before the rest began.
        return len(self._ticks) > _TICKS_AT_REST


def seconds_at_work(instance: dg.DagsterInstance) -> float:
    """Returns the seconds in which steps of runs were executed; parallel steps count once."""
    spans = sorted(
        (step.start_time, step.end_time)
        for run in instance.get_runs()
        for step in instance.get_run_step_stats(run.run_id)
        if step.start_time is not None and step.end_time is not None
    )
    total = until = 0.0
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _going_on(schedule: ScheduleView) -> bool:
    held = schedule.jobs.get(JobState.WAITING_CONSTRAINTS, 0)
    return held + schedule.active > 0


def failed_jobs(seen: Overview) -> int:
    """Returns how many jobs have failed: Dagster has used up the retries of their runs."""
    return sum(schedule.jobs.get(JobState.FAILED, 0) for schedule in seen.schedules)


def last_tick(instance: dg.DagsterInstance) -> float | None:
    """Returns when the dispatcher's last completed tick was begun, in seconds since 1970."""
    for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
        if state.name == DISPATCHER and isinstance(state.instigator_data, SensorInstigatorData):
            return state.instigator_data.last_tick_timestamp
    return None


def runs_of_schedules(instance: dg.DagsterInstance, schedules: Overview) -> int:
    """Returns how many live runs were requested by schedules."""
    names = [schedule.name for schedule in schedules.schedules]
    if not names:
        return 0
    return instance.get_runs_count(
        dg.RunsFilter(tags={"arctic/schedule": names}, statuses=_NOT_ENDED)
    )
