"""Everything that differs between PySpark 3.5 and 4.x. Nothing else asks for Spark's version."""

from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
import pyspark
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

_IS_4 = int(pyspark.__version__.partition(".")[0]) >= 4
_SQL_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.list_(pa.int64()): "array<bigint>",
}


def session_settings(spark: SparkSession) -> Mapping[str, str]:
    """The settings of a session, those that differ from Spark's defaults."""
    if _IS_4:
        return spark.conf.getAll
    conf, jvm = cast(Any, spark.conf), cast(Any, spark._jvm)
    return dict(jvm.scala.collection.JavaConverters.mapAsJavaMap(conf._jconf.getAll()))


def rebalanced(rows: DataFrame, column: str) -> DataFrame:
    """The rows with Spark's hint ``rebalance``, by a column."""
    if _IS_4:
        return rows.hint("rebalance", F.col(column))
    # PySpark 3.5 takes only texts and numbers as parameters of a hint; Spark itself takes columns.
    frame, session, by = cast(Any, rows), cast(Any, rows.sparkSession), cast(Any, F.col(column))
    parameters = session._jvm.PythonUtils.toSeq([by._jc.expr()])
    return DataFrame(frame._jdf.hint("rebalance", parameters), session)


def small_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A small table of Arrow's as a DataFrame; texts, longs and lists of longs.

    Cost: PySpark 3.5 takes it value by value.
    """
    if _IS_4:
        return spark.createDataFrame(table)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    fields = [f"`{field.name}` {_SQL_TYPES[field.type]}" for field in table.schema]
    return spark.createDataFrame(rows, ", ".join(fields))
