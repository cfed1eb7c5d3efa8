"""What the automation condition of an asset becomes.

Dagster evaluates the conditions of all assets together, by the state of each partition. A schedule
is set off by events. Conditions are recognized by their structure: ``eager``, ``on_missing``,
``on_cron``, ``cron_tick_passed`` and ``any_deps_updated``, the first two also with operands left
out, and any of them joined by ``|``. Anything else is named.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from arctic_orchestration.schedules.imports.draft import Draft, NotPossible

_AC = dg.AutomationCondition
#: a trigger and constraints, as forms
_Rule = tuple[dict[str, Any], list[dict[str, Any]]]

_HANDLED = (
    "newly_updated: a run that the schedule did not request does not take the place of its own run"
)
_NEWLY_MISSING = (
    "newly_missing: what is wiped, or begins to exist, is made only when a dependency arrives"
)
_LATEST = "in_latest_time_window: here each partition of the target is run, not only the latest"
_ONE_RUN = (
    "will_be_requested: Dagster puts assets that depend on each other into one run; here each is "
    "run after its dependencies have arrived"
)


def _since(condition: Any) -> Any:
    return next(operand for operand in condition.operands if operand.name == "SINCE")


_NEW_OR_UPDATED, _MISSING = _since(_AC.eager()), _since(_AC.on_missing())
_COMPLETE = ~_AC.any_deps_missing()


def draft_condition(draft: Draft, key: dg.AssetKey, repository: dg.RepositoryDefinition) -> None:
    """Sets the form of the schedule for the condition of an asset.

    Errors:
        NotPossible: no schedule does the same, or almost.
    """
    graph = repository.asset_graph
    node = graph.get(key)
    if not node.is_materializable:
        raise NotPossible("the asset is observed or external: a schedule runs assets")
    reader = _Reader(node, draft)
    trigger, constraints = reader.rule(node.automation_condition)
    if any(graph.get(parent).automation_condition for parent in node.parent_keys):
        draft.differs(_ONE_RUN)
    draft.note("it has no cut-over: remove the condition, and enable the schedule, in one change")
    draft.finish(
        name=draft.names.schedule(reader.name, draft),
        target={"assets": [reader.name]},
        trigger=trigger,
        constraints=constraints,
        partitions="each" if reader.partitioned else {},
        # What the condition did goes on at once: there is no cut-over that would enable it.
        enabled=True,
    )


class _Reader:
    """Reads the condition of one asset."""

    def __init__(self, node: Any, draft: Draft) -> None:
        self.name = node.key.to_user_string()
        self.partitioned = node.partitions_def is not None
        self._parents = [parent.to_user_string() for parent in sorted(node.parent_keys)]
        self._draft = draft

    def rule(self, condition: Any) -> _Rule:
        """Returns the trigger and the constraints of a condition."""
        tick = next(_ticks(condition), None)
        if tick is not None:
            cron = {"expression": tick.cron_schedule, "timezone": tick.cron_timezone}
            if condition == _AC.cron_tick_passed(tick.cron_schedule, tick.cron_timezone):
                return self._on_tick(cron), []
            if condition == _AC.on_cron(tick.cron_schedule, tick.cron_timezone):
                return self._on_cron(cron), []
        if condition == _AC.any_deps_updated():
            return _joined("any_of", self._arrivals()), []
        if condition in (_NEW_OR_UPDATED, _MISSING):
            return self._handled(condition, complete=False), []
        if condition.name == "AND":
            return self._all(condition.operands)
        if condition.name == "OR":
            return self._any(condition.operands)
        raise NotPossible(f"{_label(condition)}: no event of a trigger means this")

    def _all(self, operands: Sequence[Any]) -> _Rule:
        """One operand is the trigger; the others hold or filter its jobs."""
        constraints: list[dict[str, Any]] = []
        complete = _COMPLETE in operands
        rest = []
        for one in operands:
            if one == ~_AC.any_deps_in_progress():
                constraints.append({"idle": {"assets": self._parents}})
            elif one == ~_AC.in_progress():
                constraints.append({"concurrency": {"limit": 1}})
            elif one == _AC.in_latest_time_window():
                if self.partitioned:
                    self._draft.differs(_LATEST)
            elif one != _COMPLETE:
                rest.append(one)
        if complete and len(self._parents) > 1:
            self._draft.differs(
                "any_deps_missing: an arrival is not held while another dependency is missing"
            )
        if len(rest) != 1:
            listed = ", ".join(map(_label, rest)) or "none"
            raise NotPossible(f"&: {listed}: expected one condition that an event makes true")
        if rest[0] in (_NEW_OR_UPDATED, _MISSING):
            return self._handled(rest[0], complete=complete), constraints
        trigger, more = self.rule(rest[0])
        return trigger, [*more, *constraints]

    def _any(self, operands: Sequence[Any]) -> _Rule:
        rules = [self.rule(one) for one in operands]
        if any(trigger.keys() & {"then"} for trigger, _ in rules):
            raise NotPossible("|: on_cron beside another condition: it needs a schedule of its own")
        constraints = [rule[1] for rule in rules]
        if any(one != constraints[0] for one in constraints):
            raise NotPossible("|: one side must not run while something is in progress, one may")
        return {"any_of": [trigger for trigger, _ in rules]}, constraints[0]

    def _handled(self, condition: Any, *, complete: bool) -> dict[str, Any]:
        """The trigger of ``eager`` or of ``on_missing``."""
        self._draft.differs(_HANDLED)
        self._draft.differs(_NEWLY_MISSING)
        more: dict[str, Any] = {"complete": True} if complete and self.partitioned else {}
        if condition == _NEW_OR_UPDATED:
            return _joined("any_of", self._arrivals(**more))
        if not self.partitioned:
            raise NotPossible("on_missing: without partitions it runs once: request it manually")
        return _joined("all_of", self._arrivals(**more, late="ignore"))

    def _on_tick(self, cron: dict[str, Any]) -> dict[str, Any]:
        if not self.partitioned:
            return {"cron": cron}
        raise NotPossible("cron_tick_passed: at each tick it runs all partitions of the asset")

    def _on_cron(self, cron: dict[str, Any]) -> dict[str, Any]:
        if self.partitioned:
            raise NotPossible("on_cron: the trigger then is not evaluated for each partition")
        self._draft.differs(_HANDLED)
        if not self._parents:
            return {"cron": cron}
        return {"then": [{"cron": cron}, _joined("all_of", self._arrivals())]}

    def _arrivals(self, **more: Any) -> list[dict[str, Any]]:
        if not self._parents:
            raise NotPossible("the asset has no dependency whose arrival would set it off")
        return [{"partitions": {"asset": parent, **more}} for parent in self._parents]


def _joined(kind: str, triggers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return triggers[0] if len(triggers) == 1 else {kind: list(triggers)}


def _ticks(condition: Any) -> Iterator[Any]:
    """Yields the conditions on a cron tick in a condition."""
    if hasattr(condition, "cron_schedule"):
        yield condition
    for child in condition.children:
        yield from _ticks(child)


def _label(condition: Any) -> str:
    return str(condition.get_label() or condition.name)
