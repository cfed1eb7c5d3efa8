"""Manual changes of schedules in a timeline, by the same functions that the commands call."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import NotFound, TransitionRefused
from arctic_orchestration.schedules import control, deployment, event_intake
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.jobs import JobMove
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule, digest
from arctic_orchestration.schedules.simulator.lines import Deploy, OnSchedule, Update
from arctic_orchestration.schedules.simulator.world import World
from arctic_orchestration.schedules.store import ScheduleStore

_ACTIONS = {"suspend": control.suspend, "resume": control.enable, "delete": control.delete}


@dataclass(frozen=True, kw_only=True)
class Commands:
    """A person, or a deployment, that changes the schedules of the simulated location."""

    cluster: str
    world: World
    store: ScheduleStore

    def catch_up(self, tx: sa.Connection, line: OnSchedule | Update | Deploy) -> list[JobMove]:
        """Reads the events before a line, as its command does; returns the moves of jobs."""
        location = locations.locked(tx, self.cluster, self.world.location)
        ticks = isinstance(line, OnSchedule) and line.do == "suspend"
        done = event_intake.catch_up(
            tx,
            location,
            self.world,
            self.world,
            self.store,
            line.at,
            ticks=ticks,
            targets=self.world,
        )
        return list(done.moves)

    def apply(self, tx: sa.Connection, line: OnSchedule | Update | Deploy) -> None:
        """Executes a line at its moment.

        Errors:
            InvalidInput: the schedule does not exist; names the line.
        """
        location = locations.locked(tx, self.cluster, self.world.location)
        if isinstance(line, Deploy):
            self.world.gone = frozenset(line.gone)
            self.deploy(
                tx, location, line.schedules, line.at, update_schedules=line.update_schedules
            )
            return
        try:
            if isinstance(line, Update):
                control.update(tx, self.store, location, line.schedule_spec, line.at)
            else:
                _ACTIONS[line.do](tx, self.store, location, line.schedule, line.at)
        except (NotFound, TransitionRefused) as error:
            raise line.refused("schedule", line.schedule, f"another one: {error}") from error

    def deploy(
        self,
        tx: sa.Connection,
        location: Location,
        schedules: tuple[Schedule, ...],
        now: datetime,
        *,
        update_schedules: bool = True,
    ) -> None:
        """Deploys code that declares these schedules."""
        deployment.deploy(
            tx,
            self.store,
            location,
            schedules,
            digest(schedules),
            now,
            update_schedules=update_schedules,
            exists=self.world.exists,
        )
