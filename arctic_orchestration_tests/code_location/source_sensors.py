"""A code location whose plain sensors are sources, for tests."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on

DAYS = dg.StaticPartitionsDefinition(["monday", "tuesday"])
COLORS = dg.DynamicPartitionsDefinition(name="colors")


@dg.op(config_schema={"color": dg.Field(str, default_value="none")})
def step() -> None: ...


@dg.job
def work() -> None:
    step()


@dg.job
def other() -> None:
    step()


@dg.job(partitions_def=DAYS)
def daily() -> None:
    step()


@dg.job(partitions_def=COLORS)
def painting() -> None:
    step()


@dg.asset
def a() -> None: ...


@dg.asset
def b() -> None: ...


@dg.asset
def c() -> None: ...


@dg.asset(partitions_def=DAYS)
def days_parent() -> None: ...


@dg.asset(partitions_def=DAYS, deps=[days_parent])
def days_child() -> None: ...


ab = dg.define_asset_job("ab", selection=["a", "b"])

RED = {"ops": {"step": {"config": {"color": "red"}}}}
JOBS: Sequence[Any] = (work, other, daily, painting, ab)


def takes(sensor: str, target: Any = work, name: str = "s", **fields: Any) -> Schedule:
    job = fields.pop("job", None)
    trigger = on.requests(sensor, job=job)
    return Schedule(name=name, target=target, trigger=trigger, enabled=True, **fields)


def lake(asked: Sequence[dg.SensorDefinition], *schedules: Schedule, **own: Any) -> dg.Definitions:
    arctic = Arctic(schedules=schedules, sources=asked, numbers_every=None, schedule_assets=False)
    mine = dg.Definitions(assets=[a, b, c, days_parent, days_child], jobs=JOBS, **own)
    return dg.Definitions.merge(mine, arctic.definitions())


def asks(*results: Any, name: str = "files", **fields: Any) -> dg.SensorDefinition:
    """A sensor whose evaluations return these, one after the other, and then nothing."""
    left = list(results)

    @dg.sensor(name=name, **{"job": work, "minimum_interval_seconds": 0, **fields})
    def made(context: dg.SensorEvaluationContext) -> Any:
        result = left.pop(0) if left else None
        return result(context) if callable(result) else result

    return made
