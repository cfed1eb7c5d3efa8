"""A simulated scheduler: the same engine on a virtual clock, without Dagster."""

from arctic_orchestration.schedules.declared_assets import (
    DeclaredAssets,
    declared_by,
    read_declared,
)
from arctic_orchestration.schedules.simulator.decisions import Decision
from arctic_orchestration.schedules.simulator.simulator import RUN_DURATION, TICK, simulate
from arctic_orchestration.schedules.simulator.timeline import Timeline, read_timeline

__all__ = [
    "RUN_DURATION",
    "TICK",
    "Decision",
    "DeclaredAssets",
    "Timeline",
    "declared_by",
    "read_declared",
    "read_timeline",
    "simulate",
]
