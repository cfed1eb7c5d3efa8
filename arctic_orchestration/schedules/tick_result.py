"""The result of a tick of the engine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.schedules.jobs import JobMove
from arctic_orchestration.schedules.launch_requests import LaunchRequest


@dataclass(frozen=True, kw_only=True)
class TickResult:
    """The result of a tick: counts by name, and the launch requests for Dagster."""

    counts: Counter[str]
    requests: Sequence[LaunchRequest]
    position: Position | None
    #: moves of jobs, in order
    moves: Sequence[JobMove] = ()
    #: the delay between each event and its reading
    lags: Sequence[timedelta] = ()
    #: runs to terminate: their jobs were canceled before the run was seen
    unwanted: Sequence[str] = ()
    #: sentences for the log
    remarks: Sequence[str] = ()
    #: the result of each source that was evaluated, by name
    notes: Mapping[str, str] = field(default_factory=dict)
