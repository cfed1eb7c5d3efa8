"""`Arctic`: the schedules of a code location, and the Dagster definitions that run them."""

from collections import Counter
from collections.abc import Sequence

import dagster as dg

from arctic_orchestration.code_location.dispatcher import DispatcherSensor
from arctic_orchestration.code_location.resource import ArcticResource
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.scheduling.schedule import Schedule

DISPATCHER = "arctic_dispatcher"


class Arctic:
    """The schedules that a code location declares.

    ::

        arctic = Arctic(schedules=[...])
        defs = dg.Definitions.merge(my_definitions, arctic.definitions())

    Args:
        schedules: what fires. At the first tick after the definitions changed they are created,
            updated and deleted in the state database to match.
        interval_seconds: the least time between two ticks of the dispatcher.
        location: the name under which feed position, schedules and jobs are kept; by default
            the name of the code location in ``workspace.yaml``.

    Errors:
        InvalidDefinition: two schedules of one name, or an interval that is not positive.
    """

    def __init__(
        self,
        *,
        schedules: Sequence[Schedule],
        interval_seconds: int = 5,
        location: str | None = None,
    ) -> None:
        names = Counter(schedule.name for schedule in schedules)
        problems = [
            InvalidInput(f"schedules[{index}].name", schedule.name, "a name used once")
            for index, schedule in enumerate(schedules)
            if names[schedule.name] > 1
        ]
        if interval_seconds < 1:
            problems.append(InvalidInput("interval_seconds", interval_seconds, "at least 1"))
        if problems:
            raise InvalidDefinition(problems)
        self.schedules = tuple(schedules)
        self._interval_seconds = interval_seconds
        self._location = location

    def definitions(self) -> dg.Definitions:
        """The dispatcher sensor and the ``arctic`` resource; touches no database.

        Unknown assets and jobs are refused when Dagster puts the merged definitions together.
        """
        sensor = DispatcherSensor(
            name=DISPATCHER,
            schedules=self.schedules,
            interval_seconds=self._interval_seconds,
            location=self._location,
        )
        return dg.Definitions(sensors=[sensor], resources={"arctic": ArcticResource()})
