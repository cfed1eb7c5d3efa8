"""Runs a task of a batch: its query or its function, and writes the rows to its table."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from typing import TYPE_CHECKING, Any

import dagster as dg

from arctic_orchestration.errors import InvalidDefinition, InvalidInput, SchemaMismatch
from arctic_orchestration.freshness.batch_file import BatchTask
from arctic_orchestration.freshness.dagster.fresh_parents import check_lease
from arctic_orchestration.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The resource that provides the Spark session of tasks, made by
#: :func:`arctic_orchestration.lake.spark_resource.pyspark_resource`.
SPARK = "pyspark"

#: The query parameter for the day of the partition.
PARTITION = "partition"


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """The argument of a task's function.

    ``run.read("nyc.flights")`` is an Iceberg table as a DataFrame, ``run.spark`` the session, which
    starts on first use.
    """

    name: str
    #: the day of the partition to make; none: the task has no partitions
    partition: date | None
    tags: Mapping[str, str]
    log: dg.DagsterLogManager
    _session: Callable[[], "SparkSession"] = field(repr=False)

    @property
    def spark(self) -> "SparkSession":
        """The Spark session of the run."""
        return self._session()

    def read(self, table: str) -> "DataFrame":
        """Returns an Iceberg table of the lake in its present state.

        Errors:
            NotFound: the table does not exist; the message names the existing ones.
        """
        from arctic_orchestration.lake import open_catalog, read
        from arctic_orchestration.lake.tables import load_table

        catalog = open_catalog(Settings.from_environment())
        return read(self.spark, load_table(catalog, table))


Function = Callable[[TaskRun], Any]


def function_of(task: BatchTask, path: str) -> Function | None:
    """Returns the function of a task; none: the task is a query.

    Errors:
        InvalidDefinition: the module cannot be imported or lacks the function.
    """
    if task.python is None:
        return None
    module, _, name = task.python.partition(":")
    where = f"{path}.python"
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:
        expected = f"a module that can be imported ({type(error).__name__}: {error})"
        raise InvalidDefinition([InvalidInput(where, task.python, expected)]) from error
    if not callable(found):
        expected = f"a function that {module} has"
        raise InvalidDefinition([InvalidInput(where, task.python, expected)])
    made: Function = found
    return made


def make(task: BatchTask, function: Function | None, run: TaskRun) -> dict[str, Any]:
    """Runs a task once, and returns the metadata of the result.

    Errors:
        InvalidInput: the function returned neither a DataFrame, metadata nor nothing.
        SchemaMismatch: the rows do not fit the table's columns. Nothing was committed.
        LeaseLost: another run owns the task now. Nothing was committed.
        LakeError: a table cannot be read or written.
    """
    if function is None:
        assert task.sql is not None
        with _views(run, task.reads):
            arguments = {PARTITION: run.partition} if run.partition is not None else {}
            return _written(task, run, run.spark.sql(task.sql, args=arguments))
    result = function(run)
    if result is None or isinstance(result, Mapping):
        if task.table is not None:
            expected = f"a DataFrame of the rows for {task.table}"
            raise InvalidInput(f"what {task.python} returned", result, expected)
        return dict(result or {})
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame) or task.table is None:
        expected = "nothing, or a mapping of metadata" + (
            ", or a DataFrame for the table" if task.table else ": the task has no table"
        )
        raise InvalidInput(f"what {task.python} returned", result, expected)
    return _written(task, run, result)


@contextmanager
def _views(run: TaskRun, reads: Mapping[str, str]) -> Iterator[None]:
    """Registers the tables as views of the session, which all tasks of a process share."""
    for view, table in reads.items():
        run.read(table).createOrReplaceTempView(view)
    try:
        yield
    finally:
        for view in reads:
            run.spark.catalog.dropTempView(view)


def _written(task: BatchTask, run: TaskRun, rows: "DataFrame") -> dict[str, Any]:
    """Replaces the table's rows of the same partition."""
    import pyspark.sql.functions as F
    from pyiceberg.expressions import AlwaysTrue, BooleanExpression, In, Reference
    from pyiceberg.expressions.literals import literal
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    from arctic_orchestration.freshness.dagster.new_tables import schema_for
    from arctic_orchestration.lake import append, ensure_table, open_catalog

    assert task.table is not None
    spec = PartitionSpec()
    replacing: BooleanExpression = AlwaysTrue()
    column = task.partition_column
    if run.partition is not None:
        if column in rows.columns:
            raise SchemaMismatch(
                f"{task.name}: its rows have a column {column}, which is where the day of the "
                "partition goes; give it another name, or name another partitionColumn"
            )
        rows = rows.select(F.lit(run.partition).alias(column), "*")
        day = literal(run.partition.isoformat())
        replacing = In(term=Reference(column), literals={day})
        spec = PartitionSpec(
            PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name=column)
        )
    schema = schema_for(rows.schema, task.table)
    catalog = open_catalog(Settings.from_environment())
    table = ensure_table(catalog, task.table, schema, partition_spec=spec)
    # A run that lost its lease must not overwrite the rows of the new owner. The query, the longest
    # part, is also preceded by a check.
    check_lease()
    appended = append(
        run.spark, rows.coalesce(1), table, replacing=replacing, before_commit=check_lease
    )
    return {
        "rows": appended.rows,
        "dagster/row_count": appended.rows,
        "bytes": appended.bytes,
        "snapshot": str(appended.snapshot_id),
        "table": task.table,
    }
