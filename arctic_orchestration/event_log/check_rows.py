"""Converts a row about an asset check or a freshness policy to an ``Event``.

Dagster leaves the column ``asset_key`` of rows about checks empty, so everything is read from the
stored JSON.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dagster import AssetKey

from arctic_orchestration.event_log.escaping import escaped
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.event_log.log_rows import (
    asset_name,
    body_problem,
    decode,
    from_column,
    labelled,
    metadata_value,
    moment,
    within_calendar,
)

SEVERITIES = ("error", "warn")
FRESHNESS_STATES = ("pass", "warn", "fail", "unknown", "not_applicable")

_LARGEST = 2**63 - 1


class _Reading:
    """The data of one row, whose fields are read one by one; errors are recorded."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        storage_id, _, stamp, self.asset_column, _, run_id, body = row
        self.problem: str | None = None
        self.data: Mapping[str, Any] = {}
        at: datetime | None = None
        try:
            document = decode(body)
            at = moment(document["timestamp"])
            self.data = document["dagster_event"]["event_specific_data"] or {}
            self.data.get("asset_key")
        except Exception as error:
            # json, Dagster's classes and calendars raise different errors.
            self.data, self.problem = {}, body_problem(body, error)
        self.at, self.problem = within_calendar(at or from_column(stamp), self.problem)
        self.storage_id: int = storage_id
        self.run_id = escaped(run_id) if run_id else None

    def note(self, field: str, value: Any, expected: str) -> None:
        """Records a problem, unless there is one already."""
        self.problem = self.problem or f"{field}: got {value!r:.80}, expected {expected}"

    def asset(self, field: str) -> str:
        """Returns the asset key; empty if there is none."""
        try:
            return escaped(AssetKey(self.data[field]["path"]).to_user_string())
        except Exception:
            if self.asset_column:
                return escaped(asset_name(self.asset_column))
            self.note(field, self.data.get(field), "an asset key")
            return ""

    def text(self, field: str, *, required: bool = False) -> str | None:
        """Returns a text, or None if there is none."""
        value = self.data.get(field)
        if isinstance(value, str):
            return escaped(value)
        if value is not None or required:
            self.note(field, value, "a text")
        return None

    def flag(self, field: str, *, required: bool = False) -> bool | None:
        """Returns True or False, or None if the row lacks it."""
        value = self.data.get(field)
        if isinstance(value, bool):
            return value
        if value is not None or required:
            self.note(field, value, "true or false")
        return None

    def member(self, field: str, known: tuple[str, ...]) -> str | None:
        """Returns the member of one of Dagster's enums, in lower case."""
        value = self.data.get(field)
        name = value.get("__enum__") if isinstance(value, dict) else None
        member = str(name).rpartition(".")[2].lower()
        if member in known:
            return member
        self.note(field, value, f"one of {', '.join(known)}")
        return None

    def metadata(self) -> dict[str, Any]:
        """Returns the entries that can be read."""
        entries, values = self.data.get("metadata"), {}
        for label, entry in entries.items() if isinstance(entries, dict) else ():
            try:
                values[label] = metadata_value(entry)
            except Exception:
                self.note(f"metadata.{label}", entry, "a metadata value of Dagster")
        return labelled(values)

    def target_id(self) -> int | None:
        """Returns the storage id of the materialization that was checked."""
        target = self.data.get("target_materialization_data")
        number = target.get("storage_id") if isinstance(target, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and 0 < number <= _LARGEST:
            return number
        if target is not None:
            self.note("target_materialization_data", target, "a storage id")
        return None


def evaluation(row: tuple[Any, ...]) -> Event:
    """Returns the CHECK event of a row ``ASSET_CHECK_EVALUATION``; never raises."""
    reading = _Reading(row)
    asset = reading.asset("asset_key")
    check = reading.text("check_name", required=True)
    passed = reading.flag("success", required=True)
    severity = reading.member("severity", SEVERITIES)
    partition = reading.text("partition")
    return Event(
        kind=EventKind.CHECK,
        subject=asset,
        at=reading.at,
        storage_id=reading.storage_id,
        run_id=reading.run_id,
        partition=partition,
        metadata=reading.metadata(),
        check=check,
        passed=passed,
        severity=severity,
        blocking=reading.flag("blocking"),
        target_id=reading.target_id(),
        problem=None if reading.problem is None else escaped(reading.problem),
    )


def freshness_change(row: tuple[Any, ...]) -> Event:
    """Returns the FRESHNESS event of a row ``FRESHNESS_STATE_CHANGE``; never raises."""
    reading = _Reading(row)
    return Event(
        kind=EventKind.FRESHNESS,
        subject=reading.asset("key"),
        at=reading.at,
        storage_id=reading.storage_id,
        run_id=reading.run_id,
        state=reading.member("new_state", FRESHNESS_STATES),
        previous_state=reading.member("previous_state", FRESHNESS_STATES),
        problem=None if reading.problem is None else escaped(reading.problem),
    )


def planned_check(row: tuple[Any, ...]) -> tuple[str, str] | None:
    """Asset and check of a row ``ASSET_CHECK_EVALUATION_PLANNED``; None: it cannot be read."""
    reading = _Reading(row)
    asset, check = reading.asset("asset_key"), reading.text("check_name")
    return (asset, check) if asset and check is not None else None
