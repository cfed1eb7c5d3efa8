"""A lake's run queue: 1,000 rules, the jobs that stand under them, and runs of these jobs.

Half of the jobs are held: by a window that is closed, a group that is full, a rate that is used
up, an interval that is not over. The others could start, and wait for a slot.
"""

import os
import random
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import sqlalchemy as sa
from dagster import DagsterEvent, DagsterEventType, DagsterRun
from dagster import DagsterRunStatus as Status
from dagster._core.storage.dagster_run import RunsFilter
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._serdes import serialize_value
from dagster_shared.record import copy

from arctic_orchestration.clock import utc_now
from arctic_orchestration.run_queue.rules import Rules, RunFacts
from arctic_orchestration.run_queue.tags import PRIORITY, standing_of, tags_for

LOCATION = "lake"
SLOTS = 25
ACTIVE = 20
ENDED = 2_000
#: 1,000 rules in all
COUNTS = {"groups": 700, "windows": 100, "rates": 100, "intervals": 80, "queues": 20}
JOBS = 1_000
#: of these groups, windows, rates and intervals, the first are those that hold
FULL_GROUPS, CLOSED_WINDOWS, USED_RATES, RESTING_INTERVALS = 60, 50, 50, 40
#: what holds a job: of 20 held ones so many
HELD_BY = {"window": 8, "group": 6, "rate": 3, "interval": 3}
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
_INSERTED_AT_ONCE = 1_000


@dg.op
def anything() -> None: ...


@dg.job
def load() -> None:
    anything()


#: the code location; the jobs of the runs need not be there, since nothing is executed
lake = dg.Definitions(jobs=[load])


@dataclass(frozen=True)
class Job:
    """A job, and by what its runs are held; none: they could start."""

    name: str
    held_by: str | None
    base_tags: Mapping[str, str]


@dataclass(frozen=True)
class Lake:
    """The configuration of the rules, and the jobs under them."""

    config: dict[str, Any]
    held: Sequence[Job]
    free: Sequence[Job]
    #: of which one run each is in progress
    busy: Sequence[Job]


def make_lake(now: datetime) -> Lake:
    """The same lake for the same moment, relative to which windows are closed and open."""
    chosen = random.Random(7)
    members: dict[str, dict[int, list[str]]] = {kind: defaultdict(list) for kind in COUNTS}
    holders = [kind for kind, count in HELD_BY.items() for _ in range(count)]
    held, free, busy = list[Job](), list[Job](), list[Job]()
    for number in range(JOBS + ACTIVE):
        is_busy = number >= JOBS
        held_by = holders[number // 2 % len(holders)] if number % 2 and not is_busy else None
        name = f"busy_{number - JOBS:02}" if is_busy else f"load_{number:03}"
        job = Job(name, held_by, _base_tags(number, chosen))
        (busy if is_busy else held if held_by else free).append(job)
        for kind, rule in _memberships(number, held_by, is_busy, chosen):
            members[kind][rule].append(name)
    forms = {"groups": _group, "windows": _window, "rates": _rate, "intervals": _interval,
             "queues": _queue}  # fmt: skip
    config = {
        kind: {
            "default" if kind == "queues" and rule == count - 1 else f"{kind[:-1]}_{rule:03}": {
                **forms[kind](rule, now),
                "match": [{"job": name} for name in members[kind][rule]],
            }
            for rule in range(count)
        }
        for kind, count in COUNTS.items()
    }
    return Lake(config=config, held=held, free=free, busy=busy)


def _base_tags(number: int, chosen: random.Random) -> dict[str, str]:
    """What the runs of a job are tagged with under any coordinator."""
    tags = {
        ".dagster/repository": f"__repository__@{LOCATION}",
        "dagster/schedule_name": f"schedule_{number:03}",
        "team": f"team_{number % 17}",
    }
    if chosen.random() < 0.1:
        tags[PRIORITY] = str(chosen.randint(1, 3))
    return tags


def _memberships(
    number: int, held_by: str | None, is_busy: bool, chosen: random.Random
) -> Iterator[tuple[str, int]]:
    yield "queues", number % COUNTS["queues"]
    if is_busy:
        place = number - JOBS
        yield from (("groups", group) for group in (2 * place, 2 * place + 1, 40 + place))
        yield "rates", USED_RATES + place
        return
    roomy = chosen.randint(1, 3)
    if held_by == "group":
        yield "groups", chosen.randrange(40)
        roomy -= 1
    for group in chosen.sample(range(FULL_GROUPS, COUNTS["groups"]), roomy):
        yield "groups", group
    if held_by == "window":
        yield "windows", chosen.randrange(CLOSED_WINDOWS)
    elif chosen.random() < 0.2:
        yield "windows", chosen.randrange(CLOSED_WINDOWS, COUNTS["windows"])
    if held_by == "rate":
        yield "rates", number // 2 % USED_RATES
    elif chosen.random() < 0.1:
        yield "rates", chosen.randrange(USED_RATES, COUNTS["rates"])
    if held_by == "interval":
        yield "intervals", number // 2 % RESTING_INTERVALS
    elif chosen.random() < 0.1:
        yield "intervals", chosen.randrange(RESTING_INTERVALS, COUNTS["intervals"])


def _group(rule: int, now: datetime) -> dict[str, Any]:
    if rule < FULL_GROUPS:
        return {"limit": 1} if rule < 40 else {"limit_per_program": 1}
    if rule % 3 == 0:
        return {"limit": 8, "limit_per_program": 2}
    return {"limit": 2 + rule % 19}


def _window(rule: int, now: datetime) -> dict[str, Any]:
    """Eight hours around now or, where it is closed, the ten that begin in seven."""
    zone = _ZONES[rule % len(_ZONES)]
    local = now.astimezone(ZoneInfo(zone))
    from_, to = (7, 17) if rule < CLOSED_WINDOWS else (-4, 4)
    start, end = (local + timedelta(hours=hours, minutes=rule % 50) for hours in (from_, to))
    return {"start": f"{start:%H:%M}", "end": f"{end:%H:%M}", "timezone": zone}


def _rate(rule: int, now: datetime) -> dict[str, Any]:
    return {"limit": 5, "per": "12h"} if rule < USED_RATES else {"limit": 1000, "per": "1h"}


def _interval(rule: int, now: datetime) -> dict[str, Any]:
    return {"duration": "1d" if rule < RESTING_INTERVALS else "1m"}


def _queue(rule: int, now: datetime) -> dict[str, Any]:
    return {"share": 1 + rule % 4, "level": rule % 3}


class Filling:
    """Puts runs into a Dagster instance, in bulk: copies of one real run's record."""

    def __init__(self, instance: dg.DagsterInstance, template: DagsterRun, *, rules: Rules) -> None:
        """With rules, runs have the tags that these ask for; without any, those of users."""
        self._instance = instance
        self._template = template
        self._rules = rules
        self._standing: dict[str, Any] = {}

    def run_of(self, job: Job, status: Status, at: datetime, number: int) -> DagsterRun:
        """A run of a job that was queued at a moment, as a coordinator leaves it."""
        tags = {**job.base_tags, "dagster/partition": f"2026-01-{number % 28 + 1:02}"}
        if not self._rules.are_none:
            facts = RunFacts(job=job.name, location=LOCATION, tags=tags)
            if job.name not in self._standing:
                self._standing[job.name] = standing_of(facts, self._rules)
            tags.update(tags_for(facts, self._standing[job.name], self._rules, at))
        if status is not Status.QUEUED:
            tags = {k: "granted" if k.startswith("arctic/rate.") else v for k, v in tags.items()}
        return copy(
            self._template,
            run_id=str(uuid.uuid4()),
            job_name=job.name,
            status=status,
            tags=tags,
        )

    def fill(self, world: Lake, jobs: Sequence[Job], count: int) -> None:
        """Runs that ended, runs in progress and ``count`` runs that wait, of jobs in turn."""
        now = utc_now()
        used = [job for job in world.held if job.held_by in ("rate", "interval")]
        ended = []
        for number in range(ENDED):
            at = now - timedelta(hours=6) * (number / ENDED) - timedelta(minutes=5)
            run = self.run_of(used[number % len(used)], Status.SUCCESS, at, number)
            ended.append((run, at, at + timedelta(minutes=4)))
        self.add(ended)
        active = [self.run_of(job, Status.STARTED, now, 0) for job in world.busy]
        self.add((run, now, None) for run in active)
        first = now - timedelta(hours=2)
        waiting = [
            self.run_of(jobs[n % len(jobs)], Status.QUEUED, first + timedelta(seconds=n / 2), n)
            for n in range(count)
        ]
        self.add((run, None, None) for run in waiting)
        self._give_event_logs([*active, *waiting])

    def add(self, runs: Iterable[tuple[DagsterRun, datetime | None, datetime | None]]) -> None:
        """Stores runs with their moments of start and end."""
        rows, tags = [], []
        for run, started, ended in runs:
            rows.append(
                {
                    "run_id": run.run_id,
                    "pipeline_name": run.job_name,
                    "status": run.status.value,
                    "run_body": serialize_value(run),
                    "snapshot_id": run.job_snapshot_id,
                    "partition": run.tags["dagster/partition"],
                    "start_time": started.timestamp() if started else None,
                    "end_time": ended.timestamp() if ended else None,
                    # As Dagster has it: when the last event of the run happened, in UTC.
                    "update_timestamp": (ended or started or utc_now()).replace(tzinfo=None),
                }
            )
            stored = run.tags_for_storage().items()
            tags += [{"run_id": run.run_id, "key": k, "value": v} for k, v in stored]
        storage: Any = self._instance.run_storage
        with storage.connect() as connection:
            for table, values in ((RunsTable, rows), (RunTagsTable, tags)):
                for start in range(0, len(values), _INSERTED_AT_ONCE):
                    some = values[start : start + _INSERTED_AT_ONCE]
                    connection.execute(sa.insert(table), some)

    def submit(self, job: Job, number: int) -> DagsterRun:
        """A run joins the queue, with the event that a coordinator stores."""
        run = self.run_of(job, Status.NOT_STARTED, utc_now(), number)
        run = run.with_tags(
            {k: "waiting" if k.startswith("arctic/rate.") else v for k, v in run.tags.items()}
        )
        self.add([(run, None, None)])
        self._instance.report_dagster_event(DagsterEvent.job_enqueue(run), run_id=run.run_id)
        return run

    def _give_event_logs(self, runs: Sequence[DagsterRun]) -> None:
        """On SQLite each run has a file of events, which exists since it was queued.

        To make one takes three times as long as to add an event. One file stands for all here;
        what is written to it is the same.
        """
        storage: Any = self._instance.event_log_storage
        if not hasattr(storage, "path_for_shard"):
            return
        self._instance.report_engine_event("queued", runs[0])
        made = storage.path_for_shard(runs[0].run_id)
        for run in runs[1:]:
            os.symlink(made, storage.path_for_shard(run.run_id))


def tag(instance: dg.DagsterInstance, tags: Mapping[str, Mapping[str, str]]) -> None:
    """Gives runs that wait tags which they do not have, in bulk, as ``add_run_tags`` would."""
    storage: Any = instance.run_storage
    waiting = instance.get_runs(RunsFilter(statuses=[Status.QUEUED]))
    now = datetime.now(UTC)
    bodies: list[dict[str, Any]] = [
        {
            "id_": run.run_id,
            "run_body": serialize_value(run.with_tags({**run.tags, **tags[run.run_id]})),
            "update_timestamp": now,
        }
        for run in waiting
        if run.run_id in tags
    ]
    new = [
        {"run_id": body["id_"], "key": key, "value": value}
        for body in bodies
        for key, value in tags[body["id_"]].items()
    ]
    if not bodies:
        return
    update = sa.update(RunsTable).where(RunsTable.c.run_id == sa.bindparam("id_"))
    with storage.connect() as connection:
        connection.execute(update, bodies)
        connection.execute(sa.insert(RunTagsTable), new)


def report(instance: dg.DagsterInstance, run: DagsterRun, kind: DagsterEventType) -> None:
    """A run begins or ends, by the event that its own process would report."""
    event = DagsterEvent(event_type_value=kind.value, job_name=run.job_name)
    instance.report_dagster_event(event, run_id=run.run_id)
