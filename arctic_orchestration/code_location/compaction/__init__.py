"""`compaction_definitions`: lets the tables of a lake compact themselves.

The sensor ``arctic_compaction`` is planner, committer and housekeeping: its tick is a round of
:class:`arctic_orchestration.compaction.service.Compaction`. The merging is done by runs of the job
``compaction_worker``, which the sensor asks for when a queue has work and too few workers.
"""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from arctic_orchestration.code_location.compaction.numbers import table_asset
from arctic_orchestration.code_location.compaction.sensor import CompactionSensor
from arctic_orchestration.code_location.compaction.worker import worker_job
from arctic_orchestration.compaction.records import RETENTION, SHORTEST_RETENTION
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.lake.spark_resource import LakeSparkResource, pyspark_resource
from arctic_orchestration.settings import Settings

COMPACTION = "arctic_compaction"


def compaction_definitions(
    settings: Settings | None = None,
    *,
    tables: Sequence[str] = (),
    spark: LakeSparkResource | None = None,
    interval_seconds: int = 10,
    parallelism: int = 2,
    until_idle: timedelta = timedelta(minutes=1),
    numbers_every: timedelta | None = timedelta(minutes=5),
    retention: timedelta = RETENTION,
) -> dg.Definitions:
    """The sensor ``arctic_compaction`` and the job ``compaction_worker``; touches no database.

    ::

        defs = dg.Definitions.merge(my_definitions, arctic.definitions(), compaction_definitions())

    One code location is enough for all tables of a catalog; several do no harm. An asset whose
    metadata or tags say ``arctic/table: nyc.flights`` makes that table due when it arrives.

    Args:
        settings: none: read from the environment by each tick and run.
        tables: tables whose numbers are assets of this location, ``arctic/compaction/nyc/flights``,
            with a description and a button to observe them. The numbers of all others are
            reported too; Dagster shows those as assets without a definition.
        spark: where the runs have their session from; none: ``pyspark_resource()``.
        interval_seconds: the least time between two ticks of the sensor.
        parallelism: how many tasks a run works on at once.
        until_idle: a run that found nothing to do for that long ends.
        numbers_every: the least time between two reports of a table's numbers when nothing was
            committed; none: nothing is reported.
        retention: how long records, and tasks that ended, are kept; a day at least.

    Errors:
        InvalidDefinition: a number or a span of time is out of its range, or a name is none.
        ConfigurationError: a Spark property contradicts one that the lake needs.
    """
    _check(tables, interval_seconds, parallelism, until_idle, numbers_every, retention)
    job = worker_job(settings, spark or pyspark_resource(settings))
    sensor = CompactionSensor(
        name=COMPACTION,
        job=job,
        settings=settings,
        interval_seconds=interval_seconds,
        parallelism=parallelism,
        until_idle=until_idle,
        numbers_every=numbers_every,
        retention=retention,
    )
    return dg.Definitions(
        assets=[table_asset(name, settings) for name in dict.fromkeys(tables)],
        jobs=[job],
        sensors=[sensor],
    )


def _check(
    tables: Sequence[str],
    interval_seconds: int,
    parallelism: int,
    until_idle: timedelta,
    numbers_every: timedelta | None,
    retention: timedelta,
) -> None:
    problems = []
    if isinstance(tables, str) or not all(
        isinstance(name, str) and all(name.split(".")) for name in tables
    ):
        expected = "a list of names of tables, as in the catalog: nyc.flights"
        problems.append(InvalidInput("tables", tables, expected))
    for field, number in (("interval_seconds", interval_seconds), ("parallelism", parallelism)):
        if type(number) is not int or number < 1:
            problems.append(InvalidInput(field, number, "a whole number, at least 1"))
    if not isinstance(until_idle, timedelta) or until_idle < timedelta(0):
        problems.append(InvalidInput("until_idle", until_idle, "a timedelta of at least 0"))
    if numbers_every is not None and (
        not isinstance(numbers_every, timedelta) or numbers_every < timedelta(seconds=1)
    ):
        expected = "a timedelta of at least a second"
        problems.append(InvalidInput("numbers_every", numbers_every, expected))
    if not isinstance(retention, timedelta) or retention < SHORTEST_RETENTION:
        problems.append(InvalidInput("retention", retention, "a timedelta of at least a day"))
    if problems:
        raise InvalidDefinition(problems)
