"""The forms of announcements, and the answers about events."""

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from arctic_orchestration.documents import At, Document
from arctic_orchestration.event_log.escaping import (
    ASSET_KEY,
    LONGEST_KEY,
    is_asset_key,
    reserved_key,
)
from arctic_orchestration.schedules.views.event_effects import Effect
from arctic_orchestration.service.documents import Page
from arctic_orchestration.specification import Specification

#: the maximum number of arrivals of one announcement
MOST_ARRIVALS = 10_000
_LARGEST = 2**63 - 1
_EXAMPLE: dict[str, Any] = {
    "arrivals": [{"asset": "raw/flights", "partition": "2013-01-01", "bytes": 1_048_576}]
}
_OWN_FIELDS = ("path", "bytes", "rows")


def _asset_key(text: str) -> str:
    if not is_asset_key(text):
        raise ValueError(ASSET_KEY)
    return text


def _metadata(values: dict[str, Any]) -> dict[str, Any]:
    if any(name in _OWN_FIELDS or not name for name in values):
        raise ValueError(f"other keys: {', '.join(_OWN_FIELDS)} stand beside metadata")
    if reserved_key(values) is not None:
        raise ValueError(f"keys that Dagster does not use itself, unlike {reserved_key(values)}")
    return values


_Number = Annotated[int, Field(ge=0, le=_LARGEST, strict=True)]


class ArrivalForm(Specification):
    """A partition that has arrived."""

    asset: Annotated[
        str, Field(max_length=LONGEST_KEY, min_length=1), AfterValidator(_asset_key)
    ] = Field(examples=["raw/flights"])
    partition: str = Field(min_length=1, max_length=LONGEST_KEY, examples=["2013-01-01"])
    #: where its data is
    path: str | None = None
    bytes: _Number | None = None
    rows: _Number | None = None
    #: more of it, as JSON values
    metadata: Annotated[dict[str, Any], AfterValidator(_metadata)] = Field({})


class AnnouncementForm(Specification):
    """Partitions that have arrived, all of which are announced or none."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    arrivals: Annotated[list[ArrivalForm], Field(min_length=1, max_length=MOST_ARRIVALS)]
    #: announce them, though no code location has them
    force: Annotated[bool, Field(strict=True)] = False


class AnnouncementDocument(Document):
    """An announcement that is in Dagster's event log."""

    #: the tag ``arctic/announcement`` of its materializations
    id: str
    arrivals: int
    #: how many of each asset
    assets: dict[str, int]


class EventDocument(Document):
    """An event that a schedule took; what it has not is left out."""

    number: int
    at: At
    #: when the dispatcher read it
    taken_at: At
    #: the location whose schedules took it
    taken_in: str
    kind: str
    subject: str
    #: its jobs; none: its schedules ignored it, or it waits for a check or a mapping
    jobs: list[Effect]
    storage_id: int | None = None
    run_id: str | None = None
    partition: str | None = None
    bytes: int | None = None
    rows: int | None = None
    status: str | None = None
    location: str | None = None
    assets: list[str] | None = None
    tags: dict[str, str] | None = None
    started: bool | None = None
    metadata: dict[str, Any] | None = None
    data_version: str | None = None
    check: str | None = None
    passed: bool | None = None
    severity: str | None = None
    blocking: bool | None = None
    target_id: int | None = None
    state: str | None = None
    previous_state: str | None = None
    problem: str | None = None


class EventPage(Page):
    """Events, newest first."""

    events: list[EventDocument]


class SetOffDocument(Effect):
    """A job that took an event, with the events of its run."""

    events: list["EventDetails"]
    #: whether its run may have made more: an answer has the events of at most 100 runs, at most 100
    more: bool


class EventDetails(EventDocument):
    """An event with everything that it set off."""

    jobs: list[SetOffDocument]  # type: ignore[assignment]
