"""`Compaction`: plans and compacts the tables of a lake.

The sensor ``arctic_compaction`` is planner, committer and housekeeping: its tick is a round of
:class:`arctic_orchestration.compaction.service.Compaction`. Runs of the job ``compaction_worker``
merge the files; the sensor requests them when a queue has work and too few workers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import dagster as dg

from arctic_orchestration.compaction.commit.records import RETENTION, SHORTEST_RETENTION
from arctic_orchestration.compaction.dagster.sensor import CompactionSensor
from arctic_orchestration.compaction.dagster.table_metrics import key_of, table_asset
from arctic_orchestration.compaction.dagster.worker_job import worker_job
from arctic_orchestration.compaction.planning.scope import EVERYTHING, Mode, Scope
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.lake.spark_resource import LakeSparkResource, pyspark_resource
from arctic_orchestration.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """The compaction of a lake's tables by a code location.

    ::

        arctic = Arctic(schedules=[...], compaction=Compaction(tables=["nyc.*"], mode="run"))

    One code location is enough for all tables of a catalog; several are safe. An asset with the
    metadata or tag ``arctic/table: nyc.flights`` makes that table due when it arrives.

    Args:
        tables: patterns of names of the planned tables: ``nyc.flights``, ``nyc.*``, ``*`` for all.
            Their metrics are reported. A table with its full name in the list has them as an asset
            of this location, ``arctic/compaction/nyc/flights``, with a description and a button to
            observe it; Dagster shows the others as assets without a definition.
        mode: ``observe``: the tables are planned and the plans are shown (``arctic compaction
            list``, the table's asset); nothing is merged, committed or removed. ``run``: they are
            compacted.
        settings: none: each tick and run reads them from the environment.
        spark: the source of the runs' session; none: ``pyspark_resource()``.
        interval_seconds: the minimum interval between two ticks of the sensor.
        parallelism: how many tasks a run merges at once.
        until_idle: a run ends after this time without work.
        numbers_every: the minimum interval between two reports of a table's metrics without a
            commit; none: nothing is reported.
        retention: how long records and ended tasks are kept; at least a day.
    """

    tables: Sequence[str]
    mode: str = Mode.OBSERVE
    settings: Settings | None = None
    spark: "LakeSparkResource | None" = None
    interval_seconds: int = 10
    parallelism: int = 2
    until_idle: timedelta = timedelta(minutes=1)
    numbers_every: timedelta | None = timedelta(minutes=5)
    retention: timedelta = RETENTION

    def definitions(self) -> dg.Definitions:
        """Returns the sensor ``arctic_compaction`` and the job ``compaction_worker``; no database.

        Errors:
            InvalidDefinition: a number or a duration is out of range, there is no pattern, or the
                mode is unknown.
            ConfigurationError: a Spark property contradicts one that the lake needs.
        """
        scope = self._checked_scope()
        job = worker_job(self.settings, self.spark or pyspark_resource(self.settings))
        # Dagster names the op of an asset after its key, and refuses the others.
        names = {key_of(name).to_python_identifier(): name for name in reversed(scope.names)}
        own = [name for op, name in names.items() if re.fullmatch("[A-Za-z0-9_]+", op)]
        return dg.Definitions(
            assets=[table_asset(name, self.settings) for name in own],
            jobs=[job],
            sensors=[CompactionSensor(self, scope, job)],
        )

    def _checked_scope(self) -> Scope:
        problems = []
        scope = EVERYTHING
        try:
            scope = Scope.of(self.tables, self.mode)
        except InvalidInput as problem:
            problems.append(problem)
        for field, number in (
            ("interval_seconds", self.interval_seconds),
            ("parallelism", self.parallelism),
        ):
            if type(number) is not int or number < 1:
                problems.append(InvalidInput(field, number, "a whole number, at least 1"))
        if not isinstance(self.until_idle, timedelta) or self.until_idle < timedelta(0):
            problems.append(
                InvalidInput("until_idle", self.until_idle, "a timedelta of at least 0")
            )
        if self.numbers_every is not None and (
            not isinstance(self.numbers_every, timedelta)
            or self.numbers_every < timedelta(seconds=1)
        ):
            expected = "a timedelta of at least a second"
            problems.append(InvalidInput("numbers_every", self.numbers_every, expected))
        if not isinstance(self.retention, timedelta) or self.retention < SHORTEST_RETENTION:
            problems.append(
                InvalidInput("retention", self.retention, "a timedelta of at least a day")
            )
        if problems:
            raise InvalidDefinition(problems)
        return scope
