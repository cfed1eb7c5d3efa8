"""What schedules, consumers and tasks ask Dagster's run storage about the runs they requested."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from arctic_orchestration.event_log.event import RunStatus


class RunView(Protocol):
    """A run in Dagster's storage."""

    @property
    def run_id(self) -> str: ...
    @property
    def status(self) -> RunStatus: ...
    @property
    def started(self) -> bool:
        """Whether it got beyond the run queue."""
        ...

    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def submitted(self) -> bool:
        """Whether it was handed to the run coordinator; before that only its request exists."""
        ...


class RunLookup(Protocol):
    """Looks up runs."""

    def run_statuses(self, run_ids: Sequence[str]) -> Mapping[str, RunView]:
        """Returns the runs with these ids; deleted runs are left out."""
        ...

    def runs_by_tag(self, key: str, values: Sequence[str]) -> Mapping[str, Sequence[RunView]]:
        """Returns the runs that carry a tag with one of the values, by value, oldest first."""
        ...


class RetryLookup(RunLookup, Protocol):
    """Looks up runs that Dagster may retry."""

    @property
    def retries_enabled(self) -> bool:
        """Whether Dagster may retry failed runs itself; a tag of the run then says so."""
        ...


class FailureLookup(RunLookup, Protocol):
    """Looks up runs and their failures."""

    def why_failed(self, run_id: str) -> str | None:
        """Returns why a run failed, in Dagster's words; none: unknown."""
        ...
