"""Constraints for use in Python: ``only.concurrency(1)``."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from arctic_orchestration.schedules.constraints.checks_passed import ChecksPassed
from arctic_orchestration.schedules.constraints.concurrency import Concurrency
from arctic_orchestration.schedules.constraints.delay import Delay
from arctic_orchestration.schedules.constraints.fresh import Fresh
from arctic_orchestration.schedules.constraints.idle import Idle
from arctic_orchestration.schedules.constraints.load import Load
from arctic_orchestration.schedules.constraints.minimum_interval import MinimumInterval
from arctic_orchestration.schedules.constraints.rate import Rate
from arctic_orchestration.schedules.constraints.window import Window


def concurrency(limit: int, *, group: str | None = None, otherwise: str = "hold") -> Concurrency:
    """At most ``limit`` runs of the target, or of ``group``, at a time; see `Concurrency`."""
    form = {"limit": limit, "group": group, "otherwise": otherwise}
    return Concurrency.parse(form, field="concurrency")


def rate(
    limit: int, *, per: timedelta | str, group: str | None = None, otherwise: str = "hold"
) -> Rate:
    """At most ``limit`` launches of the target, or of ``group``, in any ``per``; see `Rate`."""
    form = {"limit": limit, "per": per, "group": group, "otherwise": otherwise}
    return Rate.parse(form, field="rate")


def window(
    start: str,
    end: str,
    *,
    timezone: str = "UTC",
    days: Sequence[str] | str = "all",
    otherwise: str = "hold",
) -> Window:
    """From ``start`` until just before ``end``, wall times such as ``22:00``; see `Window`."""
    form = {"start": start, "end": end, "timezone": timezone, "days": days}
    return Window.parse({**form, "otherwise": otherwise}, field="window")


def delay(duration: timedelta | str, *, otherwise: str = "hold") -> Delay:
    """Not before ``duration`` after the trigger was satisfied; see `Delay`."""
    return Delay.parse({"duration": duration, "otherwise": otherwise}, field="delay")


def minimum_interval(
    duration: timedelta | str,
    *,
    statuses: Sequence[str] | str = ("success",),
    otherwise: str = "hold",
) -> MinimumInterval:
    """``duration`` after the last run's end, and none active; see `MinimumInterval`."""
    form = {"duration": duration, "statuses": statuses, "otherwise": otherwise}
    return MinimumInterval.parse(form, field="minimum_interval")


def load(*, below: float, probe: str = "runs", otherwise: str = "hold") -> Load:
    """While the load is below a share of the capacity; see `Load`."""
    return Load.parse({"below": below, "probe": probe, "otherwise": otherwise}, field="load")


def fresh(
    parents: Mapping[str, float],
    *,
    recheck: timedelta | str = timedelta(minutes=2),
    otherwise: str = "hold",
) -> Fresh:
    """Returns when each parent was made at most that many hours ago; see `Fresh`."""
    form = {"parents": parents, "recheck": recheck, "otherwise": otherwise}
    return Fresh.parse(form, field="fresh")


def checks_passed(
    assets: Sequence[str] | str = (),
    checks: Sequence[str] | str = (),
    *,
    recheck: timedelta | str = timedelta(minutes=2),
    otherwise: str = "hold",
) -> ChecksPassed:
    """While the latest evaluations of asset checks passed; see `ChecksPassed`."""
    form = {"assets": assets, "checks": checks, "recheck": recheck, "otherwise": otherwise}
    return ChecksPassed.parse(form, field="checks_passed")


def idle(
    assets: Sequence[str] | str = (),
    *,
    jobs: Sequence[str] | str = (),
    otherwise: str = "hold",
) -> Idle:
    """While no run of these assets or jobs is in progress; see `Idle`."""
    form = {"assets": assets, "jobs": jobs, "otherwise": otherwise}
    return Idle.parse(form, field="idle")
