"""Moments of a tick at which the daemon or the code server can be made to die.

A point is armed by a file of its name, and disarmed by whoever reaches it: the file is renamed
to ``<point>.reached``, then the process sends itself the signal that the file names. One that is
to be stopped waits until the test does so (``was_reached``). The code under test has no hooks:
the functions around the moments are replaced in the process that is to die.
"""

import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

DIRECTORY = "ARCTIC_TEST_POINTS"
#: who does without the run key: ``requests`` that lack it, ``dagster`` that does not look at it
WITHOUT_RUN_KEY = "ARCTIC_TEST_WITHOUT_RUN_KEY"
#: how long a tick keeps a request, if not as long as otherwise
LEASE_SECONDS = "ARCTIC_TEST_LEASE_SECONDS"
#: set: requests are handed to every tick until their run is seen
WITHOUT_LEASE = "ARCTIC_TEST_WITHOUT_LEASE"

#: in the order of a tick; what the code server does, and then the daemon
CODE_SERVER = (
    "EVALUATING",  # the sensor is asked; nothing is read yet
    "EVENTS_READ",  # inside the subscribing transaction, which has written nothing yet
    "SUBSCRIBE_WRITTEN",  # inside it, before the commit
    "SUBSCRIBED",  # after its commit
    "CHECK_WRITTEN",  # jobs are admitted, before the commit
    "CHECKED",  # after the commit, before the requests are handed out
    "HAND_OUT_WRITTEN",  # requests are noted on the jobs, before the commit
    "HANDED_OUT",  # after the commit, before the sensor returns
)
DAEMON = (
    "TICK_CREATED",  # before the sensor is asked
    "REPLIED",  # the sensor has answered; its requests are not stored
    "RUN_IDS_RESERVED",  # the requests are stored
    "RUN_CREATED",  # a run is created, and not submitted
    "RUN_LAUNCHED",  # a run is submitted to the queue
    "DEQUEUED",  # the run coordinator has chosen a run, and not launched it
    "LAUNCHED",  # a run was launched
    "TICK_ENDING",  # all is submitted, the tick does not say so yet
    "TICK_ENDED",  # the tick is done and says so
)
#: Besides: TICK_LEFT comes at the end of every tick, ENQUEUING when the queue has looked at a run
#: that it is about to take, and STARTING when a run says that it is
#: being started and is not: Dagster gives such a run up, if its run monitoring is on.
#: reached once for each run of a round
FOR_EACH_RUN = frozenset({"RUN_CREATED", "RUN_LAUNCHED", "DEQUEUED", "LAUNCHED"})

#: seconds
_RUN_STARTS_WITHIN = 600

_passed: Counter[str] = Counter()
_lock = threading.Lock()
#: Held while a run is launched. Who dies in the middle of that leaves a run that never starts and
#: that only Dagster's run monitoring gives up; the point STARTING is for it, and no other.
_launching = threading.RLock()
_step = threading.local()


def arm(
    directory: Path,
    point: str,
    *,
    skip: int = 0,
    how: int = signal.SIGKILL,
    of: int | None = None,
) -> None:
    """The process that reaches ``point``, after ``skip`` times, gets the signal ``how``.

    With ``of``, the id of a process, no other one does.
    """
    waiting = directory / f"{point}.new"
    waiting.write_text(json.dumps({"skip": skip, "signal": int(how), "of": of}))
    waiting.rename(directory / point)


def was_reached(directory: Path, point: str) -> bool:
    """Whether a process has reached the point since it was armed, and has its signal."""
    with suppress(FileNotFoundError):
        waiting = directory / f"{point}.waiting"
        _stop(int(waiting.read_text()))
        waiting.rename(waiting.with_suffix(".reached"))
    return (directory / f"{point}.reached").exists()


def _stop(pid: int) -> None:
    """Stops a process while none of its threads is about to write to a SQLite file of Dagster.

    One that is stopped in the middle of a write keeps its lock: its successor would not be late
    but stand still, which says nothing about ticks.
    """
    process = psutil.Process(pid)
    home = Path(process.cwd())
    with ExitStack() as files:
        for path in sorted(home.rglob("*.db")):
            writer = files.enter_context(closing(sqlite3.connect(path, timeout=60)))
            writer.execute("BEGIN IMMEDIATE")
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)


def reach(point: str) -> None:
    """The calling process is at the point."""
    file = Path(os.environ[DIRECTORY]) / point
    with _lock:
        try:
            wanted = json.loads(file.read_text())
        except FileNotFoundError:
            return
        if wanted["of"] not in (None, os.getpid()):
            return
        if _passed[point] < wanted["skip"]:
            _passed[point] += 1
            return
        _passed[point] = 0
        stops = wanted["signal"] == signal.SIGSTOP
        reached = file.with_suffix(".reached")
        try:
            file.rename(file.with_suffix(".taken") if stops else reached)
        except FileNotFoundError:
            return  # another process was first
    with _launching:
        if not stops:
            os.kill(os.getpid(), wanted["signal"])
            return
        # Whoever asks for it stops this process.
        taken = file.with_suffix(".taken")
        taken.write_text(str(os.getpid()))
        taken.rename(file.with_suffix(".waiting"))
        while not reached.exists():
            time.sleep(0.005)


def put_into_code_server() -> None:
    """Surrounds the steps of the engine, its transactions and its reading with points."""
    from arctic_orchestration.event_log.dagster_log import DagsterLog
    from arctic_orchestration.schedules import launch_requests
    from arctic_orchestration.schedules.engine import Engine
    from arctic_orchestration.state.database import Database

    tick, begin, read, hand_out = (
        Engine.tick,
        Database.begin,
        DagsterLog.read,
        launch_requests.hand_out,
    )

    def tick_at_points(engine: Engine, now: datetime) -> Any:
        reach("EVALUATING")
        result = tick(engine, now)
        if os.environ[WITHOUT_RUN_KEY] == "requests":
            requests = [replace(request, run_key=None) for request in result.requests]  # type: ignore[arg-type]
            result = replace(result, requests=requests)
        return result

    def read_at_points(log: DagsterLog, *args: Any) -> Any:
        batch = read(log, *args)
        if any(event.partition for event in batch.events):
            reach("EVENTS_READ")
        return batch

    def counted_hand_out(
        queue: Any, location: Any, targets: Any, tick: Any, ended: Any, **named: Any
    ) -> Any:
        if os.environ.get(WITHOUT_LEASE):
            tick = None
        requests = hand_out(queue, location, targets, tick, ended, **named)
        _step.has_worked = bool(requests)
        return requests

    @contextmanager
    def begin_at_points(database: Database) -> Iterator[Any]:
        with begin(database) as tx:
            yield tx
            if getattr(_step, "has_done", None) and _step.has_done():
                reach(f"{_step.name}_WRITTEN")

    _replace(Engine, "tick", tick_at_points)
    _replace(DagsterLog, "read", read_at_points)
    _replace(Database, "begin", begin_at_points)
    _replace(launch_requests, "hand_out", counted_hand_out)
    lease = os.environ.get(LEASE_SECONDS)
    if lease:
        _replace(launch_requests, "LEASE", timedelta(seconds=float(lease)))
    _surround(Engine, "_subscribe", "SUBSCRIBE", "SUBSCRIBED", "fired")
    _surround(Engine, "_check", "CHECK", "CHECKED", "admitted")
    _surround(Engine, "_hand_out", "HAND_OUT", "HANDED_OUT", None)


def _surround(owner: Any, method: str, name: str, after: str, counted: str | None) -> None:
    """Points before the commit of a step and after it, where it did something."""
    original = getattr(owner, method)

    def step(engine: Any, now: datetime, *rest: Any, **named: Any) -> Any:
        before = rest[0][counted] if counted else 0
        _step.has_worked = False

        def has_done() -> bool:
            return bool(rest[0][counted] > before if counted else _step.has_worked)

        _step.name, _step.has_done = name, has_done
        try:
            result = original(engine, now, *rest, **named)
            if has_done():
                reach(after)
        finally:
            _step.has_done = None
        return result

    _replace(owner, method, step)


def put_into_daemon() -> None:
    """Surrounds the daemon's handling of a sensor's tick, and the launching of runs."""
    from dagster._core.launcher import LaunchRunContext
    from dagster._core.run_coordinator import QueuedRunCoordinator
    from dagster._daemon import sensor
    from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import (
        QueuedRunCoordinatorDaemon,
    )
    from dagster._daemon.sensor import SensorLaunchContext
    from dagster._grpc.client import DagsterGrpcClient

    from arctic_orchestration_tests.proofs.instant_launcher import InstantRunLauncher

    store, end, leave = (
        SensorLaunchContext.set_run_requests,
        SensorLaunchContext.update_state,
        SensorLaunchContext.__exit__,
    )
    dequeue, respond = QueuedRunCoordinatorDaemon._dequeue_run, DagsterGrpcClient._get_response
    launch, submit = InstantRunLauncher.launch_run, QueuedRunCoordinator.submit_run

    def at_dagsters_own_point(flags: object, point: str) -> None:
        reach(point)

    def store_at_points(context: SensorLaunchContext, *args: Any, **kwargs: Any) -> None:
        reach("REPLIED")
        store(context, *args, **kwargs)

    def end_at_points(context: SensorLaunchContext, *args: Any, **kwargs: Any) -> None:
        if context.tick.run_ids:
            reach("TICK_ENDING")
        end(context, *args, **kwargs)

    def leave_at_points(context: SensorLaunchContext, *error: Any) -> None:
        leave(context, *error)
        if context.tick.run_ids:
            reach("TICK_ENDED")
        reach("TICK_LEFT")

    def dequeue_at_points(daemon: QueuedRunCoordinatorDaemon, *args: Any, **kwargs: Any) -> bool:
        reach("DEQUEUED")
        with _launching:
            was_launched = dequeue(daemon, *args, **kwargs)
        if was_launched:
            reach("LAUNCHED")
        return was_launched

    def submit_at_points(coordinator: Any, context: Any) -> Any:
        reach("ENQUEUING")
        return submit(coordinator, context)

    def launch_at_points(launcher: InstantRunLauncher, context: LaunchRunContext) -> None:
        reach("STARTING")
        launch(launcher, context)

    def patient_response(
        client: DagsterGrpcClient, method: str, request: Any, *rest: Any, **named: Any
    ) -> Any:
        # Where a machine is busy, the process of a run is not up within Dagster's 60 s.
        if method == "StartRun":
            rest, named = (), {"timeout": _RUN_STARTS_WITHIN}
        return respond(client, method, request, *rest, **named)

    if os.environ[WITHOUT_RUN_KEY] == "dagster":
        _replace(sensor, "fetch_existing_runs", lambda *_: {})
    _replace(sensor, "check_for_debug_crash", at_dagsters_own_point)
    # Only the pause between two rounds of sensors: the sensor's own interval is kept.
    _replace(sensor, "MIN_INTERVAL_LOOP_TIME", 0.2)
    _replace(SensorLaunchContext, "set_run_requests", store_at_points)
    _replace(SensorLaunchContext, "update_state", end_at_points)
    _replace(SensorLaunchContext, "__exit__", leave_at_points)
    _replace(QueuedRunCoordinatorDaemon, "_dequeue_run", dequeue_at_points)
    _replace(QueuedRunCoordinator, "submit_run", submit_at_points)
    _replace(InstantRunLauncher, "launch_run", launch_at_points)
    _replace(DagsterGrpcClient, "_get_response", patient_response)


def _replace(owner: object, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    setattr(owner, name, value)
