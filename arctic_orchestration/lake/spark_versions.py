"""All differences between PySpark 3.5 and 4.x. No other module checks Spark's version."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import pyspark
import pyspark.sql.functions as F
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

if TYPE_CHECKING:
    # A code location with compaction loads no Arrow.
    import pyarrow as pa

_VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
_IS_4 = _VERSION >= (4, 0)

#: Spark Connect before 4.3 cannot open a session beside another one.
HAS_CONNECT = _VERSION >= (4, 3)

#: Spark 3.5 cannot read widened columns, and reads a struct of new fields only as null.
READS_OLDER_SCHEMAS = _IS_4
#: PySpark's exceptions of a failed job; 3.5 raises Py4J's error.
JOB_FAILED: tuple[type[Exception], ...] = (
    (PySparkException,) if _IS_4 else (PySparkException, Py4JJavaError)
)
#: Whether Parquet's writer has a close() that leaves the file incomplete; 3.5's has none.
PARQUET_WRITERS_CLOSE = _IS_4
#: What a JVM that is lent needs: Spark 3.5 would give the next borrower's tasks to Python workers
#: that have ended, and fail them.
LENT: Mapping[str, str] = {} if _IS_4 else {"spark.python.worker.reuse": "false"}


def session_settings(spark: SparkSession) -> Mapping[str, str]:
    """Returns the settings of a session that differ from Spark's defaults."""
    if _IS_4:
        return spark.conf.getAll
    conf, jvm = cast(Any, spark.conf), cast(Any, spark._jvm)
    return dict(jvm.scala.collection.JavaConverters.mapAsJavaMap(conf._jconf.getAll()))


def default_session(jvm: Any) -> Any:
    """Returns the first session of a JVM, an object of Java."""
    sql = jvm.org.apache.spark.sql
    return (sql.classic if _IS_4 else sql).SparkSession.getDefaultSession().get()


def rebalanced(rows: DataFrame, column: str) -> DataFrame:
    """Returns the rows with Spark's hint ``rebalance``, by a column."""
    if _IS_4:
        return rows.hint("rebalance", F.col(column))
    # PySpark 3.5 accepts only texts and numbers as parameters of a hint; Spark accepts columns.
    frame, session, by = cast(Any, rows), cast(Any, rows.sparkSession), cast(Any, F.col(column))
    parameters = session._jvm.PythonUtils.toSeq([by._jc.expr()])
    return DataFrame(frame._jdf.hint("rebalance", parameters), session)


def arrow_function(
    function: "Callable[[pa.Array], pa.Array]", returns: str
) -> Callable[[Column], Column] | None:
    """Returns a column function that receives Arrow arrays; none: PySpark 3.5 has none."""
    if not hasattr(F, "arrow_udf"):
        return None
    made: Callable[[Column], Column] = F.arrow_udf(function, returns)
    return made


def file_metadata(rows: DataFrame) -> Column:
    """Returns Spark's hidden column ``_metadata`` of rows that were read from files."""
    if _IS_4:
        return rows.metadataColumn("_metadata")
    return Column(cast(Any, rows)._jdf.metadataColumn("_metadata"))


def complete(rows: "pa.Table") -> "pa.Table":
    """Returns rows that a worker received from Spark, with all buffers that pyarrow reads.

    The JVM of Spark 3.5 leaves out the offsets of an array without values, such as the texts of
    empty lists. pyarrow then ends the process when it is asked for the size (``nbytes``).
    """
    if _IS_4:
        return rows
    import numpy as np

    return rows.take(np.arange(len(rows)))


def small_frame(spark: SparkSession, table: "pa.Table") -> DataFrame:
    """Converts a small Arrow table to a DataFrame; texts, longs and lists of longs.

    Cost: PySpark 3.5 converts it value by value.
    """
    if _IS_4:
        return spark.createDataFrame(table)
    import pyarrow as pa

    types = {
        pa.string(): "string",
        pa.int64(): "bigint",
        pa.list_(pa.int64()): "array<bigint>",
    }
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    fields = [f"`{field.name}` {types[field.type]}" for field in table.schema]
    return spark.createDataFrame(rows, ", ".join(fields))
