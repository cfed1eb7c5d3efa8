"""Proof: objects of Dagster are cut over and handed back, under load and kills: nothing is missed.

A command is killed before and after each of its writes, of either storage, and repeated. Meanwhile
events arrive, time passes, and Dagster's daemon and our dispatcher go on. Afterwards each tick of a
clock, each materialization and each success of a run must belong to exactly one run of its object.
``ARCTIC_PROOF=full``: 50 objects, 20 times there and back, 10,000 events.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.dagster.adoption.session import Item, Session
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events, job_events
from arctic_orchestration_tests.schedules.adoption.project import Project

pytestmark = [pytest.mark.proof, pytest.mark.timeout(7_200)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
SIZES = "20 25 5" if FULL else "2 2 1"
TIMES = 20 if FULL else 1
EVENTS = 10_000 if FULL else 60
#: writes of a command after which it is surely done
_WRITES = 40
_PASS = timedelta(seconds=31)
MODULE = "arctic_orchestration_tests.proofs.lake_of_adoptions"


class Killed(BaseException):
    """The command ends here, without any cleaning up but what ends a transaction."""


class Kills:
    """Ends a command before or after one of its writes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._left: int | None = None
        self.kills: Counter[str] = Counter()
        begin, update = Database.begin, dg.DagsterInstance.update_instigator_state

        @contextmanager
        def killed_begin(database: Database, *args: Any, **kwargs: Any) -> Iterator[sa.Connection]:
            with begin(database, *args, **kwargs) as tx:
                yield tx
                self._cross("before the commit")
            self._cross("after the commit")

        def killed_update(instance: dg.DagsterInstance, state: Any) -> Any:
            self._cross("before Dagster's row")
            done = update(instance, state)
            self._cross("after Dagster's row")
            return done

        patch.setattr(Database, "begin", killed_begin)
        patch.setattr(dg.DagsterInstance, "update_instigator_state", killed_update)

    @contextmanager
    def at(self, number: int | None) -> Iterator[None]:
        """Kills the block at its n-th boundary of a write."""
        self._left = number
        try:
            yield
        finally:
            self._left = None

    def _cross(self, where: str) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left == 0:
            self._left = None
            self.kills[where] += 1
            raise Killed(where)


class Load:
    """Events that arrive, and time that passes, in an order that a seed decides."""

    def __init__(self, project: Project, lake: ModuleType, seed: int) -> None:
        self.project, self.lake = project, lake
        self.random = random.Random(seed)
        self.made: Counter[str] = Counter()
        #: the successes of each watched job
        self.successes: dict[str, list[str]] = {f"watched{n}": [] for n in range(lake.WATCHERS)}
        self.began = project.now

    @property
    def total(self) -> int:
        return sum(self.made.values()) + sum(map(len, self.successes.values()))

    def some(self, most: int) -> None:
        """Some events, each of any kind."""
        for _ in range(self.random.randint(0, most)):
            if self.lake.WATCHERS and self.random.random() < 0.1:
                job = self.random.choice(sorted(self.successes))
                with self.project.at_now():
                    self.successes[job].append(self.project.succeed(job))
            else:
                asset = f"a{self.random.randrange(self.lake.ASSETS)}"
                self.made[asset] += 1
                self.project.arrive(asset, f"{self.made[asset]:05}")

    def go_on(self, most: int = 4) -> None:
        """Events, then a pass of the daemon; then events that no pass has seen."""
        self.some(most)
        self.project.advance(_PASS)
        self.project.daemon_pass()
        self.some(most)

    def settle(self) -> None:
        """Passes until all that arrived was evaluated."""
        for _ in range(8 if FULL else 4):
            self.project.advance(_PASS)
            self.project.daemon_pass()


@pytest.fixture
def project(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Project]:
    monkeypatch.setenv("ARCTIC_PROOF_ADOPTIONS", SIZES)
    with Project.opened(dagster_instance(backend), database_url, MODULE, monkeypatch) as made:
        yield made


def begun(project: Project) -> Load:
    """All objects run in Dagster, and have a position."""
    from arctic_orchestration_tests.proofs import lake_of_adoptions as lake

    project.daemon_pass()
    for number in range(lake.ASSETS):
        project.arrive(f"a{number}", "00000")
    project.start(*lake.NAMES)
    load = Load(project, lake, seed=18)
    load.go_on()
    return load


def carried_out(
    project: Project, load: Load, kills: Kills, names: Sequence[str], turn: int, *, back: bool
) -> None:
    """The command of each object, killed at a write, and again at later ones, until all are done.

    The daemon passes, and events arrive, between a kill and the next attempt.
    """
    left = {name: 1 + (turn + place) % 3 for place, name in enumerate(names)}
    while left:
        for name, number in list(left.items()):
            session = project.session()
            try:
                with kills.at(number if number <= _WRITES else None):
                    if not back:
                        waits = session.forward(session.cut_over(name))
                    else:
                        waits = session.back(session.find(name))
                if waits is None:
                    del left[name]
            except Killed:
                left[name] = number + 3
            finally:
                session.close()
        load.go_on(most=3)


def runs_of(project: Project, job: str) -> list[dg.DagsterRun]:
    return list(project.instance.get_runs(dg.RunsFilter(job_name=job)))


def events_of(project: Project, run: dg.DagsterRun) -> list[dict[str, Any]]:
    """The events of the job of one of our runs."""
    query = (
        sa.select(events.c.details)
        .join(
            job_events,
            (job_events.c.location_id == events.c.location_id)
            & (job_events.c.number == events.c.number),
        )
        .where(job_events.c.job_id == run.tags["arctic/job"])
    )
    with project.database.read() as tx:
        return [json.loads(text) for text in tx.execute(query).scalars()]


def is_ours(run: dg.DagsterRun) -> bool:
    return "arctic/schedule" in run.tags


def ticks_run(project: Project, number: int) -> Counter[datetime]:
    """How often each tick of a clock was run."""
    found: Counter[datetime] = Counter()
    for run in runs_of(project, f"report{number}"):
        if is_ours(run):
            found.update(datetime.fromisoformat(e["at"]) for e in events_of(project, run))
        else:
            tag = run.tags[".dagster/scheduled_execution_time"]
            found[datetime.fromisoformat(tag).astimezone(UTC)] += 1
    return found


def arrivals_run(project: Project, number: int) -> Counter[str]:
    """How often each partition of an asset was run; Dagster's run is for all up to the latest."""
    asset, found = dg.AssetKey(f"a{number}"), Counter[str]()
    records = project.instance.fetch_materializations(asset, limit=10_000, ascending=True).records
    ids = {record.partition_key: record.storage_id for record in records}
    for run in runs_of(project, f"arrived{number}"):
        if is_ours(run):
            found.update(event["partition"] for event in events_of(project, run))
            continue
        key = run.tags.get("dagster/run_key", "None")
        after = 0 if key == "None" else int(key)
        upto = ids[run.tags["upto"]]
        found.update(str(key) for key, id in ids.items() if after < id <= upto)
    return found


def judged(project: Project, load: Load) -> tuple[int, int]:
    """How much was missed, and how much was run more than once."""
    wanted: list[tuple[Counter[Any], list[Any]]] = []
    for number in range(load.lake.CRONS):
        minute = timedelta(minutes=1)
        at = load.began.replace(second=0, microsecond=0) + minute
        moments = []
        while at <= project.now:
            if at.minute == number * 7 % 60:
                moments.append(at)
            at += minute
        wanted.append((ticks_run(project, number), moments))
    for number in range(load.lake.ASSETS):
        keys = [f"{n:05}" for n in range(load.made[f"a{number}"] + 1)]
        wanted.append((arrivals_run(project, number), keys))
    for number in range(load.lake.WATCHERS):
        seen = Counter(run.tags["after"] for run in runs_of(project, f"after{number}"))
        wanted.append((seen, load.successes[f"watched{number}"]))
    missed = sum(1 for found, all_ in wanted for each in all_ if not found[each])
    doubled = sum(count - 1 for found, _ in wanted for count in found.values() if count > 1)
    return missed, doubled


def test_each_event_and_tick_has_one_run_whoever_had_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back, again and again, with commands that are killed at every write."""
    load = begun(project)
    kills = Kills(monkeypatch)
    order = list(load.lake.NAMES)
    for turn in range(TIMES):
        for back in (False, True):
            load.random.shuffle(order)
            carried_out(project, load, kills, order, turn, back=back)
            while load.total < EVENTS * (2 * turn + back + 1) / (2 * TIMES):
                load.go_on(most=150 if FULL else 8)
    load.settle()
    assert judged(project, load) == (0, 0)
    assert load.total >= EVENTS
    assert len(kills.kills) == 4, kills.kills
    owners = Counter(is_ours(run) for run in project.runs())
    assert owners[True] > 5 * TIMES, "ours had its part"
    assert owners[False] > 5 * TIMES, "Dagster had its part"


def plainly(project: Project, session: Session, item: Item, *, back: bool) -> None:
    """Stops the one here and starts the other there, as a person would."""
    state, drafted = item.place.state, item.drafted
    schedule = drafted.schedule
    assert schedule is not None
    remote: Any = (
        project.remote.get_schedule(item.name)
        if drafted.kind == "schedule"
        else project.remote.get_sensor(item.name)
    )
    stop = (
        project.instance.stop_schedule
        if drafted.kind == "schedule"
        else project.instance.stop_sensor
    )
    with project.at_now():
        if not back:
            stop(remote.get_remote_origin_id(), remote.selector_id, remote)
        with item.place.caught_up() as (tx, location, now):
            if back:
                control.suspend(tx, state.store, location, schedule.name, now)
            else:
                off = schedule.model_copy(update={"enabled": False})
                known = {one.name for one in state.store.in_location(tx, location.id)}
                if schedule.name not in known:
                    control.apply(tx, state.store, location, [off], now)
                control.enable(tx, state.store, location, schedule.name, now)
        if back:
            project.start(item.name)


def test_stopping_here_and_starting_there_loses_and_doubles(project: Project) -> None:
    """The control: what no tick took is lost, and an old cursor takes again what ours took."""
    load = begun(project)
    session = project.session()
    for back in (False, True, False):
        for name in load.lake.NAMES:
            load.some(3)
            plainly(project, session, session.find(name), back=back)
        load.go_on()
    load.settle()
    session.close()
    missed, doubled = judged(project, load)
    assert missed > 0
    assert doubled > 0
