"""Queues and groups that a person paused or resumed.

What a person said last stands, over what is configured, until somebody says otherwise. A pause
belongs to a cluster: one Dagster instance, one run queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from arctic_orchestration.errors import NotFound
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.run_queue.rules import Rules, known_names
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import queue_pauses


class Pausable(StrEnum):
    """What can be paused."""

    QUEUE = "queue"
    GROUP = "group"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """What was said last of one queue or group."""

    kind: Pausable
    name: str
    paused: bool
    reason: str
    #: none: it is configured so
    at: datetime | None
    #: who paused it; empty: not known, or it is configured so
    actor: str = ""

    @property
    def text(self) -> str:
        """For people: ``queue low is paused since 2026-01-01 04:00:00Z (maintenance)``."""
        since = f"since {format_moment(self.at)}" if self.at else "in dagster.yaml"
        because = f" ({self.reason})" if self.reason else ""
        by = f" by {self.actor}" if self.actor else ""
        return f"{self.kind} {self.name} is paused {since}{by}{because}"


#: by kind and name, only what is paused
Paused = Mapping[tuple[Pausable, str], Pause]


def pause(
    tx: sa.Connection,
    cluster: str,
    kind: str,
    name: str,
    reason: str,
    now: datetime,
    *,
    actor: str = "",
) -> None:
    """Holds back the runs of a queue or group, from the next pass on; those in progress go on."""
    _say(tx, cluster, Pausable(kind), name, True, reason, now, actor)


def resume(
    tx: sa.Connection,
    cluster: str,
    kind: str,
    name: str,
    now: datetime,
    *,
    configured_as_paused: bool = True,
    actor: str = "",
) -> None:
    """Lets them start again, from the next pass on.

    Over a configured pause that stands until somebody says otherwise; without one, what was said
    is forgotten, so that a pause that is configured later holds.
    """
    if configured_as_paused:
        _say(tx, cluster, Pausable(kind), name, False, "", now, actor)
        return
    tx.execute(
        sa.delete(queue_pauses).where(
            queue_pauses.c.cluster == cluster,
            queue_pauses.c.kind == Pausable(kind).value,
            queue_pauses.c.name == name,
        )
    )


def pauses_by_hand(tx: sa.Connection, cluster: str) -> list[Pause]:
    """What was said of queues and groups."""
    query = sa.select(queue_pauses).where(queue_pauses.c.cluster == cluster)
    return [
        Pause(kind=Pausable(row.kind), name=row.name, paused=row.paused, reason=row.reason,
              at=row.at, actor=row.actor)
        for row in tx.execute(query)
    ]  # fmt: skip


def in_force(rules: Rules, pauses_by_hand: Iterable[Pause]) -> Paused:
    """What is paused: as it is configured, and over it what was said.

    What was said of a queue or group that is configured no more holds nothing.
    """
    paused = {
        (Pausable.QUEUE, name): Pause(
            kind=Pausable.QUEUE, name=name, paused=True, reason="", at=None
        )
        for name, queue in rules.queues.items()
        if queue.paused
    }
    for word in pauses_by_hand:
        key = (word.kind, word.name)
        if word.name not in _configured(rules, word.kind):
            continue
        if word.paused:
            paused[key] = word
        else:
            paused.pop(key, None)
    return paused


def check_known(rules: Rules, kind: Pausable, name: str) -> None:
    """Refuses names that no rule has.

    Errors:
        NotFound: lists the names that are configured.
    """
    known = _configured(rules, kind)
    if name not in known:
        other = Pausable.GROUP if kind is Pausable.QUEUE else Pausable.QUEUE
        meant = ""
        if name in _configured(rules, other):
            how = "with --group" if other is Pausable.GROUP else "without --group"
            meant = f". There is a {other} {name}: {how}"
        raise NotFound(
            f"dagster.yaml has no {kind} {name} in run_coordinator.config.{kind}s; "
            f"it has: {known_names(known)}{meant}"
        )


def _configured(rules: Rules, kind: Pausable) -> Mapping[str, object]:
    return rules.queues if kind is Pausable.QUEUE else rules.groups


def _say(
    tx: sa.Connection,
    cluster: str,
    kind: Pausable,
    name: str,
    paused: bool,
    reason: str,
    now: datetime,
    actor: str,
) -> None:
    values = {"paused": paused, "reason": reason, "at": now, "actor": actor}
    new = dialect.insert(tx, queue_pauses).values(
        cluster=cluster, kind=kind.value, name=name, **values
    )
    tx.execute(new.on_conflict_do_update(index_elements=["cluster", "kind", "name"], set_=values))
