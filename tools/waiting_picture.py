"""The picture of the page of ``arctic serve``: a state database in which things wait."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import sqlalchemy as sa
import uvicorn
from browser import Page, Picture, until

from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queue import CompactionQueue, QueueState
from arctic_orchestration.run_queue import pauses, waits
from arctic_orchestration.run_queue.plan import Wait
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import planned, seen
from arctic_orchestration_tests.schedules.simulated import World, at

_MINUTE = 60
_NOW = at(42 * _MINUTE)
_PICTURE = Picture(
    file="waiting.png",
    path="/waiting?group_by=cause",
    height=980,
    ready="document.querySelectorAll('.cards > li').length >= 6",
)


def take_waiting_picture(tab: Page, into: Path) -> list[Path]:
    """Makes a state database in which things wait, and takes the picture of the first page."""
    with TemporaryDirectory() as folder:
        database = Database.open(f"sqlite:///{folder}/state.db")
        try:
            _plant_jobs(database)
            with database.begin() as tx:
                _plant_runs(tx)
                _plant_compaction(tx)
            # The moments are planted, so that the picture is the same each time.
            with (
                patch("arctic_orchestration.service.waiting.utc_now", lambda: _NOW),
                _served(database) as url,
            ):
                file = tab.take(url, _PICTURE, into)
                # Else the stream of the open page keeps the service.
                tab.call("Page.navigate", url="about:blank")
                return [file]
        finally:
            database.close()


@contextmanager
def _served(database: Database) -> Iterator[str]:
    app = create_app(Settings.from_environment(), database, AccessRules())
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the service listens")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _plant_jobs(database: Database) -> None:
    arrives = on.partitions("raw/flights")
    spark = [only.concurrency(1, group="spark")]
    rollups = [Schedule(name=f"rollup_{n:02}", target="rollup", trigger=arrives, constraints=spark,
                       enabled=True) for n in range(1, 13)]  # fmt: skip
    night = [only.window("22:00", "06:00", timezone="America/New_York")]
    world = World(
        database,
        [
            *rollups,
            Schedule(name="nightly_merge", target="merge", trigger=arrives, constraints=night,
                     enabled=True),
            Schedule(name="daily_report", target="report", enabled=True,
                     trigger=on.partitions("raw/flights", count=24)),
        ],
        location="lake",
    )  # fmt: skip
    world.tick(0)
    world.feed.arrive("raw/flights", "2026-01-01-15")
    for second in (4 * _MINUTE, 4 * _MINUTE + 1, 42 * _MINUTE):
        world.tick_without_submitting(second)


def _plant_runs(tx: sa.Connection) -> None:
    pauses.store(tx, "default", "queue", "low", "maintenance", at(_MINUTE), actor="ada")
    (pause,) = pauses.manual_pauses(tx, "default")
    paused = Wait(gate=f"paused:queue:low:{pause.at}", reason=pause.text)
    backfill = {f"backfill of 2013-{month:02}": paused for month in range(1, 13)}
    waits.note(tx, "default", backfill, at(6 * _MINUTE), dict.fromkeys(backfill, "backfill"))
    waits.note_pass(tx, "default", _NOW - timedelta(seconds=2), None)


def _plant_compaction(tx: sa.Connection) -> None:
    queues.add_queue(tx, CompactionQueue(name="big"), at(0))
    for table in ("nyc.flights", "nyc.weather"):
        seen(tx, table, queue="big", now=at(0))
        offer(tx, table, [planned("a", "b")], at(9 * _MINUTE))
    queues.set_state(tx, "big", QueueState.PAUSED)
