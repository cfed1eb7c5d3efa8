"""The base of constraints: pure rules that decide on a job with a verdict.

A constraint evaluates the facts of one job and the time. Its verdict is *admit*, *hold* (with the
reason, and when to check again or what to wait for) or *cancel*. Facts about runs that may change
meanwhile are counted under locks: :meth:`Constraint.resources` gives the resources to lock before
the evaluation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.specification import Tagged


class Decision(StrEnum):
    """The three possible decisions."""

    ADMIT = "admit"
    HOLD = "hold"
    CANCEL = "cancel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A constraint's decision, with its reason."""

    decision: Decision
    reason: str
    #: hold only: when the verdict may change without an event
    recheck_at: datetime | None = None
    #: hold only: the resources whose release may change the verdict
    waits_for: tuple[str, ...] = ()


class Facts(Protocol):
    """The facts about a job that a constraint may use."""

    @property
    def satisfied_at(self) -> datetime:
        """When the job's trigger was satisfied."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """The resources of the job's own target."""
        ...

    @property
    def place(self) -> str:
        """The cluster and code location, as in the names of resources."""
        ...

    def active(self, resources: tuple[str, ...]) -> int:
        """Returns how many runs hold one of ``resources``, or are on their way to."""
        ...

    def launches(self, resources: tuple[str, ...], since: datetime) -> Sequence[datetime]:
        """Returns when holders of one of ``resources`` were launched after ``since``, in order."""
        ...

    def last_end(self, resources: tuple[str, ...], statuses: tuple[str, ...]) -> datetime | None:
        """Returns when the last run with one of ``resources`` ended in one of the statuses.

        Statuses are those of :class:`~arctic_orchestration.event_log.event.RunStatus`.
        """
        ...

    def load(self, probe: str) -> float | None:
        """Returns the load as a share of the capacity, 0 to 1 and above; None: unmeasurable."""
        ...

    def fresh_at(self, parent: str) -> datetime | None:
        """Returns when an asset was last materialized, or a job of the location succeeded."""
        ...

    @property
    def partition(self) -> str | None:
        """The job's partition, or None if it is not for one partition."""
        ...

    @property
    def trigger_assets(self) -> tuple[str, ...]:
        """The assets in the trigger of the job's schedule."""
        ...

    def checks(self, asset: str) -> Mapping[str, Event | None]:
        """Returns the latest CHECK event of each check of an asset, by its name.

        Evaluations of other partitions than the job's do not count. None: the check exists and was
        never evaluated.
        """
        ...


class Constraint(Tagged):
    """The base of all constraints."""

    #: whether a job that is not admitted waits or is discarded
    otherwise: Literal["hold", "cancel"] = "hold"

    def resources(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the resources whose holders it counts, for a job with these targets."""
        return ()

    def watched(self, place: str, trigger_assets: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the resources whose holders it counts, without becoming one of them.

        Args:
            place: the cluster and code location of the schedule.
            trigger_assets: the assets in its trigger.
        """
        return ()

    @property
    def lookback(self) -> timedelta | None:
        """The span of past launches of its resources that it needs, or None."""
        return None

    @property
    def needs_ends(self) -> bool:
        """Whether it needs the ends of runs of its resources."""
        return False

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes whose load it needs."""
        return ()

    @property
    def parents_needed(self) -> tuple[str, ...]:
        """The assets and jobs whose freshness it needs."""
        return ()

    @property
    def asset_fields(self) -> tuple[str, ...]:
        """The assets in its fields, which must exist."""
        return ()

    @property
    def job_fields(self) -> tuple[str, ...]:
        """The jobs of its own code location in its fields, which must exist."""
        return ()

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        """Returns the verdict at ``now``."""
        raise NotImplementedError

    def refuse(
        self, reason: str, *, recheck_at: datetime | None = None, waits_for: tuple[str, ...] = ()
    ) -> Verdict:
        """Returns the verdict to hold or cancel, according to ``otherwise``."""
        if self.otherwise == "cancel":
            return Verdict(decision=Decision.CANCEL, reason=reason)
        return Verdict(
            decision=Decision.HOLD, reason=reason, recheck_at=recheck_at, waits_for=waits_for
        )


def admit(reason: str) -> Verdict:
    """Returns the verdict that admits a job."""
    return Verdict(decision=Decision.ADMIT, reason=reason)


def job_resource(place: str, job: str) -> str:
    """Returns the resource name under which runs of a Dagster job are counted."""
    return f"job:{place}/{job}"


def asset_resource(place: str, asset: str) -> str:
    """Returns the resource name under which runs that make an asset are counted."""
    return f"asset:{place}/{asset}"


def group_resource(group: str) -> str:
    """Returns the resource name under which a group's slots and launches are counted and locked."""
    return f"group:{group}"
