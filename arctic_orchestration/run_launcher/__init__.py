"""The run launcher that ``dagster.yaml`` names: a run that was superseded does not begin."""

from arctic_orchestration.run_launcher.launcher import ArcticRunLauncher

__all__ = ["ArcticRunLauncher"]
