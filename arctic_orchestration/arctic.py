"""`Arctic`: all parts of this package in a code location, as Dagster definitions."""

import warnings
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules import cycles
from arctic_orchestration.schedules.dagster.dispatcher import DispatcherSensor
from arctic_orchestration.schedules.dagster.resource import ArcticResource
from arctic_orchestration.schedules.dagster.schedule_assets import (
    SHOWN_BY_DEFAULT,
    schedule_assets,
    schedule_key,
)
from arctic_orchestration.schedules.dagster.scheduler_metrics import scheduler_asset
from arctic_orchestration.schedules.dagster.sources import is_plain
from arctic_orchestration.schedules.definition_warnings import cautions
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import Requests
from arctic_orchestration.specification import SHORT, is_short

if TYPE_CHECKING:
    from arctic_orchestration.compaction.dagster.definitions import Compaction
    from arctic_orchestration.freshness.dagster.definitions import Freshness

DISPATCHER = "arctic_dispatcher"


class Arctic:
    """The schedules, fresh tasks, consumers and compaction that a code location declares.

    ::

        arctic = Arctic(
            schedules=[...],
            freshness=Freshness(batches=["delays.json"]),
            consumers=[consumer_sensor(PartitionConsumer("raw/orders", name="copy"), target=copy)],
            compaction=Compaction(tables=["nyc.*"], mode="run"),
        )
        defs = dg.Definitions.merge(my_definitions, arctic.definitions())

    Args:
        schedules: the schedules. The first tick after a change of the definitions creates, updates
            and deletes them in the state database to match.
        freshness: tasks that run when their parents are fresh enough.
        consumers: sensors that run a target for each new partition of a consumer.
        sources: plain sensors of Dagster that the dispatcher evaluates; their run requests are
            events, which schedules with the trigger ``requests`` take. Dagster itself must not run
            such a sensor as well.
        compaction: the tables that this location compacts.
        interval_seconds: the minimum interval between two ticks of the dispatcher.
        location: the name of its feed position, schedules and jobs in the state database; defaults
            to the name of the code location in ``workspace.yaml``. Only one code location may
            deploy under a name; the ticks of a second one fail.
        numbers_every: the minimum interval between two observations of the asset
            ``arctic/scheduler`` by the dispatcher; none: this location has neither them nor the
            asset. The numbers cover the whole cluster, so one reporting location is enough.

        update_schedules: whether a deployment updates the state database to match the code. False
            changes nothing there, except that schedules with a missing target are deleted.
        schedule_assets: whether each schedule of ``schedules`` has an asset in Dagster's UI,
            ``arctic/schedules/NAME``, which shows its trigger, target and state; with
            ``location`` its key is ``arctic/schedules/LOCATION/NAME``. None: if there are at most
            200 of them.

    Errors:
        InvalidDefinition: two schedules of one name, schedules whose runs trigger each other
            without a pause, an object that is no schedule, or an interval that is not positive.
    """

    def __init__(
        self,
        *,
        schedules: Sequence[Schedule] = (),
        freshness: "Freshness | None" = None,
        consumers: Sequence[dg.SensorDefinition] = (),
        sources: Sequence[dg.SensorDefinition] = (),
        compaction: "Compaction | None" = None,
        interval_seconds: int = 5,
        location: str | None = None,
        numbers_every: timedelta | None = timedelta(minutes=5),
        update_schedules: bool = True,
        schedule_assets: bool | None = None,
    ) -> None:
        problems = _problems(schedules)
        problems += _problems_of_parts(freshness, consumers, compaction)
        problems += _problems_of_sources(schedules, sources) if not problems else []
        if type(interval_seconds) is not int:
            problems.append(InvalidInput("interval_seconds", interval_seconds, "a whole number"))
        elif interval_seconds < 1:
            problems.append(InvalidInput("interval_seconds", interval_seconds, "at least 1"))
        if location is not None and not (isinstance(location, str) and location):
            problems.append(InvalidInput("location", location, "the name of a code location"))
        elif location is not None and not is_short(location):
            problems.append(InvalidInput("location", location, SHORT))
        if numbers_every is not None and (
            not isinstance(numbers_every, timedelta) or numbers_every < timedelta(seconds=1)
        ):
            expected = "a timedelta of at least a second"
            problems.append(InvalidInput("numbers_every", numbers_every, expected))
        # "false" of an environment variable is true.
        flags = {"update_schedules": update_schedules, "schedule_assets": schedule_assets or False}
        problems += [
            InvalidInput(name, value, "True or False")
            for name, value in flags.items()
            if not isinstance(value, bool)
        ]
        if problems:
            raise InvalidDefinition(problems)
        for caution in (*cautions(schedules), *map(str, cycles.cycles(schedules))):
            warnings.warn(caution, stacklevel=2)
        self.schedules = tuple(schedules)
        self._parts = [part for part in (freshness, compaction) if part is not None]
        self._consumers = list(consumers)
        self._sources = tuple(sources)
        self._interval_seconds = interval_seconds
        self._location = location
        self._numbers_every = numbers_every
        self._update_schedules = update_schedules
        few = len(self.schedules) <= SHOWN_BY_DEFAULT
        self._shown = few if schedule_assets is None else schedule_assets

    def definitions(self) -> dg.Definitions:
        """Returns the dispatcher, the resource ``arctic``, ``arctic/scheduler``, and the parts.

        Opens no database and starts no Spark. Dagster refuses unknown assets and jobs when it
        merges the definitions.

        Errors:
            As :meth:`Freshness.definitions` and :meth:`Compaction.definitions`.
        """
        shown = self.schedules if self._shown else ()
        sensor = DispatcherSensor(
            name=DISPATCHER,
            schedules=self.schedules,
            interval_seconds=self._interval_seconds,
            location=self._location,
            numbers_every=self._numbers_every,
            update_schedules=self._update_schedules,
            sources=self._sources,
            shown={each.name: schedule_key(each.name, self._location) for each in shown},
        )
        numbers = [scheduler_asset()] if self._numbers_every is not None else []
        own = dg.Definitions(
            assets=[*numbers, *schedule_assets(shown, self._location)],
            sensors=[sensor, *self._consumers],
            resources={"arctic": ArcticResource()},
        )
        return dg.Definitions.merge(own, *(part.definitions() for part in self._parts))


def _problems(schedules: object) -> list[InvalidInput]:
    """Returns the errors of a list of schedules: other values, and duplicate names."""
    if not isinstance(schedules, Sequence) or isinstance(schedules, str):
        return [InvalidInput("schedules", schedules, "a list of schedules")]
    problems = [
        InvalidInput(f"schedules[{index}]", schedule, "a Schedule")
        for index, schedule in enumerate(schedules)
        if not isinstance(schedule, Schedule)
    ]
    if problems:
        return problems
    names = Counter(schedule.name for schedule in schedules)
    twice = [
        InvalidInput(f"schedules[{index}].name", schedule.name, "a name used once")
        for index, schedule in enumerate(schedules)
        if names[schedule.name] > 1
    ]
    return twice or list(cycles.problems(schedules))


def _problems_of_parts(
    freshness: object, consumers: object, compaction: object
) -> list[InvalidInput]:
    """Returns the errors of values that are no parts of a code location."""
    # By their method: their modules are imported by their users, and may need an extra.
    problems = [
        InvalidInput(field, part, f"{field.capitalize()}(...)")
        for field, part in (("freshness", freshness), ("compaction", compaction))
        if part is not None and not callable(getattr(part, "definitions", None))
    ]
    if not isinstance(consumers, Sequence) or isinstance(consumers, str):
        return [*problems, InvalidInput("consumers", consumers, "a list of sensors")]
    return problems + [
        InvalidInput(f"consumers[{index}]", sensor, "a sensor of consumer_sensor(...)")
        for index, sensor in enumerate(consumers)
        if not isinstance(sensor, dg.SensorDefinition)
    ]


def _problems_of_sources(schedules: Sequence[Schedule], sources: object) -> list[InvalidInput]:
    """Returns the errors of sources, and of schedules that take requests of none of them."""
    if not isinstance(sources, Sequence) or isinstance(sources, str):
        return [InvalidInput("sources", sources, "a list of sensors")]
    problems = [
        InvalidInput(f"sources[{index}]", sensor, "a plain @sensor of Dagster, of no other kind")
        for index, sensor in enumerate(sources)
        if not is_plain(sensor)
    ]
    if problems:
        return problems
    names = Counter(sensor.name for sensor in sources)
    problems = [
        InvalidInput(f"sources[{index}]", sensor.name, "a name used once")
        for index, sensor in enumerate(sources)
        if names[sensor.name] > 1
    ]
    expected = f"one of sources={sorted(names)}"
    return problems + [
        InvalidInput(f"Schedule({schedule.name}).trigger.requests.sensor", leaf.sensor, expected)
        for schedule in schedules
        for leaf in schedule.trigger.leaves
        if isinstance(leaf, Requests) and leaf.sensor not in names
    ]
