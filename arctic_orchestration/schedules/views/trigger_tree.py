"""The state of each trigger of a tree: what has arrived, and what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arctic_orchestration.quantities import format_moment, iso
from arctic_orchestration.schedules.triggers import Arrivals, Firing, Leaf, Trigger
from arctic_orchestration.schedules.triggers.combined import Combined


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerNode:
    """A trigger of the tree and its state."""

    #: its YAML form; with children only its kind
    form: dict[str, Any]
    satisfied: bool
    #: what has arrived, and how much is required
    reason: str
    #: when it is evaluated again without an event
    recheck_at: datetime | None = None
    #: its next tick of time
    next_tick_at: datetime | None = None
    #: leaves only
    arrivals: Arrivals | None = None
    children: tuple["TriggerNode", ...] = ()

    @property
    def kind(self) -> str:
        """Its key in YAML."""
        return next(iter(self.form))

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form."""
        arrived = self.arrivals
        return {
            "form": self.form,
            "satisfied": self.satisfied,
            "reason": self.reason,
            "recheck_at": iso(self.recheck_at),
            "next_tick_at": iso(self.next_tick_at),
            "arrived": arrived
            and {
                "events": arrived.events,
                "partitions": arrived.partitions,
                "bytes": arrived.bytes,
                "first_at": iso(arrived.first_at),
                "last_at": iso(arrived.last_at),
                # For a leaf that waits for all partitions that belong together.
                "required": arrived.required,
                "lacking": arrived.lacking,
                "missing": list(arrived.missing),
                "late": arrived.late,
            },
            "children": [child.to_json() for child in self.children],
        }


def tree(
    trigger: Trigger,
    arrivals: Sequence[Arrivals],
    ticks: Mapping[int, datetime],
    now: datetime,
    *,
    first: int = 0,
    firing: Firing | None = None,
    passed: Mapping[int, datetime] | None = None,
) -> TriggerNode:
    """Returns the state of a trigger at ``now``.

    Args:
        trigger: any trigger; its fields contain its children.
        arrivals: what has arrived at each of its leaves.
        ticks: the next tick of leaves by their number, if time is an event for them.
        now: an aware moment.
        first: the number of its first leaf.
        firing: its result, if it was evaluated already.
        passed: when leaves would have had their only tick, which does not come any more.
    """
    if firing is None:
        try:
            firing = trigger.evaluate(arrivals, now)
        except Exception as error:
            firing = Firing(satisfied=False, reason=f"it could not be decided: {error!r}")
    form = trigger.to_form()
    below: Sequence[Trigger] = trigger.of if isinstance(trigger, Combined) else ()
    if sum(len(child.leaves) for child in below) != len(arrivals):
        below = ()
    answers: Sequence[Firing | None] = firing.children
    if len(answers) != len(below):
        answers = [None] * len(below)
    nodes, begin = [], 0
    for child, answer in zip(below, answers, strict=True):
        end = begin + len(child.leaves)
        nodes.append(
            tree(
                child,
                arrivals[begin:end],
                ticks,
                now,
                first=first + begin,
                firing=answer,
                passed=passed,
            )
        )
        begin = end
    if nodes:
        fields = form[trigger.kind]
        own = (
            {key: value for key, value in fields.items() if key != "of"}
            if isinstance(fields, dict)
            else {}
        )
        form = {trigger.kind: own}
    reason = firing.reason
    if not firing.satisfied and isinstance(trigger, Leaf) and passed and first in passed:
        reason = f"it does not fire: its moment was {format_moment(passed[first])}"
    return TriggerNode(
        form=form,
        satisfied=firing.satisfied,
        reason=reason,
        recheck_at=firing.recheck_at,
        next_tick_at=ticks.get(first) if isinstance(trigger, Leaf) else None,
        arrivals=arrivals[0] if isinstance(trigger, Leaf) else None,
        children=tuple(nodes),
    )
