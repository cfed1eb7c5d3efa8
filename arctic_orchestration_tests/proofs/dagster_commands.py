"""Dagster's commands, called as the console scripts call them; imported before the fork."""

import dagster_postgres  # noqa: F401 - loaded before the fork, when there is one to load
from dagster._cli.api import api_cli
from dagster._daemon.cli import run_command

from arctic_orchestration import arctic  # noqa: F401 - the same
from arctic_orchestration_tests.proofs import crash_points, quick_passes

__all__ = ["run_daemon", "serve"]


def run_daemon() -> None:
    """``dagster-daemon run -w workspace.yaml``"""
    crash_points.put_into_daemon()
    quick_passes.put_in_place()
    run_command(["--log-format", "colored", "-w", "workspace.yaml"])


def serve(module: str, port: int, location: str) -> None:
    """``dagster api grpc -m MODULE --location-name LOCATION``"""
    crash_points.put_into_code_server()
    api_cli(["grpc", "-m", module, "--host", "127.0.0.1", "--port", str(port),
             "--location-name", location])  # fmt: skip
