"""Facts about a job, as a test states them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from arctic_orchestration.event_log.event import Event

#: noon of New Year's Day
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TARGET = "job:default/here/rollup"


def moment(text: str) -> datetime:
    """``03-08 07:00`` of 2026, or a whole date, in UTC."""
    if text.count("-") == 1:
        text = f"2026-{text}"
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@dataclass
class Known:
    """Facts about a job whose trigger was satisfied at noon."""

    satisfied_at: datetime = NOW
    targets: tuple[str, ...] = (TARGET,)
    place: str = "default/here"
    #: who holds each resource
    held: dict[str, set[str]] = field(default_factory=dict)
    #: when runs of each resource were launched
    launched: dict[str, list[datetime]] = field(default_factory=dict)
    #: when the last run of each resource ended in each status
    ended: dict[str, dict[str, datetime]] = field(default_factory=dict)
    loads: dict[str, float | None] = field(default_factory=dict)
    made: dict[str, datetime] = field(default_factory=dict)
    partition: str | None = None
    trigger_assets: tuple[str, ...] = ()
    #: the latest evaluation of each check of each asset
    evaluated: dict[str, dict[str, Event | None]] = field(default_factory=dict)

    def active(self, resources: tuple[str, ...]) -> int:
        return len(set().union(*(self.held.get(name, set()) for name in resources)))

    def launches(self, resources: tuple[str, ...], since: datetime) -> Sequence[datetime]:
        all_of_them = [at for name in resources for at in self.launched.get(name, ())]
        return sorted(at for at in all_of_them if at > since)

    def last_end(self, resources: tuple[str, ...], statuses: tuple[str, ...]) -> datetime | None:
        ends = [self.ended.get(name, {}).get(status) for name in resources for status in statuses]
        return max((at for at in ends if at is not None), default=None)

    def load(self, probe: str) -> float | None:
        return self.loads[probe]

    def fresh_at(self, parent: str) -> datetime | None:
        return self.made.get(parent)

    def checks(self, asset: str) -> Mapping[str, Event | None]:
        return self.evaluated.get(asset, {})
