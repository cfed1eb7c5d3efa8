"""The asset checks of an arrival."""

from collections.abc import Sequence
from dataclasses import dataclass

from arctic_orchestration.event_log.event import Event


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrivalChecks:
    """The checks of one arrival of an asset.

    Attributes:
        planned: the checks of the asset that the run of the arrival was to evaluate.
        evaluations: CHECK events of the arrival, by ascending storage id.
    """

    planned: frozenset[str] = frozenset()
    evaluations: tuple[Event, ...] = ()

    @property
    def blocked_by(self) -> tuple[str, ...]:
        """The blocking checks whose latest evaluation failed, by name.

        As in Dagster, a failure of severity ``warn`` does not block.
        """
        blocking = {e.check for e in self.evaluations if e.blocking}
        return tuple(
            e.check or "" for e in latest(self.evaluations) if fails(e) and e.check in blocking
        )


def latest(evaluations: Sequence[Event]) -> list[Event]:
    """Returns the latest evaluation of each check, sorted by the name of the check."""
    by_check = {e.check or "": e for e in sorted(evaluations, key=lambda e: e.storage_id)}
    return [by_check[name] for name in sorted(by_check)]


def fails(evaluation: Event) -> bool:
    """Returns whether a check failed with severity ``error``."""
    return evaluation.passed is not True and evaluation.severity != "warn"


def concerns(check: Event, event: Event) -> bool:
    """Returns whether the evaluation of a check of the same asset belongs to an arrival.

    It belongs to the materialization that it names. If it names none, it must not be of another
    partition, and must be of the same run or, if it was reported from outside, come later.
    """
    if check.target_id is not None:
        return check.target_id == event.storage_id
    if check.partition is not None and check.partition != event.partition:
        return False
    if check.run_id is not None:
        return check.run_id == event.run_id
    return check.storage_id > event.storage_id
