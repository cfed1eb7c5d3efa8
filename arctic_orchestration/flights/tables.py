"""The Iceberg tables of the flights lake."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from itertools import groupby

from pyiceberg.expressions import And, BooleanExpression, In, Or, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import (
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from arctic_orchestration.flights.feeds import ORIGINS, OriginFile


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """A table to create if missing; ``by_month``: partitioned by the month of ``flight_date``."""

    identifier: str
    schema: Schema
    by_month: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition_spec(self) -> PartitionSpec:
        """Iceberg's partitioning of the table."""
        if not self.by_month:
            return PartitionSpec()
        source = self.schema.find_field("flight_date").field_id
        return PartitionSpec(
            PartitionField(
                source_id=source, field_id=1000, transform=MonthTransform(), name="flight_month"
            )
        )


def _schema(**columns: PrimitiveType) -> Schema:
    return Schema(
        *(
            NestedField(number, name, kind, required=False)
            for number, (name, kind) in enumerate(columns.items(), start=1)
        )
    )


_DATE, _INT, _LONG, _REAL = DateType(), IntegerType(), LongType(), DoubleType()
_TEXT, _INSTANT = StringType(), TimestamptzType()

#: A run appends a file, of some 20 kB for each of its days. Four of a month are merged, and soon
#: also two, so that one can watch it; a month has less than 1 MB in the end.
_FED_BY_DAY = {
    "arctic.compaction.target-size": "4MiB",
    "arctic.compaction.minor.min-files": "4",
    "arctic.compaction.minor.interval": "5s",
    "arctic.compaction.check-interval": "5s",
    "arctic.compaction.commit-interval": "3s",
}

#: Every column of the CSV, and the day in New York. Times of day are numbers like 1745.
FLIGHTS = TableSpec(
    identifier="nyc.flights",
    by_month=True,
    properties=_FED_BY_DAY,
    schema=_schema(
        flight_date=_DATE,
        year=_INT,
        month=_INT,
        day=_INT,
        dep_time=_INT,
        sched_dep_time=_INT,
        dep_delay=_INT,
        arr_time=_INT,
        sched_arr_time=_INT,
        arr_delay=_INT,
        carrier=_TEXT,
        flight=_INT,
        tailnum=_TEXT,
        origin=_TEXT,
        dest=_TEXT,
        air_time=_INT,
        distance=_INT,
        hour=_INT,
        minute=_INT,
        time_hour=_INSTANT,
    ),
)

#: One row a day and route. Delays are minutes; their means are over flights that have one.
DELAYS_BY_ROUTE = TableSpec(
    identifier="nyc.delays_by_route",
    by_month=True,
    properties=_FED_BY_DAY,
    schema=_schema(
        flight_date=_DATE,
        origin=_TEXT,
        dest=_TEXT,
        flights=_LONG,
        cancelled=_LONG,
        departed=_LONG,
        arrived=_LONG,
        total_dep_delay=_LONG,
        total_arr_delay=_LONG,
        mean_dep_delay=_REAL,
        mean_arr_delay=_REAL,
    ),
)

#: Hourly, with every column of the CSV, and the day in New York.
WEATHER = TableSpec(
    identifier="nyc.weather",
    properties=_FED_BY_DAY,
    schema=_schema(
        flight_date=_DATE,
        origin=_TEXT,
        year=_INT,
        month=_INT,
        day=_INT,
        hour=_INT,
        temp=_REAL,
        dewp=_REAL,
        humid=_REAL,
        wind_dir=_INT,
        wind_speed=_REAL,
        wind_gust=_REAL,
        precip=_REAL,
        pressure=_REAL,
        visib=_REAL,
        time_hour=_INSTANT,
    ),
)

#: One row a day and origin: its routes together, beside the weather of that day.
DELAY_SUMMARY = TableSpec(
    identifier="nyc.delay_summary",
    properties=_FED_BY_DAY,
    schema=_schema(
        flight_date=_DATE,
        origin=_TEXT,
        routes=_LONG,
        flights=_LONG,
        cancelled=_LONG,
        mean_dep_delay=_REAL,
        mean_arr_delay=_REAL,
        weather_hours=_LONG,
        lowest_visibility=_REAL,
        strongest_wind=_REAL,
    ),
)

#: One row a day, origin and carrier; written by the example of a partition consumer.
CARRIER_DAYS = TableSpec(
    identifier="nyc.carrier_days",
    schema=_schema(
        flight_date=_DATE,
        origin=_TEXT,
        carrier=_TEXT,
        flights=_LONG,
        cancelled=_LONG,
        total_dep_delay=_LONG,
    ),
)


def rows_of(files: Iterable[OriginFile]) -> BooleanExpression:
    """Returns the filter for the rows from these feed files, of which there is at least one.

    Complete days are identified by the day alone, so that a data file of only such a day is dropped
    without being read.
    """
    origins = {
        day: frozenset(file.origin for file in group)
        for day, group in groupby(sorted(set(files)), key=lambda file: file.day)
    }
    whole = [day for day, found in origins.items() if found == frozenset(ORIGINS)]
    filters = [rows_of_days(whole)] if whole else []
    filters += [
        And(rows_of_days([day]), _among("origin", found))
        for day, found in origins.items()
        if day not in whole
    ]
    return reduce(Or, filters)


def rows_of_days(days: Iterable[date]) -> BooleanExpression:
    """Returns the filter for all rows of these days."""
    return _among("flight_date", {day.isoformat() for day in days})


def _among(column: str, values: Iterable[str]) -> BooleanExpression:
    return In(term=Reference(column), literals={literal(value) for value in values})


def rows_by_day(table: Table, days: Iterable[date]) -> dict[date, int]:
    """Returns the number of rows of each of these days; reads one column of them."""
    wanted = sorted(set(days))
    column = table.scan(row_filter=rows_of_days(wanted), selected_fields=("flight_date",))
    counts = Counter(column.to_arrow()["flight_date"].to_pylist())
    return {day: counts[day] for day in wanted}
