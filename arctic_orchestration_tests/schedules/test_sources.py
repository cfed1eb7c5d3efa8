"""Sources: each run request of a sensor is one job, under kills and two dispatchers at once."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules import engine, location_control, retention
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.simulator.lines import RunRequested, parse_line
from arctic_orchestration.schedules.source_intake import Intake, SourceIntake
from arctic_orchestration.schedules.sources import Evaluation, SourceState
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views.explanation import explain_schedule
from arctic_orchestration.schedules.views.replay import line_of
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.source_tables import source_requests, sources
from arctic_orchestration.state.tables import events, jobs
from arctic_orchestration_tests.schedules.simulated import World, at

FULL = os.environ.get("ARCTIC_PROOF") == "full"


@dataclass
class Files:
    """A sensor over a growing list of files; ``evaluate`` is what a code location would do."""

    #: the run key of each file; None: it has none
    keys: list[str | None] = field(default_factory=list)
    #: whether it has a cursor; else it requests all files each time
    has_cursor: bool = True
    #: called while it is evaluated
    meanwhile: Callable[[], None] = lambda: None
    intervals: Mapping[str, timedelta] = field(default_factory=lambda: {"files": timedelta(0)})
    adopted: Sequence[str] = ()

    def launched(self, name: str, run_keys: Sequence[str]) -> Sequence[str]:
        return ()

    def evaluate(self, due: Sequence[SourceState]) -> Sequence[Evaluation]:
        (state,) = due
        first = int(state.cursor or 0) if self.has_cursor else 0
        requests = [
            Event(
                kind=EventKind.REQUEST,
                subject="files",
                at=at(0),
                run_key=key,
                job="rollup",
                tags={"file": str(number)},
            )
            for number, key in enumerate(self.keys[first:], first)
        ]
        cursor = str(len(self.keys)) if self.has_cursor else None
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return [Evaluation(state=state, requests=requests, cursor=cursor)]


def schedule(**fields: Any) -> Schedule:
    fields = {"target": "rollup", "trigger": on.requests("files"), "enabled": True, **fields}
    return Schedule(name="s", **fields)


def world(database: Database, files: Files, **fields: Any) -> World:
    here = World(database, [schedule(**fields)])
    here.engine.sources = files
    return here


def rows(database: Database, query: sa.Select[Any]) -> list[Any]:
    with database.read() as tx:
        return list(tx.execute(query).scalars())


class KilledError(BaseException):
    """The process is gone."""


@dataclass
class Mortal:
    """A database at one of whose next transactions the process is killed."""

    database: Database
    #: how many transactions from now; 0: at none
    dies_at: int = 0
    commits: bool = False

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        self.dies_at -= 1
        dies = self.dies_at == 0
        with self.database.begin() as tx:
            yield tx
            if dies and not self.commits:
                raise KilledError
        if dies:
            raise KilledError


def walk(database: Database, seed: int, name: str = "walk") -> Counter[str]:
    """A random life of a source with two dispatchers; returns how many runs each file has.

    Files with one run key are counted as one, under their key.
    """
    choose = random.Random(seed)
    files = Files(has_cursor=choose.random() < 0.7)
    first = World(database, [schedule()], location=f"{name}{seed}")
    second = World(database, [schedule()], location=first.location, feed=first.feed)
    second.dagster = first.dagster

    def start(dispatcher: World) -> Mortal:
        mortal = Mortal(database)
        dispatcher.engine = dispatcher.new_engine()
        dispatcher.engine.database = mortal  # type: ignore[assignment]
        dispatcher.engine.sources = files
        return mortal

    databases = [start(first), start(second)]
    for second_of_time in range(1, 26):
        for _ in range(choose.choice([0, 0, 1, 3])):
            is_keyed = not files.has_cursor or choose.random() < 0.5
            files.keys.append(f"k{choose.randrange(30)}" if is_keyed else None)
        number = choose.randrange(2)
        dispatcher, other = (first, second)[number], (second, first)[number]
        if choose.random() < 0.4:
            databases[number].dies_at = choose.randrange(1, 7)
            databases[number].commits = choose.random() < 0.5
        if choose.random() < 0.4:
            files.meanwhile = lambda other=other, now=second_of_time: other.tick(now)  # type: ignore[misc]
        try:
            dispatcher.tick(second_of_time)
        except KilledError:
            databases[number] = start(dispatcher)
        files.meanwhile = lambda: None
        databases[number].dies_at = 0
    for second_of_time in range(26, 29):
        first.tick(second_of_time)
    made = Counter[str]()
    for request in first.dagster.requests:
        file = request.tags["file"]
        made[files.keys[int(file)] or file] += 1
    for number_of_file, key in enumerate(files.keys):
        made.setdefault(key or str(number_of_file), 0)
    return made


@pytest.mark.proof
def test_each_request_is_one_run(database: Database) -> None:
    """Under kills before and after each commit, and with evaluations that overlap."""
    for seed in range(200 if FULL else 4):
        made = walk(database, seed)
        assert set(made.values()) <= {1}, (seed, made)


class _CursorFirst(SourceIntake):
    """A control: the cursor is stored in a transaction of its own, before the requests."""

    def take(self, now: Any) -> Intake:
        inner = self.sources

        class _Apart:
            intervals = inner.intervals
            adopted = ()
            launched = inner.launched

            def evaluate(this, due: Sequence[SourceState]) -> Sequence[Evaluation]:
                found = inner.evaluate(due)
                return [self._moved(each) for each in found]

        return SourceIntake.take(replace(self, sources=_Apart()), now)

    def _moved(self, evaluation: Evaluation) -> Evaluation:
        state = evaluation.state
        with self.database.begin() as tx:
            values = {"cursor": evaluation.cursor, "tick": state.tick + 1}
            here = sources.c.location_id == self.locked(tx).id
            tx.execute(sa.update(sources).where(here, sources.c.tick == state.tick).values(values))
        return replace(evaluation, state=replace(state, tick=state.tick + 1))


class _Unchecked(SourceIntake):
    """A control: the tick number is not compared."""

    def _store_one(
        self, queue: JobQueue, location: Location, evaluation: Evaluation
    ) -> tuple[Mapping[str, int], str, bool]:
        here = sources.c.location_id == location.id
        tick = queue.tx.execute(sa.select(sources.c.tick).where(here)).scalar_one()
        state = replace(evaluation.state, tick=tick)
        return super()._store_one(queue, location, replace(evaluation, state=state))


@pytest.mark.parametrize(("control", "fault"), [(_CursorFirst, 0), (_Unchecked, 2)])
def test_controls_lose_and_double(
    control: type[SourceIntake],
    fault: int,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cursor that is stored apart loses requests; without compare-and-set they are doubled."""
    monkeypatch.setattr(engine, "SourceIntake", control)
    assert any(fault in walk(database, seed).values() for seed in (10, 11, 12))


def test_suspending_stops_the_sensor_where_it_is(database: Database) -> None:
    """Its cursor stays, and after the resume nothing is missing."""
    files = Files(keys=[None])
    here = world(database, files)
    assert len(here.tick(1)) == 1
    here.suspend(2)
    files.keys += [None, "k"]
    assert here.tick(3) == []
    assert rows(database, sa.select(sources.c.cursor)) == ["1"]
    here.resume(4)
    assert len(here.tick(5)) == 2


def test_a_sensor_stops_where_it_is_while_it_is_evaluated(database: Database) -> None:
    """Its schedule is suspended meanwhile: the requests are not dropped, they come again."""
    files = Files(keys=["a", None])
    here = world(database, files)

    def suspended() -> None:
        here.suspend(1)

    files.meanwhile = suspended
    assert here.tick(1) == []
    assert rows(database, sa.select(sources.c.cursor)) == [None]
    here.resume(2)
    assert len(here.tick(3)) == 2


@pytest.mark.parametrize("mode", ["collect", "backlog"])
def test_what_is_collected_stays_one_job_a_request(database: Database, mode: str) -> None:
    """A suspended schedule that goes on taking makes no common job of several requests."""
    files = Files()
    here = world(database, files, suspend_mode=mode)
    here.tick(1)
    here.suspend(2)
    files.keys += [None, "k"]
    assert here.tick(3) == []
    assert len(rows(database, sa.select(jobs.c.id))) == 2
    here.resume(4)
    assert len(here.tick(5)) == 2


def test_old_requests_are_deleted_and_their_run_keys_stay(database: Database) -> None:
    """The content goes with its job; a key that comes again months later makes no run."""
    files = Files(keys=["k"], has_cursor=False)
    here = world(database, files)
    (run,) = here.tick(1)
    here.tick(2)
    here.dagster.end(run)
    here.tick(3)
    month = timedelta(days=31).total_seconds()
    with database.begin() as tx:
        location = locations.locked(tx, "default", "here")
        retention.prune(tx, location, at(month))
    assert rows(database, sa.select(events.c.number)) == []
    assert rows(database, sa.select(source_requests.c.run_key)) == ["k"]
    assert here.tick(month) == []
    with database.begin() as tx:
        location_control.delete(tx, locations.locked(tx, "default", "here"), at(month))
    assert rows(database, sa.select(source_requests.c.run_key)) == []
    assert rows(database, sa.select(sources.c.name)) == []


def test_requests_that_cannot_be_stored_stop_no_schedule(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The explanation says why; another job is launched, and the next tick tries again."""
    files = Files(keys=[None])
    other = Schedule(name="t", target="rollup", trigger=on.partitions("raw/a"), enabled=True)
    here = World(database, [schedule(), other])
    here.engine.sources = Files()
    here.tick(0)
    here.engine.sources = files
    here.feed.arrive("raw/a", "1")

    def fails(*_: Any, **__: Any) -> None:
        raise OverflowError("too large")

    with monkeypatch.context() as patch:
        patch.setattr(SourceIntake, "_store_one", fails)
        result = here.engine.tick(at(1))
    (request,) = result.requests
    assert request.tags["arctic/schedule"] == "t"
    assert "OverflowError('too large')" in " ".join(result.remarks)
    with database.begin() as tx:
        location = locations.locked(tx, here.engine.cluster, here.location)
        explained = explain_schedule(tx, here.engine.store, location, "s", at(9))
    assert explained.trigger is not None
    assert explained.trigger.reason.endswith(
        f"evaluated at {at(1):%Y-%m-%d %H:%M:%SZ}: its requests could not be stored: "
        "OverflowError('too large')"
    )
    here.dagster.submit(result.requests)
    assert len(here.tick(2)) == 1


def test_a_request_is_read_as_it_was_stored() -> None:
    """All that a run gets of it, as JSON."""
    event = Event(
        kind=EventKind.REQUEST,
        subject="files",
        at=at(1),
        run_key="k",
        job="rollup",
        partition="1",
        assets=("a",),
        tags={"x": "y"},
        run_config={"ops": {"a": {}}},
    )
    assert Event.from_json(event.to_json()) == event


def test_why_not_replays_a_request_as_a_line_of_a_timeline(database: Database) -> None:
    """With what decides which schedule takes it, and for which partition."""
    event = Event(
        kind=EventKind.REQUEST, subject="files", at=at(1), run_key="k", job="rollup", partition="1"
    )
    with database.begin() as tx:
        line = line_of(event, locations.locked(tx, "default", "here"))
    assert line is not None
    read = parse_line({"at": "2026-01-01T00:00:00Z", **line}, "line")
    assert isinstance(read, RunRequested)
    assert (read.sensor, read.job, read.partition) == ("files", "rollup", "1")


def test_an_explanation_says_what_the_source_did(database: Database) -> None:
    """It was never evaluated, and then it requested one run, of which the job has ended."""
    files = Files(keys=["a"], intervals={})
    here = world(database, files)

    def reason() -> str:
        with database.begin() as tx:
            location = locations.locked(tx, here.engine.cluster, here.location)
            explained = explain_schedule(tx, here.engine.store, location, "s", at(9))
        assert explained.trigger is not None
        return explained.trigger.reason

    here.tick(1)
    assert reason() == "0 of 1 requests of sensor files; it has not been evaluated"
    files.intervals = {"files": timedelta(0)}
    here.tick(2)
    done = f"evaluated at {at(2):%Y-%m-%d %H:%M:%SZ}: requested 1 runs, 1 of them new"
    assert reason() == f"0 of 1 requests of sensor files; {done}"
