"""What a constraint is: a pure rule that answers a job with a verdict.

A constraint is asked with the facts of one job and the time. It answers *admit*, *hold* (with
the reason, and when to look again or what to wait for) or *cancel*. Facts about runs that may
change under its feet are counted under locks: :meth:`Constraint.resources` names what must be
locked before it is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.specification import Tagged


class Decision(StrEnum):
    """The three answers."""

    ADMIT = "admit"
    HOLD = "hold"
    CANCEL = "cancel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A constraint's answer, with its reason."""

    decision: Decision
    reason: str
    #: hold only: when the answer may be another one without anything happening
    recheck_at: datetime | None = None
    #: hold only: the resources whose release may change the answer
    waits_for: tuple[str, ...] = ()


class Facts(Protocol):
    """What a constraint may know about the job it judges."""

    @property
    def satisfied_at(self) -> datetime:
        """When the job's trigger was satisfied."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """The resources that stand for the job's own target."""
        ...

    def active(self, resources: tuple[str, ...]) -> int:
        """How many runs hold one of ``resources``, or are on their way to."""
        ...

    def launches(self, resources: tuple[str, ...], since: datetime) -> Sequence[datetime]:
        """When runs that hold one of ``resources`` were launched after ``since``, in order."""
        ...

    def last_end(self, resources: tuple[str, ...], statuses: tuple[str, ...]) -> datetime | None:
        """When the last run that held one of ``resources`` ended in one of the statuses.

        Statuses are those of :class:`~arctic_orchestration.event_log.event.RunStatus`.
        """
        ...

    def load(self, probe: str) -> float | None:
        """The load as a share of the capacity, 0 to 1 and above; none: it cannot be measured."""
        ...

    def fresh_at(self, parent: str) -> datetime | None:
        """When an asset was materialized last, or a job of the location succeeded; none: never."""
        ...

    @property
    def partition(self) -> str | None:
        """The partition that the job is for; none: it is not for one partition."""
        ...

    @property
    def trigger_assets(self) -> tuple[str, ...]:
        """The assets that the trigger of the job's schedule names."""
        ...

    def checks(self, asset: str) -> Mapping[str, Event | None]:
        """The latest CHECK event of each check of an asset, by its name.

        Evaluations of other partitions than the job's do not count. None: the check is known,
        and was never evaluated.
        """
        ...


class Constraint(Tagged):
    """The base of all constraints."""

    #: whether a job that is not admitted waits or is discarded
    otherwise: Literal["hold", "cancel"] = "hold"

    def resources(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """The resources whose holders it counts, for a job with these targets."""
        return ()

    @property
    def lookback(self) -> timedelta | None:
        """How far back it asks for launches of its resources."""
        return None

    @property
    def asks_for_ends(self) -> bool:
        """Whether it asks when runs of its resources ended."""
        return False

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes whose load it asks for."""
        return ()

    @property
    def parents_needed(self) -> tuple[str, ...]:
        """The assets and jobs whose freshness it asks for."""
        return ()

    @property
    def asset_fields(self) -> tuple[str, ...]:
        """The assets it names, which must exist."""
        return ()

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        """The verdict at ``now``."""
        raise NotImplementedError

    def refuse(
        self, reason: str, *, recheck_at: datetime | None = None, waits_for: tuple[str, ...] = ()
    ) -> Verdict:
        """Hold or cancel, as ``otherwise`` says."""
        if self.otherwise == "cancel":
            return Verdict(decision=Decision.CANCEL, reason=reason)
        return Verdict(
            decision=Decision.HOLD, reason=reason, recheck_at=recheck_at, waits_for=waits_for
        )


def admit(reason: str) -> Verdict:
    """The verdict that lets a job through."""
    return Verdict(decision=Decision.ADMIT, reason=reason)


def group_resource(group: str) -> str:
    """The name under which a group's slots and launches are counted and locked."""
    return f"group:{group}"
