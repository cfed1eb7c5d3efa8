"""Admits while the latest evaluations of asset checks passed."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from arctic_orchestration.event_log.arrival_checks import fails
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.quantities import PositiveDuration
from arctic_orchestration.schedules.constraints.base import Constraint, Facts, Verdict, admit
from arctic_orchestration.specification import one_or_several

_Name = Annotated[str, Field(min_length=1)]
_Names = Annotated[
    tuple[_Name, ...],
    BeforeValidator(one_or_several, json_schema_input_type=_Name | tuple[_Name, ...]),
]


class ChecksPassed(Constraint):
    """The latest evaluation of each asset check passed.

    Failures of severity ``warn`` are ignored. For a job of one partition, evaluations of other
    partitions are ignored; those without a partition count.
    """

    kind: Literal["checks_passed"] = "checks_passed"
    #: the checked assets; empty: the assets in the trigger
    assets: _Names = ()
    #: the names of their checks; empty: all
    checks: _Names = ()
    recheck: PositiveDuration = timedelta(minutes=2)

    @property
    def asset_fields(self) -> tuple[str, ...]:
        return self.assets

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        assets = self.assets or facts.trigger_assets
        found = {asset: facts.checks(asset) for asset in assets}
        reasons = [
            *self._unknown(found),
            *(
                reason
                for asset, evaluations in found.items()
                for reason in self._failures(asset, evaluations, facts.partition)
            ),
        ]
        if reasons:
            return self.refuse("; ".join(reasons), recheck_at=now + self.recheck)
        return admit(f"checks passed: {', '.join(assets)}")

    def _unknown(self, found: Mapping[str, Mapping[str, Event | None]]) -> Iterator[str]:
        """Yields why nothing is known: assets without checks, and checks that no asset has."""
        for asset, evaluations in found.items():
            if not self.checks and not evaluations:
                yield f"no check of {asset} was ever evaluated"
        for check in self.checks:
            if not any(check in evaluations for evaluations in found.values()):
                yield f"check {check} of {' or '.join(found)} was never evaluated"

    def _failures(
        self, asset: str, evaluations: Mapping[str, Event | None], partition: str | None
    ) -> Iterator[str]:
        for check, event in sorted(evaluations.items()):
            if self.checks and check not in self.checks:
                continue
            if event is None:
                where = f" for partition {partition}" if partition is not None else ""
                yield f"check {check} of {asset} was never evaluated{where}"
            elif fails(event):
                where = f" for partition {event.partition}" if event.partition is not None else ""
                yield f"check {check} of {asset} failed{where} at {event.at:%Y-%m-%dT%H:%M:%SZ}"
