"""Jobs that wait, and schedules that are stored, when the code is not what it was."""

from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import on
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.location import locked
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.simulator import read_declared
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.targets import PartitionMap, TargetPartitions
from arctic_orchestration.state.tables import schedules
from arctic_orchestration_tests.schedules.lake_of_partitions import (
    ASSETS,
    DAILY,
    DAY,
    HOUR,
    Declared,
    MakeWorld,
    daily,
    lake,
    runs,
    waiting,
)
from arctic_orchestration_tests.schedules.simulated import World, at

__all__ = ["lake"]


class Lost(Declared):
    """Code that no longer has the target, or a dimension of an asset."""

    def partitions(self, target: Target) -> TargetPartitions | None:
        raise LookupError(f"no {target}")

    def groups(self, asset: str, dimension: str) -> PartitionMap:
        raise InvalidInput("per", dimension, f"a dimension of {asset}")


def regions(*names: str) -> Declared:
    changed = {"multi": {"date": DAILY, "region": {"static": list(names)}}}
    return Declared(read_declared({"assets": {**ASSETS, "raw/orders": {"partitions": changed}}}))


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("of_target", [False, True])
def test_what_the_code_has_lost_stops_no_other_schedule(
    lake: MakeWorld, complete: bool, of_target: bool
) -> None:
    """A job waits for all partitions, and nobody can say any more which these are."""
    all_: dict[str, Any] = {"complete": True} if complete else {"count": "all"}
    if of_target:
        waits = daily(trigger=on.partitions("raw/orders", **all_))
    else:
        waits = daily(
            target="report",
            partitions="none",
            trigger=on.partitions("raw/orders", per="date", **all_),
        )
    other = daily("other", target="report", partitions="none", trigger=on.partitions("config"))
    here = lake(waits, other)
    here.feed.arrive("raw/orders", "2026-01-01|emea")
    here.tick(2 * DAY)
    before = waiting(here)
    assert len(before) == 1
    here.targets = Lost(regions().declared)
    here.engine = here.new_engine()
    for second in (1, 2):
        here.feed.arrive("config")
        here.tick(2 * DAY + second)
    assert runs(here) == ["None", "None"]
    assert waiting(here) == before
    here.targets = regions("emea")
    here.engine = here.new_engine()
    here.tick(2 * DAY + 3)
    assert len(runs(here)) == 3


def test_a_job_that_fires_because_of_the_code_is_reported(lake: MakeWorld) -> None:
    """To metrics, assets of schedules and the simulator, as one that fires for an arrival."""
    here = lake(daily(trigger=on.partitions("raw/orders", count="all")))
    for key in ("2026-01-01|emea", "2026-01-01|amer"):
        here.feed.arrive("raw/orders", key)
    here.tick(2 * DAY)
    here.targets = regions("emea", "amer")
    here.engine = here.new_engine()
    result = here.engine.tick(at(2 * DAY + 1))
    moved = [str(move.job.reason) for move in result.moves]
    assert moved[0] == "2 of 2 partitions of raw/orders have arrived"
    assert result.counts["fired"] == 1


@pytest.mark.parametrize(
    "more", [{}, {"per": "date"}, {"count": "all"}, {"complete": True}, {"late": "ignore"}]
)
def test_a_stored_elapsed_since_partitions_goes_on(lake: MakeWorld, more: dict[str, Any]) -> None:
    """With settings that are refused by now, because it never heeded them."""
    here = lake()
    form = {
        "name": "s",
        "target": {"assets": ["report"]},
        "trigger": {
            "elapsed": {"duration": "1h", "since": {"partitions": {"asset": "raw/orders", **more}}}
        },
        "enabled": True,
    }
    here.tick(0)
    _store(here, form)
    for region in ("emea", "amer", "apac"):
        here.feed.arrive("raw/orders", f"2026-01-01|{region}", moment=at(5))
    for seconds in (10, HOUR + 100, 2 * HOUR + 200, 3 * HOUR + 300):
        here.tick(seconds)
    assert len(runs(here)) == 3


def test_keys_that_no_database_holds_are_left_out_of_ticks(lake: MakeWorld) -> None:
    """Of a cron for all partitions that are missing; and one that stands for all of them."""
    keys = ["a", "caf\udce9", "*", "b" * 2_001]
    assets = {**ASSETS, "areas": {"partitions": {"static": keys}}}
    every = on.cron("0 0 * * *", partition="all_missing")
    other = daily("other", target="report", partitions="none", trigger=on.cron("0 0 * * *"))
    here = lake(daily(target={"assets": ["areas"]}, trigger=every), other, assets=assets)
    here.tick(DAY)
    assert sorted(runs(here)) == ["None", "a"]


def _store(here: World, form: dict[str, Any]) -> None:
    with here.database.begin() as tx:
        place = locked(tx, "default", "here")
        ScheduleStore().add(tx, place, [Schedule.stored(form)], Origin.API, at(1))


def test_an_end_of_a_window_waits_for_the_code_that_knows_it(lake: MakeWorld) -> None:
    """At six the target cannot be looked up; two hours later it can, and the day runs."""
    here = lake(daily(trigger=on.partition_end("6h")))
    known, here.engine.targets = here.engine.targets, Lost(read_declared({"assets": ASSETS}))
    for minute in (0, 1, 30, 119):
        here.tick(DAY + 6 * HOUR + 60 * minute)
    assert runs(here) == []
    here.engine.targets = known
    here.tick(DAY + 8 * HOUR)
    assert runs(here) == ["2026-01-01"]
    here.tick(2 * DAY + 6 * HOUR)
    assert runs(here) == ["2026-01-01", "2026-01-02"]


def test_ends_of_windows_are_waited_for_again_where_the_code_gives_more(lake: MakeWorld) -> None:
    """Partitions that end with the second day; then the code is deployed without an end."""
    until = {"daily": {"start": "2026-01-01", "end": "2026-01-03"}}
    summary = {**ASSETS["summary"], "partitions": until}
    here = lake(daily(trigger=on.partition_end()), assets={**ASSETS, "summary": summary})
    for day in range(1, 5):
        here.tick(day * DAY)
    assert runs(here) == ["2026-01-01", "2026-01-02"]
    here.targets = Declared(read_declared({"assets": ASSETS}))
    here.engine = here.new_engine()
    here.tick(4 * DAY + HOUR)
    here.tick(5 * DAY)
    assert runs(here) == ["2026-01-01", "2026-01-02", "2026-01-05"]


@pytest.mark.parametrize("how", ["code", "deployment", "command"])
def test_ends_of_shorter_windows_are_not_missed(lake: MakeWorld, how: str) -> None:
    """The next end known is that of a month; then the target, or another one, has days."""
    monthly = {"partitions": {"monthly": {"start": "2026-01-01"}}}
    target = "summary" if how == "code" else "months"
    old = daily(trigger=on.partition_end(), target={"assets": [target]})
    here = lake(old, assets={**ASSETS, target: monthly})
    here.tick(1)
    wanted = daily(trigger=on.partition_end())
    here.targets = Declared(read_declared({"assets": ASSETS}))
    if how == "command":
        here.engine.targets = here.targets
        with here.database.begin() as tx:
            place = locked(tx, "default", "here")
            control.update(tx, ScheduleStore(), place, wanted, at(HOUR))
    else:
        here.schedules = [wanted]
        here.engine = here.new_engine()
    for day in range(3):
        here.tick(day * DAY + 2 * HOUR)
    assert runs(here) == ["2026-01-01", "2026-01-02"]


def test_arrivals_wait_for_the_version_that_can_read_their_schedule(lake: MakeWorld) -> None:
    """An earlier version ticks twice meanwhile; then the code has the partition that arrived."""
    here = lake(daily(trigger=on.partitions("raw/days")))
    here.feed.arrive("raw/days", "2025-12-31")
    here.tick(DAY)
    with here.database.begin() as tx:
        spec = tx.execute(sa.select(schedules.c.spec)).scalar_one()
        tx.execute(sa.update(schedules).values(spec="{}"))
    here.engine = here.new_engine()
    here.engine.declared = None
    here.tick(DAY + 1)
    here.tick(DAY + 2)
    with here.database.begin() as tx:
        tx.execute(sa.update(schedules).values(spec=spec))
    longer = {"partitions": {"daily": {"start": "2025-12-31"}}}
    summary = {**ASSETS["summary"], **longer}
    changed = read_declared({"assets": {**ASSETS, "summary": summary, "raw/days": longer}})
    here.targets = Declared(changed)
    here.engine = here.new_engine()
    here.tick(DAY + 3)
    here.tick(DAY + 4)
    assert runs(here) == ["2025-12-31"]
