"""The loops of Dagster's daemon are woken, and end with it."""

import sys
import threading
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from dagster._daemon import daemon, sensor
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import (
    QueuedRunCoordinatorDaemon,
)

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.run_queue.dagster import wakeups
from arctic_orchestration.run_queue.dagster.wakeups import Wakeup, watch

LONG = 600


def test_a_wait_ends_when_it_is_woken() -> None:
    """By something that came during the wait, or since the last one."""
    wakeup, stop = Wakeup(), threading.Event()
    wakeup.wake()
    assert wakeup.wait(stop, LONG) is False
    threading.Timer(0.05, wakeup.wake).start()
    assert wakeup.wait(stop, LONG) is False
    assert wakeup.number == 2


def test_a_wait_ends_with_the_daemon_and_with_its_time() -> None:
    wakeup, stop = Wakeup(), threading.Event()
    assert wakeup.wait(stop, 0) is False
    threading.Timer(0.05, stop.set).start()
    assert wakeup.wait(stop, LONG) is True


class News:
    """Says what it was given, fails where that is an error, and ends the daemon."""

    def __init__(self, stop: threading.Event, *logged: Any) -> None:
        self._stop, self._logged = stop, list(logged)
        self.closed = False

    def wait(self, stop: Any) -> frozenset[str]:
        if len(self._logged) == 1:
            self._stop.set()
        logged = self._logged.pop(0)
        if isinstance(logged, Exception):
            raise logged
        return frozenset(logged)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("types", "sensors", "queue"),
    [
        ({"ASSET_MATERIALIZATION"}, 1, 0),
        ({"ASSET_CHECK_EVALUATION"}, 1, 0),
        ({"PIPELINE_SUCCESS"}, 1, 1),
        ({"PIPELINE_ENQUEUED"}, 0, 1),
        ({"PIPELINE_STARTING", "STEP_OUTPUT"}, 0, 0),
        (set(), 0, 0),
    ],
)
def test_each_loop_is_woken_by_what_concerns_it(
    types: set[str], sensors: int, queue: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "sensors", Wakeup())
    monkeypatch.setattr(wakeups, "queue", Wakeup())
    stop = threading.Event()
    news = News(stop, types)
    watch(news, stop)
    assert (wakeups.sensors.number, wakeups.queue.number) == (sensors, queue)
    assert news.closed


def test_a_log_that_does_not_answer_is_watched_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups, "sensors", Wakeup())
    monkeypatch.setattr(wakeups, "_RETRY_SECONDS", 0)
    stop = threading.Event()
    away = DatabaseUnavailable("away")
    watch(News(stop, away, away, {"ASSET_MATERIALIZATION"}), stop)
    assert wakeups.sensors.number == 1
    assert caplog.text.count("the event log is not watched") == 1


@pytest.fixture
def in_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``dagster-daemon`` has imported; all that is replaced is put back."""
    monkeypatch.setitem(sys.modules, "dagster._daemon.cli", ModuleType("dagster._daemon.cli"))
    for owner, name in (
        (daemon.SensorDaemon, "core_loop"), (sensor, "is_under_min_interval"),
        (sensor, "_process_tick"), (QueuedRunCoordinatorDaemon, "core_loop"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))


class Sensor:
    def __init__(self, name: str) -> None:
        self.name = name
        self.min_interval_seconds = 600


def test_a_woken_dispatcher_ticks_before_its_interval_is_over(
    in_daemon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster asks twice for a tick; a sensor that has ticked since the news waits again."""
    elapsed = 10.0
    monkeypatch.setattr(sensor, "get_elapsed", lambda _: elapsed)
    monkeypatch.setattr(wakeups, "sensors", Wakeup())
    wakeups.install()
    waits: Any = sensor.is_under_min_interval
    wakeups.sensors.woken_at = utc_now() - timedelta(seconds=60)
    assert waits(None, Sensor("arctic_dispatcher"))
    wakeups.sensors.wake()
    assert waits(None, Sensor("of_a_user"))
    assert not waits(None, Sensor("arctic_dispatcher"))
    assert not waits(None, Sensor("arctic_dispatcher"))
    elapsed = -1.0
    assert waits(None, Sensor("arctic_dispatcher"))


def test_other_processes_keep_dagsters_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dagster._daemon.cli", raising=False)
    before = daemon.SensorDaemon.core_loop
    wakeups.install()
    assert daemon.SensorDaemon.core_loop is before
