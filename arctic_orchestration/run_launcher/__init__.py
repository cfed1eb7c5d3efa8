"""The run launcher for ``dagster.yaml``: a superseded run does not begin."""

from arctic_orchestration.run_launcher.launcher import ArcticRunLauncher

__all__ = ["ArcticRunLauncher"]
