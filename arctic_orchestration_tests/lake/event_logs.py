"""Lines of Spark's event logs, as Spark 4.1 writes them with Iceberg's runtime 1.12."""

import json
from collections.abc import Sequence
from typing import Any

#: the numbers of metrics in an execution, and their names
_METRICS = (
    "number of output rows",
    "number of result data files",
    "number of skipped data files",
    "total data file size (bytes)",
)
_SQL = "org.apache.spark.sql.execution.ui.SparkListener"


def planned(
    execution: int,
    filters: str,
    *,
    table: str = "lake.lake.flights",
    at: int = 0,
    form: str = "IcebergScan(table={table}, schemaId=0, snapshotId=7, branch=null, "
    "filters={filters}, runtimeFilters=, groupedBy=)",
    beside: Sequence[dict[str, Any]] = (),
) -> str:
    """The start of an execution that scans a table, ``at`` seconds after 2026."""
    node = scan(execution, filters, table=table, form=form)
    plan = {"nodeName": "HashAggregate", "simpleString": "HashAggregate(keys=[])", "metadata": {}}
    return json.dumps(
        {
            "Event": f"{_SQL}SQLExecutionStart",
            "executionId": execution,
            "description": "count at flights",
            "sparkPlanInfo": plan | {"children": [node, *beside], "metrics": []},
            "time": 1_767_225_600_000 + at * 1000,
        }
    )


def scan(execution: int, filters: str, *, table: str, form: str) -> dict[str, Any]:
    description = form.format(table=table, filters=filters)
    return {
        "nodeName": f"BatchScan {table}",
        "simpleString": f"BatchScan {table}[origin#28] {description} RuntimeFilters: []",
        "children": [],
        "metadata": {},
        "metrics": [
            {"name": name, "accumulatorId": execution * 100 + number, "metricType": "sum"}
            for number, name in enumerate(_METRICS)
        ],
    }


def replanned(line: str, add: int) -> str:
    """The same plan as adaptive execution writes it again, with metrics of other numbers."""
    event = json.loads(line)
    for node in event["sparkPlanInfo"]["children"]:
        for metric in node["metrics"]:
            metric["accumulatorId"] += add
    kept = {name: event[name] for name in ("executionId", "sparkPlanInfo")}
    return json.dumps({"Event": f"{_SQL}SQLAdaptiveExecutionUpdate", **kept})


def measured(execution: int, files: int, skipped: int, size: int, add: int = 0) -> str:
    """What the scan of an execution has read."""
    first = execution * 100 + add
    updates = [[first + 1, files], [first + 2, skipped], [first + 3, size]]
    return json.dumps(
        {
            "Event": f"{_SQL}DriverAccumUpdates",
            "executionId": execution,
            "accumUpdates": updates,
        }
    )
