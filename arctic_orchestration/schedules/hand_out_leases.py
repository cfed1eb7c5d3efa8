"""The lease on a hand-out: a launch request belongs to one tick of Dagster's sensor at a time.

Two daemons may work on one instance, for a moment in every rolling restart. Both look for the run
of a request before either has stored it, so a request that is handed to both becomes two runs.
Therefore the job's row names the tick that was given its request, written under the lock of the
location's row, and the request is handed out again only when the lease of that tick is over:

1. Dagster's record of the tick says that nobody works on it any more (:class:`Ticks`). A tick
   whose daemon died is resumed by the next daemon under the run ids that it has reserved, and
   remains open until then. The record is read *before* runs are looked up: what such a tick has
   created is seen by that look-up, and its request is not handed out again.
2. Or the tick has launched no run for ``launch_requests.LEASE``, by the database's time. Its
   record can stay open for ever: of two daemons that overlap, neither
   resumes a tick older than the newest one.

No record tells a daemon that is paused from one that is dead. One that is paused for longer than
its lease, and then creates a run, makes a second run of the job. That run ends before its first
step: a job's runs claim its row when they begin.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class TickFailure(Protocol):
    """A tick in which Dagster's daemon failed at a request."""

    @property
    def error(self) -> str:
        """The first line of the daemon's error."""
        ...

    @property
    def unmade(self) -> Sequence[str]:
        """The run keys of the requests without a run, in the order of their submission."""
        ...


class Ticks(Protocol):
    """The ticks of the sensor to which requests are handed."""

    @property
    def current(self) -> str | None:
        """The id of the tick that is being evaluated; none: what it is given is not recorded."""
        ...

    def ended(self, ticks: Collection[str]) -> Collection[str]:
        """Those of the ticks in which no daemon will create a run any more."""
        ...

    def failed(self, ticks: Collection[str]) -> Mapping[str, TickFailure]:
        """Those of the ticks that failed while their requests were submitted."""
        ...


@dataclass(frozen=True)
class NoTicks:
    """Of an engine that no sensor evaluates: requests are handed out until their run is seen."""

    current: str | None = None

    def ended(self, ticks: Collection[str]) -> Collection[str]:
        """All of them."""
        return ticks

    def failed(self, ticks: Collection[str]) -> Mapping[str, TickFailure]:  # noqa: ARG002
        """None is known."""
        return {}
