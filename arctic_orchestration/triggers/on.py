"""Triggers as one writes them in Python: ``on.partitions("raw/flights", count=3)``."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from arctic_orchestration.triggers.base import Trigger
from arctic_orchestration.triggers.combined import AnyOf
from arctic_orchestration.triggers.cron import Cron
from arctic_orchestration.triggers.partitions import Partitions
from arctic_orchestration.triggers.run import Run


def partitions(asset: str, *, count: int = 1, where: str | None = None) -> Partitions:
    """Fires when ``count`` different partitions of ``asset`` have arrived; see `Partitions`."""
    return Partitions.parse({"asset": asset, "count": count, "where": where}, field="partitions")


def cron(
    expression: str,
    *,
    timezone: str = "UTC",
    catch_up: str = "latest",
    catch_up_limit: int = 24,
    grace: timedelta | str | None = None,
    dst: str = "dagster",
) -> Cron:
    """Fires at each tick of a cron expression; see `Cron`."""
    form: dict[str, Any] = {
        "expression": expression,
        "timezone": timezone,
        "catch_up": catch_up,
        "catch_up_limit": catch_up_limit,
        "grace": grace,
        "dst": dst,
    }
    return Cron.parse(form, field="cron")


def run(
    job: str | None = None,
    *,
    assets: Sequence[str] = (),
    status: str | Sequence[str] = "success",
    count: int = 1,
    location: str | None = None,
) -> Run:
    """Fires when ``count`` runs of a job, or of assets, reached a status; see `Run`."""
    form: dict[str, Any] = {
        "job": job,
        "assets": assets,
        "status": status,
        "count": count,
        "location": location,
    }
    return Run.parse(form, field="run")


def any_of(*triggers: Trigger) -> AnyOf:
    """Fires when one of ``triggers`` does; the same as joining them with ``|``."""
    return AnyOf.parse({"of": triggers}, field="any_of")
