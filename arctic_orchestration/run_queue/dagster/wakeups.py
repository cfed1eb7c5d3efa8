"""Wakes the loops of Dagster's daemon when there is work.

The sensor daemon evaluates its sensors every five seconds, and the queue daemon makes a pass every
few seconds. In between, a thread of the daemon watches the event log. An arrival or the end of a
run wakes the sensor loop, whose dispatcher then ticks before its interval is over. A freed slot or
a newly queued run wakes the queue. The loops are otherwise unchanged: an event that the watch
misses is found when their intervals end, and the ticks and passes, which are the same, keep all
promises.

Dagster has no hook for this, so three of its functions are replaced, only in the daemon's process:
the loop of the sensor daemon waits on a wakeable event, ``is_under_min_interval`` lets a woken
sensor tick, and the queue's daemon gets a loop of its own.
"""

import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

from arctic_orchestration.clock import utc_now
from arctic_orchestration.dagster_internals import (
    daemon_functions,
    in_daemon,
    run_iteration,
    seconds_since_tick,
)
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.event_log.log_rows import ARRIVALS, CHECK, FRESHNESS
from arctic_orchestration.event_log.news import LogNews, news_of

#: the sensors that events in the log wake
_SENSORS = frozenset({"arctic_dispatcher", "arctic_tasks"})
_ENDS = frozenset({"PIPELINE_SUCCESS", "PIPELINE_FAILURE", "PIPELINE_CANCELED"})
_FOR_SENSORS = frozenset({*ARRIVALS, CHECK, FRESHNESS}) | _ENDS
_FOR_QUEUE = _ENDS | {"PIPELINE_ENQUEUED", "PIPELINE_START"}
#: The least time between two wakes of a loop: bursts are handled together.
_SHORTEST_SECONDS = 0.1
#: how often a loop checks whether the daemon ends
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 5.0

_log = logging.getLogger("dagster.daemon.arctic")


class Wakeup:
    """An event that a loop waits for, besides the end of its interval."""

    def __init__(self) -> None:
        self._event = threading.Event()
        #: the number of wakes
        self.number = 0
        #: the time of the last wake; a sensor that has ticked since has handled it
        self.woken_at = utc_now()

    def wake(self) -> None:
        """Ends the wait of the loop, or its next one."""
        self.number += 1
        self.woken_at = utc_now()
        self._event.set()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Waits for a wake, the daemon's end or the timeout; returns whether the daemon ends."""
        until = time.monotonic() + seconds
        stop.wait(min(_SHORTEST_SECONDS, seconds))
        while not stop.is_set() and not self._event.is_set():
            left = until - time.monotonic()
            if left <= 0:
                break
            self._event.wait(min(_LOOK_SECONDS, left))
        self._event.clear()
        return stop.is_set()


sensors, queue = Wakeup(), Wakeup()


class _WakeableStop:
    """The event on which the sensor loop waits between two rounds."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return self._stop.wait()
        return sensors.wait(self._stop, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stop, name)


def watch(news: LogNews, stop: threading.Event) -> None:
    """Wakes the loops for news in the log, until the daemon ends."""
    in_trouble = False
    while not stop.is_set():
        try:
            types = news.wait(stop)
            in_trouble = False
        except ArcticError as error:
            if not in_trouble:
                _log.warning("the event log is not watched, ticks are not woken: %s", error)
            in_trouble = True
            stop.wait(_RETRY_SECONDS)
            continue
        if types & _FOR_SENSORS:
            sensors.wake()
        if types & _FOR_QUEUE:
            queue.wake()
    news.close()


def install() -> None:
    """Replaces the loops, if this process is Dagster's daemon; a second call does nothing."""
    if not in_daemon():
        return
    functions = daemon_functions()
    sensor_loop, is_under_min_interval, process_tick = (
        getattr(*functions[name])
        for name in ("sensor_loop", "is_under_min_interval", "process_tick")
    )
    if getattr(sensor_loop, "is_arctic", False):
        return

    def woken_sensor_loop(
        self: Any, workspace_process_context: Any, shutdown_event: threading.Event
    ) -> Any:
        news = news_of(workspace_process_context.instance)
        if news is not None:
            threading.Thread(
                target=watch, args=(news, shutdown_event), name="arctic_news", daemon=True
            ).start()
        return sensor_loop(self, workspace_process_context, _WakeableStop(shutdown_event))

    def waits(state: Any, remote_sensor: Any, *rest: Any) -> bool:
        # Called twice for a tick: when it is chosen, and when it begins.
        if remote_sensor.name in _SENSORS:
            since_tick = seconds_since_tick(state)
            since_news = (utc_now() - sensors.woken_at).total_seconds()
            if since_tick is not None and since_tick > since_news:
                return False
        return bool(is_under_min_interval(state, remote_sensor, *rest))

    def tick_of_thread(*args: Any) -> Any:
        # News during a tick woke the loop when the sensor could not begin another tick.
        before = sensors.number
        try:
            return process_tick(*args)
        finally:
            if sensors.number != before:
                sensors.wake()

    woken_sensor_loop.is_arctic = True  # type: ignore[attr-defined]
    replacements = {
        "sensor_loop": woken_sensor_loop,
        "is_under_min_interval": waits,
        "process_tick": tick_of_thread,
        "queue_loop": _queue_loop,
    }
    for name, function in replacements.items():
        setattr(*functions[name], function)


def _queue_loop(
    self: Any, workspace_process_context: Any, shutdown_event: threading.Event
) -> Iterator[Any]:
    """``IntervalDaemon.core_loop``, with a wait that ends when the queue is woken."""
    while True:
        yield from run_iteration(self, workspace_process_context)
        jitter = random.uniform(0, self.interval_jitter_seconds)
        queue.wait(shutdown_event, self.interval_seconds + jitter)
        yield None
