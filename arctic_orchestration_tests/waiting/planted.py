"""A state database in which something of each feature waits, each for another cause."""

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queue import CompactionQueue, QueueState
from arctic_orchestration.run_queue import pauses, waits
from arctic_orchestration.run_queue.plan import Wait
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.consumer_tables import (
    consumer_leases,
    consumer_partitions,
    consumers,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import planned, seen
from arctic_orchestration_tests.freshness.imagined import World as Tasks
from arctic_orchestration_tests.freshness.imagined import spec
from arctic_orchestration_tests.schedules.simulated import World, at

#: midnight of the first day of 2026 and one minute: all moments are counted from the midnight
NOW = at(60)
#: text that moves a cursor, ends a string and a folder, turns the line and draws a picture
ODD = "../../'; drop table x; --\x1b[2J\u202e\U0001f9ca"


def schedules() -> list[Schedule]:
    """One for each cause that a job may wait for."""
    arrives = on.partitions("raw/a")

    def of(name: str, trigger: Any = arrives, **fields: Any) -> Schedule:
        return Schedule(
            name=name, target=f"job_{name}", trigger=trigger, **{"enabled": True, **fields}
        )

    return [
        of("at_night", constraints=[only.window("22:00", "06:00", timezone="Asia/Tokyo")]),
        of("first", constraints=[only.concurrency(1, group="spark")], priority=1),
        of("second", constraints=[only.concurrency(1, group="spark")]),
        of("half", on.partitions("raw/a", count=2)),
        of("stopped", enabled=False, suspend_mode="collect"),
    ]


def plant(database: Database) -> None:
    """Plants all causes, at the midnight but for what the comments say."""
    plant_jobs(database)
    with database.begin() as tx:
        plant_runs(tx)
        plant_compaction(tx)
        plant_partitions(tx)
    tasks = Tasks(database)
    place = tasks.place(spec("child", {"elsewhere": 24}), cluster="default", location="here")
    tasks.place(spec("elsewhere"), cluster="west")
    place.submit("child")
    place.tick()


def plant_jobs(database: Database) -> None:
    """Of five schedules: a window, a full group, a trigger, a suspension, a launch."""
    world = World(database, schedules())
    world.tick(0)
    with database.begin() as tx:
        # What the code declares as suspended was never enabled; it is now suspended manually.
        place = locations.locked(tx, "default", "here")
        control.enable(tx, ScheduleStore(), place, "stopped", at(1))
        control.suspend(tx, ScheduleStore(), place, "stopped", at(2), actor=Actor(name="ada"))
    world.feed.arrive("raw/a", "monday")
    for second in (10, 11, 12):
        world.tick_without_submitting(second)


def plant_runs(tx: sa.Connection) -> None:
    """Two behind a queue that ada paused, one behind a group, one behind a window."""
    pauses.store(tx, "default", "queue", "low", "maintenance", at(5), actor="ada")
    (pause,) = pauses.manual_pauses(tx, "default")
    paused = Wait(gate=f"paused:queue:low:{pause.at}", reason=pause.text)
    full = Wait(gate="group:spark", reason="group spark: 2 of 2 runs are in progress")
    opens = datetime(2026, 1, 1, 22, tzinfo=UTC)
    shut = Wait(
        gate=f"window:night:{opens}:False", reason="window night opens at 2026-01-01 22:00:00Z"
    )
    waits.note(tx, "default", {"run-1": paused, "run-2": paused}, at(20), {"run-1": "rollup"})
    waits.note(tx, "default", {"run-3": full, ODD: shut}, at(21), {})
    waits.note(tx, "elsewhere", {"run-9": full}, at(1), {})
    waits.note_pass(tx, "default", NOW, None)


def plant_compaction(tx: sa.Connection) -> None:
    """A table that rests, and a task in a paused queue."""
    queues.add_queue(tx, CompactionQueue(name="big"), at(0))
    seen(tx, "lake.resting", now=at(30))
    tables.rest(tx, "lake.resting", "no file can be read", at(30))
    seen(tx, "lake.busy", queue="big", now=at(0))
    offer(tx, "lake.busy", [planned("a", "b")], at(31))
    queues.set_state(tx, "big", QueueState.PAUSED)


def plant_partitions(tx: sa.Connection) -> None:
    """One that was given up, one that a run has leased, one that is done."""
    consumer = {
        "cluster": "default", "name": "totals", "asset": "raw/a", "start": "from_now",
        "max_attempts": 3, "retry_seconds": 60.0, "lease_seconds": 300.0, "working_set": 100,
        "created_at": at(0),
    }  # fmt: skip
    tx.execute(sa.insert(consumers).values(consumer))
    consumer_id = tx.execute(sa.select(consumers.c.id)).scalar_one()
    lease = {"consumer_id": consumer_id, "token": 7, "owner": "run run-5", "state": "live",
             "reason": "", "partitions": 1, "taken_at": at(41), "expires_at": at(341)}  # fmt: skip
    tx.execute(sa.insert(consumer_leases).values(lease))
    common = {"consumer_id": consumer_id, "arrivals": 1, "first_at": at(3), "at": at(3),
              "details": "{}", "event_id": 1, "event_at": at(3)}  # fmt: skip
    rows = [
        {"partition": ODD, "state": "discarded", "state_at": at(40), "reason": "bad rows",
         "place": 1, "number": 1, "token": None},
        {"partition": "tuesday", "state": "leased", "state_at": at(41), "reason": "",
         "place": 2, "number": 2, "token": 7},
        {"partition": "sunday", "state": "acknowledged", "state_at": at(9), "reason": "",
         "place": 3, "number": 3, "token": 6},
    ]  # fmt: skip
    tx.execute(sa.insert(consumer_partitions), [{**common, **row} for row in rows])


def tomorrow() -> datetime:
    """When the window in Tokyo, which is closed from six to twenty-two, opens: at 13:00 UTC."""
    return at(0) + timedelta(hours=13)
