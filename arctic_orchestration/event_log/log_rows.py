"""Converts a row of Dagster's ``event_logs`` to an ``Event``.

The stored text of an event is Dagster's own JSON. Only a few of its fields are needed, so the json
module reads them, at a twentieth of the cost of Dagster's deserialization; unknown shapes go
through Dagster's own code. A test compares the two.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from dagster import AssetKey, EventLogEntry, deserialize_value

from arctic_orchestration.dagster_internals import pack_value
from arctic_orchestration.event_log.escaping import escaped, storable
from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.quantities import YEARS

#: The columns of a row, in this order. The time as text: a driver may fail to parse it.
COLUMNS = 'id, dagster_event_type, cast("timestamp" as text), asset_key, "partition", run_id, event'

OBSERVATION = "ASSET_OBSERVATION"
ARRIVALS = ("ASSET_MATERIALIZATION", OBSERVATION)
RUN_STATUS_OF_TYPE: Mapping[str, RunStatus] = {
    "PIPELINE_ENQUEUED": RunStatus.QUEUED,
    "PIPELINE_STARTING": RunStatus.STARTING,
    "PIPELINE_START": RunStatus.STARTED,
    "PIPELINE_SUCCESS": RunStatus.SUCCESS,
    "PIPELINE_FAILURE": RunStatus.FAILURE,
    "PIPELINE_CANCELED": RunStatus.CANCELED,
}
CHECK = "ASSET_CHECK_EVALUATION"
CHECK_PLANNED = "ASSET_CHECK_EVALUATION_PLANNED"
FRESHNESS = "FRESHNESS_STATE_CHANGE"
#: The types of rows that become events.
TYPES = (*ARRIVALS, *RUN_STATUS_OF_TYPE, CHECK, FRESHNESS)

_DATA_VERSION_TAG = "dagster/data_version"

#: Metadata labels with the amount that arrived; the first existing one counts.
BYTES_LABELS = ("bytes", "size_bytes")
ROWS_LABELS = ("rows", "row_count", "dagster/partition_row_count", "dagster/row_count")

#: Moments outside of these are mistakes, which calendars cannot handle.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)

_LARGEST = 2**63 - 1
_WHOLE = "a whole number of at least 0, below 2^63"

# NaN and Infinity are no JSON; as words every database can store them.
decode = json.JSONDecoder(parse_constant=str).decode

#: The location of the value in the stored form of each plain kind of metadata.
_VALUE_FIELD = {
    "TextMetadataEntryData": "text",
    "UrlMetadataEntryData": "url",
    "PathMetadataEntryData": "path",
    "NotebookMetadataEntryData": "path",
    "JsonMetadataEntryData": "data",
    "MarkdownMetadataEntryData": "md_str",
    "FloatMetadataEntryData": "value",
    "IntMetadataEntryData": "value",
    "BoolMetadataEntryData": "value",
    "TimestampMetadataValue": "value",
    "DagsterPipelineRunMetadataEntryData": "run_id",
    "PoolMetadataValue": "pool",
    "ObjectMetadataValue": "class_name",
}
_STRUCTURED = frozenset(
    {
        "DagsterJobMetadataValue",
        "PythonArtifactMetadataEntryData",
        "TableMetadataEntryData",
        "TableSchemaMetadataEntryData",
        "TableColumnLineageMetadataValue",
        "CodeLocationReconstructionMetadataValue",
        "CodeReferencesMetadataValue",
    }
)


class _UnknownShapeError(Exception):
    """An unknown stored form."""


def arrival(row: tuple[Any, ...]) -> Event:
    """Returns the PARTITION event of a materialization's or an observation's row; never raises.

    Errors go into ``problem``; the columns alone suffice for the arrival itself.
    """
    storage_id, _, stamp, key, partition, run_id, body = row
    metadata: dict[str, Any] = {}
    version = problem = None
    at = None
    try:
        document = decode(body)
        at = moment(document["timestamp"])
        data = document["dagster_event"]["event_specific_data"]
        found = data.get("materialization") or data["asset_observation"]
        version = _data_version(found)
        try:
            metadata = {
                entry["label"]: metadata_value(entry["entry_data"])
                for entry in found["metadata_entries"]
            }
        except Exception:
            metadata, problem = _by_dagster(body, found)
    except Exception as error:
        # json, Dagster's classes and calendars raise different errors.
        problem = body_problem(body, error)
    size, problem = _amount(metadata, BYTES_LABELS, problem)
    rows, problem = _amount(metadata, ROWS_LABELS, problem)
    subject = asset_name(key) if key else ""
    if not key:
        problem = problem or f"asset_key: got {key!r}, expected an asset key"
    within, problem = within_calendar(at or from_column(stamp), problem)
    for name, text in (("asset_key", subject), ("partition", partition)):
        if text is not None and escaped(text) != text:
            problem = problem or f"{name}: got {text!r}, kept escaped as {escaped(text)}"
    return Event(
        kind=EventKind.PARTITION,
        subject=escaped(subject),
        at=within,
        storage_id=storage_id,
        run_id=escaped(run_id) if run_id else None,
        partition=None if partition is None else escaped(partition),
        bytes=size,
        rows=rows,
        metadata=labelled(metadata),
        data_version=None if version is None else escaped(version),
        problem=None if problem is None else escaped(problem),
    )


def run_moment(row: tuple[Any, ...]) -> tuple[datetime, str, str | None]:
    """Returns when a run status row was written, the name of its job, and its problem."""
    _, _, stamp, _, _, _, body = row
    try:
        document = decode(body)
        at = moment(document["timestamp"])
        return _within(at), str(document.get("pipeline_name") or ""), None
    except Exception as error:
        return _within(from_column(stamp)), "", body_problem(body, error)


@lru_cache(maxsize=65_536)
def asset_name(column: str) -> str:
    """Returns the asset key of a column, ``["raw", "flights"]``, as ``raw/flights``."""
    try:
        key = AssetKey.from_db_string(column)
    except Exception:
        # Dagster's parsing raises errors of many kinds.
        return column
    return key.to_user_string() if key else column


def _data_version(found: Any) -> str | None:
    tags = found.get("tags") if isinstance(found, dict) else None
    version = tags.get(_DATA_VERSION_TAG) if isinstance(tags, dict) else None
    return version if isinstance(version, str) else None


def plain(stored: Any) -> Any:
    """Returns a stored form without the class names that Dagster adds."""
    if isinstance(stored, dict):
        if stored.get("__class__") == "AssetKey":
            return AssetKey(stored["path"]).to_user_string()
        return {name: plain(value) for name, value in stored.items() if name != "__class__"}
    if isinstance(stored, list):
        return [plain(value) for value in stored]
    return stored


def labelled(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns the metadata in a form that every database and JSON can store."""
    return {escaped(str(label)): storable(value) for label, value in metadata.items()}


def metadata_value(stored: dict[str, Any]) -> Any:
    """Returns a metadata value from its stored form.

    Errors:
        _UnknownShapeError, KeyError, TypeError: the form is unknown.
    """
    kind = stored["__class__"]
    name = _VALUE_FIELD.get(kind)
    if name is not None:
        value = stored[name]
        if kind == "JsonMetadataEntryData":
            return value
        if isinstance(value, (dict, list)):
            raise _UnknownShapeError(kind)
        return value
    if kind == "NullMetadataEntryData":
        return None
    if kind == "DagsterAssetMetadataEntryData":
        return AssetKey(stored["asset_key"]["path"]).to_user_string()
    if kind in _STRUCTURED:
        return plain(stored)
    raise _UnknownShapeError(kind)


def _by_dagster(body: str, found: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Reads the metadata through Dagster's own code; entry by entry if that refuses the whole."""
    try:
        event = deserialize_value(body, EventLogEntry).get_dagster_event()
        data = event.event_specific_data
        value = getattr(data, "materialization", None) or getattr(data, "asset_observation", None)
        return {
            label: metadata_value(pack_of(entry))
            for label, entry in value.metadata.items()  # type: ignore[union-attr]
        }, None
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    entries = found.get("metadata_entries") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        return {}, f"metadata_entries: got {_short(entries)}, expected a list"
    metadata: dict[str, Any] = {}
    problem = f"metadata: could not be read ({reason})"
    for entry in entries:
        try:
            metadata[entry["label"]] = metadata_value(entry["entry_data"])
        except Exception:
            label = entry.get("label") if isinstance(entry, dict) else None
            problem = (
                f"metadata {label or '?'}: got {_short(entry)}, "
                f"expected a metadata entry that Dagster can read"
            )
    return metadata, problem


def pack_of(value: Any) -> dict[str, Any]:
    """Returns the stored form of a metadata value that Dagster deserialised."""
    packed = pack_value(value)
    if not isinstance(packed, dict):
        raise _UnknownShapeError(type(value).__name__)
    document: dict[str, Any] = decode(json.dumps(packed))
    return document


def _amount(
    metadata: Mapping[str, Any], labels: tuple[str, ...], problem: str | None
) -> tuple[int | None, str | None]:
    for label in labels:
        if label not in metadata:
            continue
        value = metadata[label]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            return value, problem
        text = f"{label}: got {_short(metadata[label])}, expected {_WHOLE}"
        return None, f"{problem}; {text}" if problem else text
    return None, problem


def moment(seconds: Any) -> datetime:
    """Returns the moment of a number of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def within_calendar(at: datetime, problem: str | None) -> tuple[datetime, str | None]:
    """Returns the moment, or the nearest one that calendars can handle, and the problem."""
    within = _within(at)
    if within != at:
        problem = problem or f"timestamp: got {at:%Y-%m-%d}, expected {YEARS}"
    return within, problem


def _within(at: datetime) -> datetime:
    """Returns the moment, or the nearest one that calendars can handle."""
    return min(max(at, _EARLIEST), _LATEST)


def from_column(stamp: Any) -> datetime:
    """Parses the timestamp column, which is in UTC without a zone."""
    if isinstance(stamp, str):
        try:
            stamp = datetime.fromisoformat(stamp)
        except ValueError:
            stamp = None
    if not isinstance(stamp, datetime):
        return datetime.fromtimestamp(0, UTC)
    return stamp.replace(tzinfo=UTC) if stamp.tzinfo is None else stamp.astimezone(UTC)


def body_problem(body: Any, error: Exception) -> str:
    """Returns the problem of an event's text that could not be read."""
    return (
        f"event: got {_short(body)}, expected an event as Dagster stores it "
        f"({type(error).__name__}: {error})"
    )


def _short(value: Any, length: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "..."
