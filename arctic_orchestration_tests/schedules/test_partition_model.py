"""A model of target partitions, held against the engine on both databases.

Which partitions belong together is asked of Dagster's own mapping objects. Arrivals come in any
order, again and late, some fail their checks at first, some are made by backfills; the engine
crashes before and after its commits.
"""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.utils.mapping import infer_partition_mapping
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arctic_orchestration import on
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.partitioning.forms import definition_of
from arctic_orchestration.partitioning.mapping_forms import mapping_of
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator import read_declared
from arctic_orchestration.schedules.subscriber import Subscriber
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.lake_of_partitions import DAY, Declared
from arctic_orchestration_tests.schedules.simulated import World, at

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
#: each example is a location of its own
_numbers = itertools.count(1)
FAR = datetime(2200, 1, 1, tzinfo=UTC)
DAILY = {"daily": {"start": "2026-01-01"}}
HALF_DAYS = {
    "cron": {"expression": "0 */12 * * *", "start": "2026-01-01-00:00", "format": "%Y-%m-%d-%H:%M"}
}
REGIONS = {"static": ["a", "b", "c"]}


@dataclass(frozen=True)
class Shape:
    """Partitions of an asset, of the target, the mapping between them, and keys to arrive."""

    upstream: dict[str, Any]
    target: dict[str, Any]
    mapping: Any
    keys: Sequence[str]


SHAPES = {
    "days": Shape(DAILY, DAILY, None, ["2026-01-01", "2026-01-02"]),
    "halves of days": Shape(
        HALF_DAYS, DAILY, None, [f"2026-01-0{d}-{h}:00" for d in (1, 2) for h in ("00", "12")]
    ),
    "the day before, too": Shape(
        DAILY,
        DAILY,
        {"time_window": {"start_offset": -1, "end_offset": 0}},
        ["2026-01-01", "2026-01-02", "2026-01-03"],
    ),
    "regions of days": Shape(
        {"multi": {"date": DAILY, "region": {"static": ["a", "b"]}}},
        DAILY,
        None,
        [f"2026-01-0{day}|{region}" for day in (1, 2) for region in "ab"],
    ),
    "regions to continents": Shape(
        REGIONS,
        {"static": ["x", "y"]},
        {"static": {"a": "x", "b": "x", "c": "y"}},
        ["a", "b", "c"],
    ),
}


class Relation:
    """What Dagster's own objects say of two definitions and a mapping."""

    def __init__(self, shape: Shape) -> None:
        self.upstream = definition_of(shape.upstream, field="upstream")
        self.target = definition_of(shape.target, field="target")
        if shape.mapping is not None:
            self.mapping = mapping_of(shape.mapping, field="mapping")
        else:
            self.mapping = infer_partition_mapping(None, self.target, self.upstream)

    def targets(self, key: str) -> set[str]:
        """The target partitions of an upstream key."""
        with partition_loading_context(effective_dt=FAR, dynamic_partitions_store=None):
            found = self.mapping.get_downstream_partitions_for_partitions(
                self.upstream.subset_with_partition_keys([key]), self.upstream, self.target
            )
            return set(found.get_partition_keys())

    def sources(self, target: str) -> set[str]:
        """The upstream keys of a target partition."""
        with partition_loading_context(effective_dt=FAR, dynamic_partitions_store=None):
            found = self.mapping.get_upstream_mapped_partitions_result_for_partitions(
                self.target.subset_with_partition_keys([target]), self.target, self.upstream
            )
            return set(found.partitions_subset.get_partition_keys())


@dataclass
class Model:
    """What is owed: for each target partition the keys that arrived since its last run."""

    relation: Relation
    ignores_late: bool
    got: dict[str, set[str]] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)

    def arrive(self, key: str) -> None:
        for target in self.relation.targets(key):
            if not (self.ignores_late and target in self.ran):
                self.got.setdefault(target, set()).add(key)

    def tick(self) -> list[str]:
        """The target partitions that are whole, or were and have something new."""
        due = [
            target
            for target, keys in self.got.items()
            if keys and (target in self.ran or keys >= self.relation.sources(target))
        ]
        for target in due:
            self.got[target] = set()
            self.ran.add(target)
        return sorted(due)


class CrashError(Exception):
    """The process ends before its commit."""


def steps(keys: Sequence[str]) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Things that happen, in any order."""
    arrival = st.sampled_from(keys)
    step = st.one_of(
        st.tuples(st.just("arrive"), arrival),
        st.tuples(st.just("arrive"), arrival),
        st.tuples(st.just("fail"), arrival),
        st.tuples(st.just("backfill"), arrival),
        st.sampled_from([("tick", ""), ("crash before", ""), ("crash after", ""), ("mend", "")]),
    )
    return st.lists(step, min_size=1, max_size=25)


class Lake:
    """The engine, what has arrived, and which runs were made."""

    def __init__(self, database: Database, shape: Shape, **trigger: Any) -> None:
        schedule = Schedule(
            name="s",
            target={"assets": ["made"]},
            trigger=on.partitions("raw", count="all", **trigger),
            partitions="each",
            timeout="3650d",
            enabled=True,
        )
        dep = {"raw": shape.mapping} if shape.mapping else ["raw"]
        assets = {
            "raw": {"partitions": shape.upstream},
            "made": {"partitions": shape.target, "deps": dep},
        }
        declared = read_declared({"assets": assets})
        assert declared.problems([schedule]) == []
        self.world = World(
            database, [schedule], targets=Declared(declared), location=f"lake-{next(_numbers)}"
        )
        self._now = 400 * DAY
        self.tick()
        self._failed: list[tuple[int, str]] = []

    def tick(self) -> list[str]:
        """One tick; returns the partitions of new runs."""
        # Longer than a request without a run is kept from the next tick.
        self._now += 200
        before = len(self.world.dagster.requests)
        self.world.tick(self._now)
        new = self.world.dagster.requests[before:]
        return sorted(str(request.partition_start) for request in new)

    def crash_before(self) -> None:
        """All that a tick did is undone."""
        take = Subscriber.take

        def crash(subscriber: Subscriber, *args: Any, **kwargs: Any) -> None:
            take(subscriber, *args, **kwargs)
            subscriber._queue.flush()
            raise CrashError

        self._now += 200
        self.world.engine.sets_aside = False
        with mock.patch.object(Subscriber, "take", crash), pytest.raises(CrashError):
            self.world.engine.tick(at(self._now))
        self.world.engine = self.world.new_engine()

    def crash_after(self) -> None:
        """All is committed, and Dagster never sees the requests."""
        self._now += 200
        self.world.tick_without_submitting(self._now)
        self.world.engine = self.world.new_engine()

    def arrive(self, key: str, *, fails: bool = False, backfill: bool = False) -> None:
        number = len(self.world.feed.events) + 1
        self.world.feed.planned[number] = frozenset({"good"}) if fails else frozenset()
        if backfill:
            self.world.feed.backfills[f"r{number}"] = "history"
        self._event(EventKind.PARTITION, number, key, run_id=f"r{number}")
        if fails:
            self._check(number, key, passed=False)
            self._failed.append((number, key))

    def mend(self) -> list[str]:
        """The checks that failed pass; returns the keys of their arrivals."""
        for number, key in self._failed:
            self._check(number, key, passed=True)
        mended, self._failed = [key for _, key in self._failed], []
        return mended

    def _check(self, of: int, key: str, *, passed: bool) -> None:
        number = len(self.world.feed.events) + 1
        self._event(
            EventKind.CHECK,
            number,
            key,
            check="good",
            passed=passed,
            severity="error",
            blocking=True,
            target_id=of,
        )

    def _event(self, kind: EventKind, number: int, key: str, **values: Any) -> None:
        moment = at(self._now)
        event = Event(
            kind=kind, subject="raw", at=moment, storage_id=number, partition=key, **values
        )
        self.world.feed.events.append(event)


@pytest.mark.parametrize("name", SHAPES)
@settings(
    max_examples=200 if FULL else 15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_each_target_partition_runs_once_for_each_time_it_is_whole(
    name: str, data: st.DataObject, database: Database
) -> None:
    """Never on half of what belongs to it, whatever comes late, again, or crashes."""
    shape = SHAPES[name]
    late, backfill = data.draw(
        st.sampled_from([("rerun", "follow"), ("ignore", "follow"), ("rerun", "ignore")])
    )
    here = Lake(database, shape, late=late, backfill=backfill)
    model = Model(Relation(shape), ignores_late=late == "ignore")
    owed: list[str] = []
    for step, key in [*data.draw(steps(shape.keys)), ("mend", ""), ("tick", ""), ("tick", "")]:
        if step == "arrive":
            here.arrive(key)
            model.arrive(key)
        elif step == "fail":
            here.arrive(key, fails=True)
        elif step == "backfill":
            here.arrive(key, backfill=True)
            if backfill == "follow":
                model.arrive(key)
        elif step == "mend":
            # What has arrived so far is decided before the checks pass.
            owed += model.tick()
            assert sorted(here.tick()) == sorted(owed)
            owed = []
            for mended in here.mend():
                model.arrive(mended)
        elif step == "crash before":
            here.crash_before()
        elif step == "crash after":
            owed += model.tick()
            here.crash_after()
        else:
            owed += model.tick()
            assert sorted(here.tick()) == sorted(owed)
            owed = []
