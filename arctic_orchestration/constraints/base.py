"""What a constraint is: a pure rule that answers a job with a verdict.

A constraint is asked with the facts of one job and the time. It answers *admit*, *hold* (with
the reason, and when to look again or what to wait for) or *cancel*. Facts about runs that may
change under its feet are counted under locks: :meth:`Constraint.resources` names what must be
locked before it is asked.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

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
    look_again_at: datetime | None = None
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


class Constraint(Tagged):
    """The base of all constraints."""

    #: whether a job that is not admitted waits or is discarded
    otherwise: Literal["hold", "cancel"] = "hold"

    def resources(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """The resources whose holders it counts, for a job with these targets."""
        return ()

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        """The verdict at ``now``."""
        raise NotImplementedError

    def refuse(
        self, reason: str, *, look_again_at: datetime | None = None, waits_for: tuple[str, ...] = ()
    ) -> Verdict:
        """Hold or cancel, as ``otherwise`` says."""
        if self.otherwise == "cancel":
            return Verdict(decision=Decision.CANCEL, reason=reason)
        return Verdict(
            decision=Decision.HOLD, reason=reason, look_again_at=look_again_at, waits_for=waits_for
        )


def admit(reason: str) -> Verdict:
    """The verdict that lets a job through."""
    return Verdict(decision=Decision.ADMIT, reason=reason)
