"""Sources: plain sensors of Dagster whose run requests become events.

``Arctic(sources=[sensor])`` evaluates the sensor in the dispatcher's tick, outside of any
transaction, with the cursor in its row and at its own minimum interval. One transaction then gives
the requests to the schedules that take them, stores their run keys, and moves the row's cursor and
tick number on, if the tick number is still the one that was read. So of two dispatchers that
evaluate a sensor at the same time one stores its requests, and after a crash before the commit the
sensor is evaluated again with the same cursor. Nothing is deduced from the cursor itself, which a
sensor need not move.

A run key is taken once for ever in a location and source, as Dagster does it; requests without one
all count. A source is evaluated only while a schedule takes its requests: suspending the schedule
(unless it goes on collecting) stops the sensor where it is. A request that none of the schedules
takes is dropped with a warning, and its run key stays unused.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from arctic_orchestration.event_log.event import Event


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceState:
    """How far a source has been evaluated."""

    name: str
    cursor: str | None = None
    #: the number of the next evaluation
    tick: int = 0
    last_run_key: str | None = None
    evaluated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The result of a sensor's function."""

    #: the state that it was evaluated with
    state: SourceState
    requests: Sequence[Event] = ()
    cursor: str | None = None
    #: why it requests no run, in its own words
    skipped: str | None = None
    #: why it failed: nothing of it is stored
    problem: str | None = None
    #: run keys of which Dagster has made runs: they count as taken
    launched: Collection[str] = ()


class Sources(Protocol):
    """The sources of a code location."""

    @property
    def intervals(self) -> Mapping[str, timedelta]:
        """The minimum interval between two evaluations of each source, by its name."""
        ...

    @property
    def adopted(self) -> Collection[str]:
        """The sources that Dagster may have evaluated itself before."""
        ...

    def evaluate(self, due: Sequence[SourceState]) -> Sequence[Evaluation]:
        """Evaluates sources; does not raise, and leaves out those that take long."""
        ...

    def launched(self, name: str, run_keys: Sequence[str]) -> Collection[str]:
        """Returns the run keys of which Dagster has made runs for an adopted source."""
        ...


class NoSources:
    """A code location without sources."""

    intervals: Mapping[str, timedelta] = {}
    adopted: Collection[str] = ()

    def evaluate(self, due: Sequence[SourceState]) -> Sequence[Evaluation]:  # noqa: ARG002
        return ()

    def launched(self, name: str, run_keys: Sequence[str]) -> Collection[str]:  # noqa: ARG002
        return ()
