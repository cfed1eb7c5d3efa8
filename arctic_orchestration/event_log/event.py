"""Events: durable facts that schedules wait for, and the keys that lead from them to schedules."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from arctic_orchestration.event_log.escaping import escaped


class EventKind(StrEnum):
    """The kind of fact that an event is."""

    #: A partition of an asset arrived: it was materialized, or observed from outside.
    PARTITION = "partition"
    #: A run reached a status.
    RUN = "run"
    #: A moment of a schedule's cron expression has come.
    TICK = "tick"
    #: An asset check was evaluated.
    CHECK = "check"
    #: The state of an asset's freshness policy changed.
    FRESHNESS = "freshness"
    #: A plain sensor of Dagster that is a source requested a run.
    REQUEST = "request"


class RunStatus(StrEnum):
    """The status of a run."""

    #: It waits for the run coordinator to let it start.
    QUEUED = "queued"
    #: Its process is being started.
    STARTING = "starting"
    #: It is running.
    STARTED = "started"
    #: It ended, and all its steps succeeded.
    SUCCESS = "success"
    #: It ended with an error, or its process was lost.
    FAILURE = "failure"
    #: A person or a program ended it before it was done.
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        """Whether no other status follows."""
        return self in _ENDED


#: stands for every code location in the key of a run
ANY_LOCATION = "*"

_ENDED = frozenset({RunStatus.SUCCESS, RunStatus.FAILURE, RunStatus.CANCELED})


class EventKey(str):
    """The string that leads from an event to the schedules that listen to it.

    ========================================  ==============================================
    ``partition:<asset/key>``                 a partition of the asset arrived
    ``run:<location>:job:<job>:<status>``     a run of the job reached the status
    ``run:<location>:asset:<key>:<status>``   a run that was to materialize the asset did
    ``run:*:...``                             the same, in whatever code location
    ``check:<asset/key>``                     a check of the asset was evaluated
    ``freshness:<asset/key>``                 the asset's freshness policy changed its state
    ``request:<sensor>``                      the source of the code location requested a run
    ========================================  ==============================================

    As in events, characters that databases cannot store are escaped.
    """

    __slots__ = ()

    @classmethod
    def of_partition(cls, asset: str) -> "EventKey":
        """Returns the key of arrivals at an asset, given as ``raw/flights``."""
        return _partition_key(asset)

    @classmethod
    def of_job_run(cls, location: str | None, job: str, status: RunStatus) -> "EventKey":
        """Returns the key of a job's runs; ``location`` is the code location's name, if known."""
        return cls(escaped(f"run:{location or ''}:job:{job}:{status.value}"))

    @classmethod
    def of_asset_run(cls, location: str | None, asset: str, status: RunStatus) -> "EventKey":
        """Returns the key of the runs that were to materialize an asset."""
        return cls(escaped(f"run:{location or ''}:asset:{asset}:{status.value}"))

    @classmethod
    def of_check(cls, asset: str) -> "EventKey":
        """Returns the key of the evaluations of all checks of an asset."""
        return cls(escaped(f"check:{asset}"))

    @classmethod
    def of_freshness(cls, asset: str) -> "EventKey":
        """Returns the key of the state changes of an asset's freshness policy."""
        return cls(escaped(f"freshness:{asset}"))

    @classmethod
    def of_request(cls, sensor: str) -> "EventKey":
        """Returns the key of the requests of a source of the own code location."""
        return cls(escaped(f"request:{sensor}"))


@lru_cache(maxsize=65_536)
def _partition_key(asset: str) -> EventKey:
    return EventKey(escaped(f"partition:{asset}"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One durable fact.

    Attributes:
        kind: the kind of fact.
        subject: the asset key as ``raw/flights``, the job's name, for ticks the schedule's, for
            requests the sensor's.
        at: when it happened, aware UTC.
        storage_id: the id in Dagster's event log; 0 for ticks and requests.
        run_id: the run that wrote it or that it is about; None if it was reported without one.
        partition: the partition key: PARTITION events: if the asset is partitioned; RUN events: of
            a run of one partition, from its tag ``dagster/partition``; CHECK events: the checked
            partition, or that of the checked materialization; REQUEST events: the requested one.
        bytes: how much arrived, if the metadata has it.
        rows: how many rows arrived, if the metadata has it.
        status: RUN events: the status reached.
        location: RUN events: the code location of the run, under the name by which its state is
            stored; if its record names one.
        assets: RUN events: the assets that the run was to materialize; REQUEST events: the
            requested ones, if the request selects some.
        tags: RUN events: the run's tags; REQUEST events: the requested ones.
        started: RUN events: the run got beyond the queue; its record has a start time.
        metadata: PARTITION and CHECK events: label to a JSON value.
        data_version: PARTITION events: the asset's data version, if Dagster stored one.
        check: CHECK events: the name of the check.
        passed: CHECK events: whether the check passed; None: the row lacks it.
        severity: CHECK events: ``error`` or ``warn``.
        blocking: CHECK events: whether a failure stops the steps downstream.
        target_id: CHECK events: the storage id of the checked materialization.
        state: FRESHNESS events: ``pass``, ``warn``, ``fail``, ``unknown`` or ``not_applicable``.
        previous_state: FRESHNESS events: the state before.
        run_key: REQUEST events: the key of the request, if it has one.
        job: REQUEST events: the requested job, or the one that the sensor targets.
        run_config: REQUEST events: the requested configuration, if there is some.
        problem: what could not be parsed: field, value and what was expected; REQUEST events: why
            no run can be made of it.
    """

    kind: EventKind
    subject: str
    at: datetime
    storage_id: int = 0
    run_id: str | None = None
    partition: str | None = None
    bytes: int | None = None
    rows: int | None = None
    status: RunStatus | None = None
    location: str | None = None
    assets: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    started: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    data_version: str | None = None
    check: str | None = None
    passed: bool | None = None
    severity: str | None = None
    blocking: bool | None = None
    target_id: int | None = None
    state: str | None = None
    previous_state: str | None = None
    run_key: str | None = None
    job: str | None = None
    run_config: Mapping[str, Any] | None = None
    problem: str | None = None

    @property
    def keys(self) -> tuple[EventKey, ...]:
        """The keys by which schedules are looked up; none for ticks."""
        if self.kind is EventKind.PARTITION:
            return (_partition_key(self.subject),)
        if self.kind is EventKind.RUN and self.status is not None:
            status = self.status
            return tuple(
                key
                for location in (self.location, ANY_LOCATION)
                for key in (
                    EventKey.of_job_run(location, self.subject, status),
                    *(EventKey.of_asset_run(location, asset, status) for asset in self.assets),
                )
            )
        if self.kind is EventKind.CHECK:
            return (EventKey.of_check(self.subject),)
        if self.kind is EventKind.FRESHNESS:
            return (EventKey.of_freshness(self.subject),)
        if self.kind is EventKind.REQUEST:
            return (EventKey.of_request(self.subject),)
        return ()

    def to_json(self) -> dict[str, Any]:
        """Returns the event as JSON values; empty fields are left out."""
        document: dict[str, Any] = {
            "kind": self.kind.value,
            "subject": self.subject,
            "at": self.at.astimezone(UTC).isoformat(),
        }
        for name in _PLAIN_FIELDS:
            value = getattr(self, name)
            if value is not None:
                document[name] = value
        if self.storage_id:
            document["storage_id"] = self.storage_id
        if self.status is not None:
            document["status"] = self.status.value
        if self.assets:
            document["assets"] = list(self.assets)
        if self.tags:
            document["tags"] = dict(self.tags)
        if self.started:
            document["started"] = True
        if self.metadata:
            document["metadata"] = dict(self.metadata)
        return document

    @classmethod
    def parse(cls, details: str) -> "Event":
        """Parses the event in a row of ``arctic_events``."""
        return cls.from_json(json.loads(details))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Event":
        """Parses the form that ``to_json`` made."""
        status = document.get("status")
        return cls(
            kind=EventKind(document["kind"]),
            subject=document["subject"],
            at=datetime.fromisoformat(document["at"]),
            storage_id=document.get("storage_id", 0),
            status=RunStatus(status) if status is not None else None,
            assets=tuple(document.get("assets", ())),
            tags=document.get("tags", {}),
            started=document.get("started", False),
            metadata=document.get("metadata", {}),
            **{name: document.get(name) for name in _PLAIN_FIELDS},
        )


_PLAIN_FIELDS = (
    "run_id",
    "partition",
    "bytes",
    "rows",
    "location",
    "data_version",
    "check",
    "passed",
    "severity",
    "blocking",
    "target_id",
    "state",
    "previous_state",
    "run_key",
    "job",
    "run_config",
    "problem",
)
