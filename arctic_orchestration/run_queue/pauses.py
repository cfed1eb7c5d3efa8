"""Queues and groups that a person paused or resumed.

The last manual change overrides the configuration until the next one. A pause belongs to a cluster:
one Dagster instance, one run queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from arctic_orchestration.errors import NotFound
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.run_queue.rules import Rules, known_names
from arctic_orchestration.state import audit, dialect
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.run_queue_tables import queue_pauses


class Pausable(StrEnum):
    """The kinds of things that can be paused."""

    QUEUE = "queue"
    GROUP = "group"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """The last manual change, or configured pause, of a queue or group."""

    kind: Pausable
    name: str
    paused: bool
    reason: str
    #: None: the pause is configured
    at: datetime | None
    #: the person who paused it; empty: unknown, or the pause is configured
    actor: str = ""

    @property
    def text(self) -> str:
        """For people: ``queue low is paused since 2026-01-01 04:00:00Z (maintenance)``."""
        since = f"since {format_moment(self.at)}" if self.at else "in dagster.yaml"
        because = f" ({self.reason})" if self.reason else ""
        by = f" by {self.actor}" if self.actor else ""
        return f"{self.kind} {self.name} is paused {since}{by}{because}"


#: by kind and name, paused ones only
Paused = Mapping[tuple[Pausable, str], Pause]


def store(
    tx: sa.Connection,
    cluster: str,
    kind: str,
    name: str,
    reason: str,
    now: datetime,
    *,
    paused: bool = True,
    actor: str = "",
) -> None:
    """Pauses or resumes a queue or group from the next pass on; its active runs go on."""
    values = {"paused": paused, "reason": reason, "at": now, "actor": actor}
    new = dialect.insert(tx, queue_pauses).values(
        cluster=cluster, kind=Pausable(kind).value, name=name, **values
    )
    tx.execute(new.on_conflict_do_update(index_elements=["cluster", "kind", "name"], set_=values))


def manual_pauses(tx: sa.Connection, cluster: str) -> list[Pause]:
    """Returns the stored manual changes of queues and groups."""
    query = sa.select(queue_pauses).where(queue_pauses.c.cluster == cluster)
    return [
        Pause(kind=Pausable(row.kind), name=row.name, paused=row.paused, reason=row.reason,
              at=row.at, actor=row.actor)
        for row in tx.execute(query)
    ]  # fmt: skip


def in_force(rules: Rules, manual_pauses: Iterable[Pause]) -> Paused:
    """Returns the paused queues and groups: the configuration, overridden by manual changes.

    A manual change of a queue or group that is no longer configured has no effect.
    """
    paused = {
        (Pausable.QUEUE, name): Pause(
            kind=Pausable.QUEUE, name=name, paused=True, reason="", at=None
        )
        for name, queue in rules.queues.items()
        if queue.paused
    }
    for word in manual_pauses:
        key = (word.kind, word.name)
        if word.name not in _configured(rules, word.kind):
            continue
        if word.paused:
            paused[key] = word
        else:
            paused.pop(key, None)
    return paused


def present(
    tx: sa.Connection, rules: Rules, cluster: str, kind: Pausable, name: str
) -> Pause | None:
    """Returns the pause of a queue or group, or None if it is not paused."""
    return in_force(rules, manual_pauses(tx, cluster)).get((kind, name))


def change(
    tx: sa.Connection,
    rules: Rules,
    kind: Pausable,
    name: str,
    now: datetime,
    actor: Actor,
    *,
    paused: bool,
    reason: str = "",
) -> None:
    """Pauses or resumes a queue or group of the actor's cluster, for the audit log, too.

    A resume over a configured pause is stored until the next manual change. Without one, the
    stored pause is deleted, so that a pause configured later takes effect.
    """
    cluster = actor.cluster
    if paused or (kind is Pausable.QUEUE and rules.queues[name].paused):
        because = reason if paused else ""
        store(tx, cluster, kind, name, because, now, paused=paused, actor=actor.name)
    else:
        col = queue_pauses.c
        mine = (col.cluster == cluster, col.kind == kind.value, col.name == name)
        tx.execute(sa.delete(queue_pauses).where(*mine))
    action = "pause" if paused else "resume"
    audit.record(tx, actor, "queues", action, name, kind=kind.value, reason=reason)


def check_known(rules: Rules, kind: Pausable, name: str) -> None:
    """Refuses names without a rule.

    Errors:
        NotFound: lists the configured names.
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
