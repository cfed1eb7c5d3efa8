"""``arctic doctor`` and Dagster's daemon: silent, doubled, clock wrong, ticks that fail."""

import re
import shutil
import time
from datetime import timedelta

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import (
    InstigatorType,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._daemon.types import DaemonHeartbeat
from dagster_shared.error import SerializableErrorInfo

from arctic_orchestration.cli.doctor import daemon_checks
from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.findings import BAD, GOOD, WARNING
from arctic_orchestration_tests.cli.test_doctor import alive, found, instance

__all__ = ["instance"]

ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor looks at the moment at which a test begins, however slow the machine is."""
    now = utc_now()
    monkeypatch.setattr(daemon_checks, "utc_now", lambda: now)


def beat(instance: dg.DagsterInstance, kind: str, id: str, ago: float = 0, *errors: str) -> None:
    """A heartbeat of one thread of a daemon."""
    infos = [SerializableErrorInfo(error, [], "Exception") for error in errors]
    instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - ago, kind, id, infos))


def tick(
    instance: dg.DagsterInstance, status: TickStatus, error: SerializableErrorInfo | None = None
) -> None:
    """A tick of the dispatcher, as the daemon records it."""
    (state,) = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    instance.create_tick(
        TickData(
            instigator_origin_id=state.instigator_origin_id,
            instigator_name=state.name,
            instigator_type=InstigatorType.SENSOR,
            status=status,
            timestamp=time.time(),
            selector_id=state.selector_id,
            error=error,
            run_ids=[],
        )
    )


@ON_SQLITE
@pytest.mark.parametrize(("ago", "status"), [(30, GOOD), (240, BAD)])
def test_a_daemon_that_died_minutes_ago_is_found(
    instance: dg.DagsterInstance, ago: float, status: str
) -> None:
    """Dagster calls it healthy for half an hour; it sends a heartbeat every 30 seconds."""
    alive(instance, ago=ago)
    output = found()["daemon"]
    assert output[0] == status
    if status == BAD:
        assert re.search(r", (3m\d+s|4m) ago: a daemon sends one every 30s$", output[1])
        assert output[2] == "start it: dagster-daemon run, or dagster dev"


def test_a_tick_that_fails_is_found(instance: dg.DagsterInstance) -> None:
    """With what the error says, not that there was one; until a tick succeeds."""
    alive(instance)
    tick(instance, TickStatus.SUCCESS)
    assert found()["dispatcher of flights"][0] == GOOD
    cause = SerializableErrorInfo("Exception: no such job: down\nat line 7", [], "Exception")
    wrapper = SerializableErrorInfo("Error occurred", [], "SensorExecutionError", cause)
    tick(instance, TickStatus.FAILURE, wrapper)
    # The next one goes on, and may fail in the same way.
    tick(instance, TickStatus.STARTED)
    status, what, advice = found()["dispatcher of flights"]
    assert status == BAD
    assert what.endswith("failed: Exception: no such job: down")
    assert "arctic_dispatcher" in advice
    tick(instance, TickStatus.SKIPPED)
    assert found()["dispatcher of flights"][0] == GOOD


@ON_SQLITE
def test_what_a_daemon_reports_is_shown(instance: dg.DagsterInstance) -> None:
    """It is alive, so it need not be started."""
    alive(instance)
    beat(instance, "SENSOR", "daemon-1", 0, "KeyError: 'x'\nand more")
    status, what, advice = found()["daemon"]
    assert (status, advice) == (WARNING, "see the daemon's log")
    assert what.endswith("it reported: KeyError: 'x'")


def test_two_daemons_are_found_by_their_heartbeats(instance: dg.DagsterInstance) -> None:
    """One that replaces another beats after it; two beat in turns, each with its threads."""
    alive(instance, ago=20)
    beat(instance, "BACKFILL", "daemon-1", 19)
    beat(instance, "SCHEDULER", "daemon-2", 10)
    assert found()["daemon"][0] == GOOD
    beat(instance, "BACKFILL", "daemon-1", 5)
    status, what, advice = found()["daemon"]
    assert (status, what) == (BAD, "2 daemons run on this instance: daemon-1, daemon-2")
    assert "end all but one" in advice


@ON_SQLITE
def test_two_daemons_are_found_by_what_a_dispatcher_noticed(instance: dg.DagsterInstance) -> None:
    """Where the last heartbeats of all threads are of one of them, as they often are."""
    alive(instance)
    (state,) = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    for ago, status in ((0, BAD), (600, GOOD)):
        data = SensorInstigatorData(
            last_tick_timestamp=time.time() - ago, cursor='{"daemons": ["a", "b"]}'
        )
        instance.update_instigator_state(state.with_data(data))
        assert found()["daemon"][0] == status


@ON_SQLITE
@pytest.mark.parametrize("cursor", ['{"daemons": ["a", "b"]}', '{"daemons": 2}'])
def test_a_cursor_that_is_not_of_the_last_tick_names_no_daemons(
    instance: dg.DagsterInstance, cursor: str
) -> None:
    """A failed tick has left it, or a person has edited it; they may have ended long ago."""
    alive(instance)
    if cursor.endswith("]}"):
        tick(instance, TickStatus.FAILURE, SerializableErrorInfo("it broke", [], "Exception"))
    (state,) = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    data = SensorInstigatorData(last_tick_timestamp=time.time(), cursor=cursor)
    instance.update_instigator_state(state.with_data(data))
    assert found()["daemon"][0] == GOOD


@ON_SQLITE
def test_a_daemon_whose_clock_is_ahead_is_found(instance: dg.DagsterInstance) -> None:
    """Its heartbeat lies in the future, and so do its ticks."""
    alive(instance, ago=-300)
    findings = found()
    for check in ("daemon", "dispatcher of flights"):
        status, _, advice = findings[check]
        assert status == BAD
        assert "set the clocks of the machines, for example by NTP" in advice
        assert "A clock that was ahead" in advice


@pytest.fixture
def clock_ahead(monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """The clock of this process is ahead of the database's."""
    from arctic_orchestration.cli.doctor import machine_checks

    ahead = timedelta(minutes=5)
    monkeypatch.setattr(machine_checks, "utc_now", lambda: utc_now() + ahead)
    return ahead


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_clock_that_the_database_does_not_share_is_found(
    instance: dg.DagsterInstance, request: pytest.FixtureRequest
) -> None:
    """Leases go by the database's time, cron ticks by that of the process."""
    assert found()["clock"][:2] == (GOOD, "this process and the state database agree")
    request.getfixturevalue("clock_ahead")
    status, what, _ = found()["clock"]
    assert status == BAD
    assert what.startswith("this process is 300 s ahead of the state database")


@ON_SQLITE
@pytest.mark.parametrize(
    ("free", "status"), [(50_000_000, BAD), (500_000_000, WARNING), (5_000_000_000, GOOD)]
)
def test_a_disk_that_is_full_is_found(
    instance: dg.DagsterInstance, free: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of ``DAGSTER_HOME`` and of the state database, once where they are one."""
    from arctic_orchestration.cli.doctor import machine_checks

    usage = shutil._ntuple_diskusage(10**12, 10**12 - free, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    (finding,) = machine_checks.disk()
    assert finding.status == status
    assert "free at" in finding.found
