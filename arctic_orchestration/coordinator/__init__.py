"""Dagster's run coordinator with rules: name this module in ``dagster.yaml``."""

from arctic_orchestration.run_queue.dagster.coordinator import ArcticRunCoordinator

__all__ = ["ArcticRunCoordinator"]
