"""The lease on a hand-out: a launch request belongs to one tick of Dagster's sensor at a time.

Two daemons may work on one instance for a moment in every rolling restart. Both look for the run
of a request before either has stored it, so a request handed to both becomes two runs. Therefore
the job's row names the tick that has its request, written under the lock of the location's row.
The request is handed out again only when the lease of that tick has ended:

1. Dagster's record of the tick says that no daemon works on it any more (:class:`Ticks`). The next
   daemon resumes a tick whose daemon died, under the run ids that the tick has reserved; the tick
   stays open until then. The record is read *before* runs are looked up: that look-up sees every
   run the tick has created, and the request of such a run is not handed out again.
2. Or the tick has launched no run for ``launch_requests.LEASE``, by the database's time. Its
   record can stay open forever: of two daemons that overlap, neither resumes a tick older than
   the newest one.

No record distinguishes a paused daemon from a dead one. A daemon that is paused for longer than its
lease, and then creates a run, makes a second run of the job. That run ends before its first step,
because a job's runs claim its row when they begin.
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
        """The id of the tick under evaluation, or None if hand-outs are not recorded."""
        ...

    def ended(self, ticks: Collection[str]) -> Collection[str]:
        """Returns the ticks among these in which no daemon will create a run any more."""
        ...

    def failed(self, ticks: Collection[str]) -> Mapping[str, TickFailure]:
        """Returns the ticks among these that failed while their requests were submitted."""
        ...


@dataclass(frozen=True)
class NoTicks:
    """For an engine without a sensor: requests are handed out until their run is seen."""

    current: str | None = None

    def ended(self, ticks: Collection[str]) -> Collection[str]:
        """Returns all of them."""
        return ticks

    def failed(self, ticks: Collection[str]) -> Mapping[str, TickFailure]:  # noqa: ARG002
        """Returns no failures: none are recorded."""
        return {}
