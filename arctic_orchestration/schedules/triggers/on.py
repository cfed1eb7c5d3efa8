"""Triggers for use in Python: ``on.partitions("raw/flights", count=3)``.

An asset is its name, or Dagster's key, spec or definition of it.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from arctic_orchestration.schedules.triggers.base import Trigger
from arctic_orchestration.schedules.triggers.check import Check
from arctic_orchestration.schedules.triggers.combined import AllOf, AnyOf
from arctic_orchestration.schedules.triggers.cron import Cron
from arctic_orchestration.schedules.triggers.data import Data
from arctic_orchestration.schedules.triggers.elapsed import Elapsed
from arctic_orchestration.schedules.triggers.freshness import Freshness
from arctic_orchestration.schedules.triggers.partition_end import PartitionEnd
from arctic_orchestration.schedules.triggers.partitions import Partitions
from arctic_orchestration.schedules.triggers.quiet import Quiet
from arctic_orchestration.schedules.triggers.requests import Requests
from arctic_orchestration.schedules.triggers.run import Run
from arctic_orchestration.schedules.triggers.then import Then


def partitions(
    asset: object,
    *,
    count: int | str = 1,
    where: str | None = None,
    complete: bool = False,
    distinct: bool = True,
    per: str | None = None,
    mapping: str | Mapping[str, Any] | None = None,
    checks: str | Sequence[str] = (),
    changed: bool = False,
    late: str = "rerun",
    metadata: Mapping[str, str | float] | None = None,
    backfill: str = "follow",
) -> Partitions:
    """Fires when ``count`` different partitions of ``asset`` have arrived; see `Partitions`."""
    form: dict[str, Any] = {
        "asset": asset,
        "count": count,
        "where": where,
        "complete": complete,
        "distinct": distinct,
        "per": per,
        "mapping": mapping,
        "checks": checks,
        "changed": changed,
        "late": late,
        "metadata": metadata or {},
        "backfill": backfill,
    }
    return Partitions.parse(form, field="partitions")


def partition_end(after: timedelta | str = timedelta(0)) -> PartitionEnd:
    """Fires for each partition of the target ``after`` its window ended; see `PartitionEnd`."""
    return PartitionEnd.parse({"after": after}, field="partition_end")


def cron(
    expression: str,
    *,
    timezone: str = "UTC",
    catch_up: str = "latest",
    catch_up_limit: int = 24,
    grace: timedelta | str | None = None,
    dst: str = "dagster",
    partition: str | Sequence[str] | None = None,
    offset: int = 0,
) -> Cron:
    """Fires at each tick of a cron expression; see `Cron`."""
    form: dict[str, Any] = {
        "expression": expression,
        "timezone": timezone,
        "catch_up": catch_up,
        "catch_up_limit": catch_up_limit,
        "grace": grace,
        "dst": dst,
        "partition": partition,
        "offset": offset,
    }
    return Cron.parse(form, field="cron")


def data(asset: object, size: str, *, max_wait: timedelta | str | None = None) -> Data:
    """Fires when ``size`` of ``asset``, such as ``100GB``, has arrived; see `Data`."""
    return Data.parse({"asset": asset, "size": size, "max_wait": max_wait}, field="data")


def quiet(
    asset: object, duration: timedelta | str, *, max_wait: timedelta | str | None = None
) -> Quiet:
    """Fires when ``asset`` has arrived and then nothing more for ``duration``; see `Quiet`."""
    form = {"asset": asset, "duration": duration, "max_wait": max_wait}
    return Quiet.parse(form, field="quiet")


def elapsed(
    duration: timedelta | str, *, since: str | Partitions | Data | Run = "last_launch"
) -> Elapsed:
    """Fires ``duration`` after the schedule's last launch, or an event; see `Elapsed`."""
    return Elapsed.parse({"duration": duration, "since": since}, field="elapsed")


def run(
    job: str | None = None,
    *,
    assets: Sequence[object] = (),
    status: str | Sequence[str] = "success",
    count: int = 1,
    location: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Run:
    """Fires when ``count`` runs of a job, or of assets, reached a status; see `Run`."""
    form: dict[str, Any] = {
        "job": job,
        "assets": assets,
        "status": status,
        "count": count,
        "location": location,
        "tags": tags or {},
    }
    return Run.parse(form, field="run")


def check(
    asset: object,
    name: str | None = None,
    *,
    status: str = "passed",
    severity: str | None = None,
    count: int = 1,
) -> Check:
    """Fires when a check of ``asset``, or any of its checks, passes or fails; see `Check`."""
    form: dict[str, Any] = {
        "asset": asset,
        "name": name,
        "status": status,
        "severity": severity,
        "count": count,
    }
    return Check.parse(form, field="check")


def freshness(asset: object, *, state: str | Sequence[str]) -> Freshness:
    """Fires when the freshness policy of ``asset`` changes to a state; see `Freshness`."""
    return Freshness.parse({"asset": asset, "state": state}, field="freshness")


def requests(sensor: object, *, job: str | None = None) -> Requests:
    """Fires at each run request of a source, a sensor or its name; see `Requests`."""
    return Requests.parse({"sensor": getattr(sensor, "name", sensor), "job": job}, field="requests")


def any_of(*triggers: Trigger) -> AnyOf:
    """Fires when one of ``triggers`` fires; the same as joining them with ``|``."""
    return AnyOf.parse({"of": triggers}, field="any_of")


def all_of(
    *triggers: Trigger,
    within: timedelta | str | None = None,
    wait: timedelta | str | None = None,
) -> AllOf:
    """Fires when each of ``triggers`` has fired, as when joined with ``&``; see `AllOf`."""
    return AllOf.parse({"of": triggers, "within": within, "wait": wait}, field="all_of")


def then(first: Cron, second: Trigger) -> Then:
    """Fires when ``second`` has fired after the latest tick of ``first``; see `Then`."""
    return Then.parse({"of": (first, second)}, field="then")
