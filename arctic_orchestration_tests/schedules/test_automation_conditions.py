"""What Dagster's own automation conditions would have run is never missed, on both databases.

``AutomationCondition.eager()`` is the rule ``on.partitions(asset, complete=True)``: a target
partition runs when one of its upstream partitions is new and none of them is missing.
``AutomationCondition.on_missing()`` is the same rule with ``late="ignore"``: once for each
partition. Of several dependencies each has such a trigger. For ``on_missing()`` they are joined
by ``&``, for ``eager()`` by ``|``, which also runs a partition while another dependency is missing.

Dagster's conditions are about the latest time window only, schedules about every partition of
the target: without that part, ``eager()`` of one dependency requests exactly what the schedule
runs. A schedule runs nothing before something has arrived for it. Dagster also requests what
begins to exist without an arrival: partitions whose upstream partitions were all there before,
and those whose upstream windows have not ended, which it does not count as missing. The shapes
have no such partitions: upstream windows are not longer than those of the target.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from operator import and_, or_
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arctic_orchestration import on
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.partitioning.forms import definition_of
from arctic_orchestration.partitioning.mapping_forms import mapping_of
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator import read_declared
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.lake_of_partitions import DAY, HOUR, Declared
from arctic_orchestration_tests.schedules.simulated import World, at

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
_beside = ThreadPoolExecutor(1)
#: each example is a location of its own
_numbers = itertools.count(1)

EAGER = dg.AutomationCondition.eager()
EVERY_PARTITION = EAGER.without(dg.AutomationCondition.in_latest_time_window())
ON_MISSING = dg.AutomationCondition.on_missing()


@dataclass(frozen=True)
class Shape:
    """Partitions of the target, those of its dependencies, and how these map to it."""

    target: dict[str, Any]
    upstream: Mapping[str, dict[str, Any]]
    mappings: Mapping[str, Any]


def windows(hours: int) -> dict[str, Any]:
    """Windows of so many hours from 2026-01-01 on."""
    expression = "0 0 * * *" if hours == 24 else f"0 */{hours} * * *"
    start = "2026-01-01-00:00"
    return {"cron": {"expression": expression, "start": start, "format": "%Y-%m-%d-%H:%M"}}


@st.composite
def time_windows(draw: st.DrawFn, longest: int) -> tuple[dict[str, Any], Any]:
    """Windows of so many hours at most, and the mapping; some are moved."""
    offsets = draw(st.sampled_from([None, (0, 0), (-1, 0), (-2, 0), (-1, -1)]))
    mapping = offsets and {
        "time_window": {
            "start_offset": offsets[0],
            "end_offset": offsets[1],
            "allow_nonexistent_upstream_partitions": True,
        }
    }
    return windows(draw(st.sampled_from([6, 12, *([24] if longest == 24 else [])]))), mapping


@st.composite
def days(draw: st.DrawFn, dependencies: int) -> Shape:
    """A target of days, or of halves of days."""
    length = draw(st.sampled_from([12, 24]))
    made = {f"raw_{number}": draw(time_windows(length)) for number in range(dependencies)}
    return Shape(
        windows(length),
        {name: upstream for name, (upstream, _) in made.items()},
        {name: mapping for name, (_, mapping) in made.items()},
    )


@st.composite
def regions_of_days(draw: st.DrawFn) -> Shape:
    """A target of days, with an upstream partition for each region of each."""
    regions = {"static": ["a", "b", "c"][: draw(st.integers(1, 3))]}
    return Shape(
        windows(24), {"raw": {"multi": {"date": windows(24), "region": regions}}}, {"raw": None}
    )


@st.composite
def keys_without_time(draw: st.DrawFn) -> Shape:
    """Keys that are mapped one by one."""
    onto = st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=3, unique=True)
    mapping = {key: draw(onto) for key in ("a", "b", "c", "d")}
    target = sorted({key for keys in mapping.values() for key in keys})
    return Shape(
        {"static": target}, {"raw": {"static": list(mapping)}}, {"raw": {"static": mapping}}
    )


SHAPES = {
    "windows": days(dependencies=1),
    "windows of two dependencies": days(dependencies=2),
    "regions of days": regions_of_days(),
    "keys without time": keys_without_time(),
}
#: the condition, what the schedule says beside ``complete``, whether they are the same
RULES: dict[str, tuple[dg.AutomationCondition[Any], dict[str, str], bool]] = {
    "eager": (EAGER, {}, False),
    "eager, every partition": (EVERY_PARTITION, {}, True),
    "on_missing": (ON_MISSING, {"late": "ignore"}, False),
}
#: an arrival of the key at a place in its asset's list; hours that pass; a tick
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 60)),
        st.tuples(st.just("arrive"), st.integers(0, 60)),
        st.tuples(st.just("pass"), st.sampled_from([6, 12, 24])),
        st.tuples(st.just("tick"), st.just(0)),
    ),
    min_size=1,
    max_size=25,
)


class Lake:
    """One target under Dagster's condition and under a schedule; the schedule's runs make it."""

    def __init__(
        self,
        database: Database,
        shape: Shape,
        condition: dg.AutomationCondition[Any],
        **trigger: Any,
    ) -> None:
        self._upstream = {
            name: definition_of(form, field=name) for name, form in shape.upstream.items()
        }
        self._defs = _definitions(shape, self._upstream, condition)
        self._instance = dg.DagsterInstance.ephemeral()
        self._cursor: Any = None
        self._now = 3 * DAY + HOUR
        self._evaluate()
        leaves = [on.partitions(name, complete=True, **trigger) for name in shape.upstream]
        schedule = Schedule(
            name="made",
            target={"assets": ["made"]},
            trigger=reduce(and_ if condition is ON_MISSING else or_, leaves),
            partitions="each",
            timeout="3650d",
            enabled=True,
        )
        assets: dict[str, Any] = {n: {"partitions": form} for n, form in shape.upstream.items()}
        declared = read_declared(
            {
                "assets": {
                    **assets,
                    "made": {"partitions": shape.target, "deps": dict(shape.mappings)},
                }
            }
        )
        assert declared.problems([schedule]) == []
        self._world = World(
            database, [schedule], targets=Declared(declared), location=f"made-{next(_numbers)}"
        )
        self._world.tick(self._now)

    def arrive(self, number: int) -> None:
        """A partition of a dependency arrives, of those that exist."""
        name = sorted(self._upstream)[number % len(self._upstream)]
        with partition_loading_context(effective_dt=self._moment):
            keys = self._upstream[name].get_partition_keys()
        key = keys[-1 - number % len(keys)]
        self._report(name, key)
        event = Event(
            kind=EventKind.PARTITION,
            subject=name,
            at=self._moment,
            storage_id=len(self._world.feed.events) + 1,
            partition=key,
        )
        self._world.feed.events.append(event)

    def pass_hours(self, hours: int) -> None:
        """Time passes."""
        self._now += hours * HOUR

    def tick(self) -> tuple[set[str], set[str]]:
        """What Dagster would run, and what the schedule does; it is made at once."""
        # Longer than a request without a run is kept from the next tick.
        self._now += 200
        wanted = self._evaluate()
        before = len(self._world.dagster.requests)
        self._world.tick(self._now)
        made = [str(r.partition_start) for r in self._world.dagster.requests[before:]]
        assert len(made) == len(set(made)), "a partition runs once"
        for key in made:
            self._report("made", key)
        # Dagster takes what arrives between two evaluations as used up by what is made there.
        assert self._evaluate() == set()
        return wanted, set(made)

    @property
    def _moment(self) -> datetime:
        return at(self._now)

    def _report(self, asset: str, key: str) -> None:
        self._instance.report_runless_asset_event(
            dg.AssetMaterialization(asset_key=asset, partition=key)
        )

    def _evaluate(self) -> set[str]:
        # In the main thread, asyncio looks at its handler of SIGINT; Python's enum then describes
        # it, with all conditions and partitions, and drops the text: half of the time.
        evaluate = partial(
            dg.evaluate_automation_conditions,
            defs=self._defs,
            instance=self._instance,
            cursor=self._cursor,
            evaluation_time=self._moment,
        )
        result = _beside.submit(evaluate).result()
        self._cursor = result.cursor
        return {key for key in result.get_requested_partitions(dg.AssetKey("made")) if key}


def _definitions(
    shape: Shape,
    upstream: Mapping[str, dg.PartitionsDefinition[Any]],
    condition: dg.AutomationCondition[Any],
) -> dg.Definitions:
    deps = [
        dg.AssetDep(name, partition_mapping=None if form is None else mapping_of(form, field=name))
        for name, form in shape.mappings.items()
    ]

    @dg.asset(
        deps=deps,
        partitions_def=definition_of(shape.target, field="made"),
        automation_condition=condition,
    )
    def made() -> None: ...

    specs = [dg.AssetSpec(name, partitions_def=found) for name, found in upstream.items()]
    return dg.Definitions(assets=[*specs, made])


@pytest.mark.parametrize("name", SHAPES)
@settings(
    max_examples=200 if FULL else 8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_what_a_condition_of_dagster_would_run_is_never_missed(
    name: str, data: st.DataObject, database: Database
) -> None:
    """At the same tick; and nothing else is run where both are about the same partitions."""
    condition, trigger, is_same = RULES[data.draw(st.sampled_from(sorted(RULES)))]
    shape = data.draw(SHAPES[name])
    here = Lake(database, shape, condition, **trigger)
    steps: Sequence[tuple[str, int]] = [*data.draw(STEPS), ("tick", 0), ("pass", 24), ("tick", 0)]
    for step, number in steps:
        if step == "arrive":
            here.arrive(number)
        elif step == "pass":
            here.pass_hours(number)
        else:
            wanted, made = here.tick()
            assert wanted <= made
            if is_same and len(shape.upstream) == 1:
                assert wanted == made
