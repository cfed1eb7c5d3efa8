"""A schedule that its own runs set off: refused where it never stops, warned of where it may."""

from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Arctic
from arctic_orchestration.constraints import only
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.scheduling.cautions import cautions
from arctic_orchestration.scheduling.schedule import Schedule
from arctic_orchestration.triggers import on

ASSETS = {"assets": ["raw/a", "b"]}
OTHER = on.partitions("other")


def made(trigger: Any, *constraints: Any, target: Any = "rollup", **fields: Any) -> Schedule:
    return Schedule(name="s", target=target, trigger=trigger, constraints=constraints, **fields)


ENDLESS = [
    ("rollup", on.run(job="rollup")),
    ("rollup", on.run(job="rollup", status="started")),
    ("rollup", on.run(job="rollup", status=["failure", "success"])),
    ("rollup", OTHER | on.run(job="rollup")),
    ("rollup", on.all_of(OTHER, on.run(job="rollup"), wait="1h")),
    (ASSETS, on.run(assets=["b", "c"])),
    (ASSETS, on.partitions("raw/a")),
    (ASSETS, on.partitions("raw/a") & on.partitions("b")),
    (ASSETS, on.data("b", "1GB")),
    (ASSETS, on.quiet("b", "5m")),
    (ASSETS, on.check("b", "no_nulls")),
]


@pytest.mark.parametrize(("target", "trigger"), ENDLESS, ids=str)
def test_a_schedule_that_sets_itself_off_is_refused(target: Any, trigger: Any) -> None:
    """Each run that succeeds is the next one's event; how many at once makes no difference."""
    for constraints in ([], [only.concurrency(1)], [only.delay("0s")]):
        with pytest.raises(InvalidDefinition, match="again and again") as refused:
            made(trigger, *constraints, target=target)
        assert refused.value.field == "Schedule(s).trigger"


@pytest.mark.parametrize(("target", "trigger"), ENDLESS, ids=str)
@pytest.mark.parametrize(
    "constraint",
    [
        only.minimum_interval("5m"),
        only.delay("10m"),
        only.rate(1, per="1h"),
        only.window("22:00", "06:00"),
    ],
    ids=lambda constraint: constraint.kind,
)
def test_one_whose_runs_are_spaced_out_is_warned_of(
    target: Any, trigger: Any, constraint: Any
) -> None:
    """Work through the night without a pause is something that people want."""
    (said,) = cautions(made(trigger, constraint, target=target, timeout="1d"))
    assert said.startswith("Schedule(s).trigger: the schedule's own runs set it off")


@pytest.mark.parametrize(
    ("target", "trigger"),
    [
        ("rollup", on.run(job="other")),
        ("rollup", on.run(job="rollup", count=2)),
        ("rollup", on.run(job="rollup", location="elsewhere")),
        ("rollup", OTHER & on.run(job="rollup")),
        ("rollup", on.elapsed("1h", since=on.run(job="rollup"))),
        (ASSETS, on.partitions("raw/b")),
        (ASSETS, on.partitions("raw/a", count=3)),
        (ASSETS, on.partitions("raw/a", where="2026-*")),
        (ASSETS, OTHER & on.partitions("raw/a")),
    ],
    ids=str,
)
def test_what_needs_other_events_too_is_no_cycle(target: Any, trigger: Any) -> None:
    """It comes to rest when they do."""
    assert cautions(made(trigger, target=target, timeout="1d")) == []


def test_a_retry_without_a_limit_is_warned_of() -> None:
    """A run that fails for good is started again for ever."""
    (said,) = cautions(made(on.run(job="rollup", status="failure")))
    assert "without a limit on attempts" in said


def test_a_selection_of_assets_is_looked_up_first() -> None:
    """What it stands for is known when Dagster puts the definitions together."""

    @dg.asset
    def own() -> None: ...

    schedule = Schedule(
        name="s", target=dg.AssetSelection.assets("own"), trigger=on.partitions("own")
    )
    definitions = dg.Definitions.merge(
        dg.Definitions(assets=[own]), Arctic(schedules=[schedule]).definitions()
    )
    with pytest.raises(dg.DagsterError) as refused:
        definitions.get_repository_def().get_all_jobs()
    assert "again and again" in str(refused.value.__cause__)
