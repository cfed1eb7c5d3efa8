"""Constraints as one writes them in Python: ``only.concurrency(1)``."""

from datetime import timedelta

from arctic_orchestration.constraints.concurrency import Concurrency
from arctic_orchestration.constraints.delay import Delay


def concurrency(limit: int, *, group: str | None = None, otherwise: str = "hold") -> Concurrency:
    """At most ``limit`` runs of the target, or of ``group``, at a time; see `Concurrency`."""
    form = {"limit": limit, "group": group, "otherwise": otherwise}
    return Concurrency.parse(form, field="concurrency")


def delay(duration: timedelta | str, *, otherwise: str = "hold") -> Delay:
    """Not before ``duration`` after the trigger was satisfied; see `Delay`."""
    return Delay.parse({"duration": duration, "otherwise": otherwise}, field="delay")
