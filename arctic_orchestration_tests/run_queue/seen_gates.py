"""What the gates of a waiting run say, and runs in progress beside it."""

from collections.abc import Sequence
from typing import Any

from arctic_orchestration.run_queue.gates import Gate, Gates
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration_tests.run_queue.queues import NOON, Run, submitted

ALL = {"match": {"job": "*"}}
API = Rules.parse({"rates": {"api": {"limit": 2, "per": "1m", **ALL}}})


def shut(of: Gates, rules: Rules, **given: Any) -> list[tuple[float, str]]:
    """Room and text of each gate of a run that waits."""
    return [(gate.room, gate.text) for gate in gates_of(of, rules, **given)]


def gates_of(of: Gates, rules: Rules, **given: Any) -> Sequence[Gate]:
    run = submitted(rules, "waits", **given)
    return of.of(tuple(sorted(run.tags.items())))


def active(rules: Rules, count: int = 1, **given: Any) -> list[Run]:
    """Runs that were queued and are in progress."""
    given = {"dagster_status": "STARTED", "started_at": NOON, **given}
    return [submitted(rules, f"active {n}", **given) for n in range(count)]


def strays(count: int = 1, **given: Any) -> list[Run]:
    """Runs in progress that were never queued: they have no tags of ours."""
    return [Run(run_id=f"stray {n}", dagster_status="STARTED", **given) for n in range(count)]
