"""The functions of the batches: tasks that are simpler in Python than in SQL."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from arctic_orchestration.freshness.dagster.materialization import TaskRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def scorecard(run: TaskRun) -> "DataFrame":
    """Returns one row a figure: its name, and its value as text."""
    ranking = _newest(run, "punctuality.ranking")
    hours = _newest(run, "punctuality.hours")
    worst = _newest(run, "punctuality.worst_routes")
    best = ranking.orderBy("place", "carrier").first()
    latest = hours.where("mean_dep_delay is not null").orderBy(F.desc("mean_dep_delay")).first()
    route = worst.orderBy(F.desc("mean_arr_delay")).first()
    figures = [
        ("best carrier", best["carrier"] if best else None),
        ("latest hour", str(latest["hour"]) if latest else None),
        ("latest route", f"{route['origin']}-{route['dest']}" if route else None),
        ("carriers", str(ranking.count())),
    ]
    return run.spark.createDataFrame(figures, "figure string, value string")


def report_overview(run: TaskRun) -> dict[str, str]:
    """Writes a line a hub, in the log and as metadata."""
    lines = {
        row["origin"]: (
            f"{row['destinations']} destinations, {row['flights']} flights; "
            f"the most punctual carrier is {row['best_carrier']}"
        )
        for row in _newest(run, "network.overview").orderBy("origin").collect()
    }
    for origin, line in lines.items():
        run.log.info("%s: %s", origin, line)
    return lines


def _newest(run: TaskRun, table: str) -> "DataFrame":
    """Returns the rows of the newest partition of a task's table."""
    rows = run.read(table)
    return rows.where(F.col("as_of") == rows.agg(F.max("as_of")).first()[0])  # type: ignore[index]
