"""Events that Dagster's storage can hold and that a reader may stumble over, by kind.

Each kind stores one event in a real instance: through Dagster's own interface where that takes
it, and by changing the stored row where only another writer or an older version could have
written it.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import dagster as dg
import psycopg2
from dagster import DagsterEvent, DagsterEventType, EventLogEntry
from dagster._core.events import StepMaterializationData
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME

from arctic_orchestration_tests.event_log.test_dagster_log import queued_run

HALF = "caf\udce9"
NOON = 1_767_268_800.0


def arrive(
    instance: dg.DagsterInstance,
    *,
    asset: Sequence[str] = ("raw", "a"),
    partition: str | None = "odd",
    timestamp: float = NOON,
    metadata: Any = None,
) -> None:
    """An arrival, stored as ``report_runless_asset_event`` stores it."""
    materialization = dg.AssetMaterialization(
        list(asset), partition=partition, metadata=metadata or {}
    )
    event = DagsterEvent(
        event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name="",
        event_specific_data=StepMaterializationData(materialization, []),
    )
    instance.event_log_storage.store_event(
        EventLogEntry(  # type: ignore[no-untyped-call]
            user_message="", level=20, job_name="", run_id="", error_info=None,
            timestamp=timestamp, dagster_event=event,
        )
    )  # fmt: skip


def execute(instance: dg.DagsterInstance, table: str, statement: str, *values: Any) -> None:
    """Runs a statement on the storage of events (``event_logs``) or of runs."""
    storage: Any = instance.event_log_storage if table == "event_logs" else instance.run_storage
    while hasattr(storage, "_storage"):
        inner = storage._storage
        events = table == "event_logs"
        storage = inner.event_log_storage if events else inner.run_storage
    url = getattr(storage, "postgres_url", None)
    if url is not None:
        url = url.replace("+psycopg2", "")
        with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(statement.replace("?", "%s"), values)
            connection.commit()
        return
    if table == "event_logs":
        path = storage.path_for_shard(INDEX_SHARD_NAME)
    else:
        path = storage._conn_string.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as lite:
        lite.execute(statement, values)
        lite.commit()


def change(instance: dg.DagsterInstance, column: str, value: Any) -> None:
    """Gives the newest row of the log another value in one column."""
    newest = "(select max(id) from event_logs)"
    statement = f'update event_logs set "{column}" = ? where id = {newest}'
    execute(instance, "event_logs", statement, value)


def changed(column: str, value: Any) -> Callable[[dg.DagsterInstance], None]:
    """An ordinary arrival whose row has another value in one column."""

    def store(instance: dg.DagsterInstance) -> None:
        arrive(instance)
        change(instance, column, value)

    return store


def deep(depth: int) -> Callable[[dg.DagsterInstance], None]:
    """As a process with a larger limit stores it; of some Pythons, none can be set."""

    def store(instance: dg.DagsterInstance) -> None:
        arrive(instance, metadata={"deep": dg.MetadataValue.json("here")})
        newest = "(select max(id) from event_logs)"
        statement = f"update event_logs set event = replace(event, ?, ?) where id = {newest}"
        execute(instance, "event_logs", statement, '"here"', "[" * depth + "1" + "]" * depth)

    return store


def arrival(**how: Any) -> Callable[[dg.DagsterInstance], None]:
    return lambda instance: arrive(instance, **how)


def run(
    *,
    tags: dict[str, str] | None = None,
    job: str | None = None,
    column: tuple[str, Any] | None = None,
    run_id: str | None = None,
    timestamp: float | None = None,
) -> Callable[[dg.DagsterInstance], None]:
    """A run of ``nightly`` that fails before it starts, with something odd about it."""

    def store(instance: dg.DagsterInstance) -> None:
        made = queued_run("here", tags=tags)
        if job is not None:
            made = made._replace(job_name=job)
        if run_id is not None:
            made = made._replace(run_id=run_id)
        instance.add_run(made)
        if timestamp is None:
            instance.report_run_failed(made, "the process was lost")
        else:
            event = DagsterEvent(
                event_type_value=DagsterEventType.RUN_FAILURE.value, job_name=made.job_name
            )
            instance.event_log_storage.store_event(
                EventLogEntry(  # type: ignore[no-untyped-call]
                    user_message="", level=20, job_name=made.job_name, run_id=made.run_id,
                    error_info=None, timestamp=timestamp, dagster_event=event,
                )
            )  # fmt: skip
        if column is not None:
            name, value = column
            statement = f"update runs set {name} = ? where run_id = ?"
            execute(instance, "runs", statement, value, made.run_id)

    return store


YEAR_1 = -62_135_596_800.0
YEAR_9999 = 253_402_300_799.0

#: kind: what stores it
KINDS: dict[str, Callable[[dg.DagsterInstance], None]] = {
    "half a surrogate pair in the asset key": arrival(asset=["raw", HALF]),
    "half a surrogate pair in metadata text": arrival(metadata={"note": HALF}),
    "half a surrogate pair in a path": arrival(metadata={"path": dg.MetadataValue.path(HALF)}),
    "half a surrogate pair in a label": arrival(metadata={HALF: 1}),
    "half a surrogate pair inside JSON": arrival(
        metadata={"json": dg.MetadataValue.json({HALF: [{"x": HALF}]})}
    ),
    "half a surrogate pair in the partition": arrival(partition=HALF),
    "a whole surrogate pair as two halves": arrival(metadata={"note": "\ud83d\ude00"}),
    "NUL in the asset key": arrival(asset=["raw", "a\0b"]),
    "NUL in the partition": arrival(partition="a\0b"),
    "NUL in metadata text": arrival(metadata={"note": "a\0b"}),
    "NUL in a label": arrival(metadata={"a\0b": 1}),
    "NUL inside JSON": arrival(metadata={"json": dg.MetadataValue.json({"a\0b": ["\0"]})}),
    "JSON nested 400 deep": deep(400),
    "JSON nested 5,000 deep": deep(5_000),
    "an infinite number inside JSON": changed(
        "event", '{"timestamp": 1767268800.0, "dagster_event": {"event_specific_data": '
        '{"materialization": {"metadata_entries": [{"label": "x", "entry_data": '
        '{"__class__": "JsonMetadataEntryData", "data": [1e999]}}]}}}}',
    ),
    "a timestamp of the year 1": arrival(timestamp=YEAR_1),
    "a timestamp of the year 9999": arrival(timestamp=YEAR_9999),
    "a time that is no number": changed("event", '{"timestamp": NaN}'),
    "a time that no calendar has": changed("event", '{"timestamp": 1e300}'),
    "a text that is no event": changed("event", "not JSON at all"),
    "a text nested 100,000 deep": changed("event", "[" * 100_000),
    "a number of 5,000 digits": changed("event", '{"timestamp": ' + "9" * 5_000 + "}"),
    "an asset key that is no list of names": changed("asset_key", "[1, null]"),
    "an asset key nested 100,000 deep": changed("asset_key", "[" * 100_000),
    "an asset key that is no JSON": changed("asset_key", "{\x01"),
    "an empty asset key": changed("asset_key", ""),
    "an asset key of 10,000 letters": arrival(asset=["".join(map(chr, range(300, 10_300)))]),
    "a partition of 10,000 letters": arrival(partition="".join(map(chr, range(300, 10_300)))),
    "escape sequences and newlines": arrival(
        asset=["raw", "a"], partition="x\x1b[2J\ny", metadata={"\x1b]0;t\x07": "\x9b2J"}
    ),
    "half a surrogate pair in a tag of a run": run(tags={"who": HALF}),
    "NUL in a tag of a run": run(tags={"wh\0": "a\0b"}),
    "NUL in the name of a job": run(job="night\0ly"),
    "half a surrogate pair in the name of a job": run(job=HALF),
    "NUL in the id of a run": run(run_id="a\0b"),
    "a job's tag that names no job": run(tags={"arctic/job": "'; \N{BLACK HEART SUIT} " * 60}),
    "a run in the year 1": run(timestamp=YEAR_1),
    "a run in the year 9999": run(timestamp=YEAR_9999),
    "the record of a run that is no JSON": run(column=("run_body", "{")),
    "the record of a run nested 100,000 deep": run(column=("run_body", "[" * 100_000)),
    "a job's name that is no text in the record of a run": run(column=("pipeline_name", "")),
    "a run that began at no time": run(column=("start_time", 1e300)),
}  # fmt: skip

#: kinds that are no arrivals of raw/a
OTHERS = {
    kind for kind in KINDS
    if "asset key" in kind or kind.startswith(("a run ", "the record of a run", "a job's"))
    or kind.endswith((" of a run", " of a job"))
}  # fmt: skip

#: what Dagster's own storage does not take
REFUSED = {
    "sqlite": {
        "half a surrogate pair in the partition",
        "half a surrogate pair in a tag of a run",
        "half a surrogate pair in the name of a job",
        "NUL in the id of a run",
    },
    "postgres": {
        "half a surrogate pair in the partition",
        "half a surrogate pair in a tag of a run",
        "half a surrogate pair in the name of a job",
        "NUL in the id of a run",
        "NUL in the partition",
        "NUL in a tag of a run",
        "NUL in the name of a job",
        "an asset key of 10,000 letters",
        "a partition of 10,000 letters",
    },
}
