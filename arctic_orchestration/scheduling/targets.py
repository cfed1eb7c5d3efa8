"""What the scheduler asks about targets; the code location answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from arctic_orchestration.scheduling.schedule import Target


class Targets(Protocol):
    """What the code location knows of its targets."""

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        """Why a run of the target, for these partitions, could not be made; none: it can."""
        ...

    def exists(self, target: Target) -> bool:
        """Whether the location has the target: the job, or at least one of the assets."""
        ...

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        """The partitions in contiguous ranges of the target, each in the target's order."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Why a run cannot be made at the moment."""

    text: str
    #: whether it will be the same the next time: it was not the looking that failed
    lasting: bool


def problem_of(
    targets: Targets, target: Target, start: str | None, end: str | None
) -> Problem | None:
    """The problem of a run, where looking for one may itself fail."""
    try:
        text = targets.problem(target, start, end)
    except Exception as error:
        return not_looked_up(error)
    return None if text is None else Problem(text=text, lasting=True)


def not_looked_up(error: Exception) -> Problem:
    """The problem of a target about which the code location gave no answer."""
    return Problem(text=f"its target could not be looked up: {error!r}", lasting=False)
