"""Two daemons on one instance are noticed by the ids of heartbeats; a replaced one is not."""

import json
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._daemon.types import DaemonHeartbeat

from arctic_orchestration.schedules.dagster import daemon_check
from arctic_orchestration.schedules.dagster.daemon_check import DaemonWatch
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.test_dispatcher import _definitions

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seen(watch: DaemonWatch, *ids: str, kind: str = "SENSOR") -> datetime:
    """Heartbeats of one thread, 20 seconds apart; returns the moment of the last."""
    for number, id in enumerate(ids):
        at = NOON + timedelta(seconds=20 * number)
        watch.note([DaemonHeartbeat(at.timestamp(), kind, id)], at)
    return NOON + timedelta(seconds=20 * (len(ids) - 1))


@pytest.mark.parametrize(
    ("ids", "noticed"),
    [
        (["a", "a", "a"], ()),
        (["a", "a", "b", "b"], ()),
        (["a", "b", "c"], ()),
        (["a", "b", "a"], ("a", "b")),
        (["a", "b", "b", "c", "b"], ("b", "c")),
    ],
)
def test_a_daemon_that_beats_after_it_was_replaced_runs_beside_another(
    ids: list[str], noticed: tuple[str, ...]
) -> None:
    """A restart shows each id in one stretch, however often there is one."""
    watch = DaemonWatch()
    at = seen(watch, *ids)
    assert watch.together(at) == noticed
    assert watch.together(at + timedelta(minutes=2)) == ()


def test_threads_are_looked_at_one_by_one() -> None:
    """In a restart one thread's last heartbeat may come after the next daemon's first."""
    watch = DaemonWatch()
    seen(watch, "a", "b", kind="SENSOR")
    assert watch.together(seen(watch, "a", "a", "b", kind="BACKFILL")) == ()


def test_the_dispatcher_writes_down_that_two_daemons_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its cursor, where the doctor reads it."""
    monkeypatch.setattr(daemon_check, "_LOOK_EVERY", timedelta(0))
    defs = _definitions()
    for id in ("a", "b", "a"):
        place.instance.add_daemon_heartbeat(DaemonHeartbeat(NOON.timestamp(), "SENSOR", id))
        cursor = place.tick(defs).cursor
    assert json.loads(str(cursor))["daemons"] == ["a", "b"]


def test_heartbeats_that_cannot_be_read_fail_no_tick(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are beside the point of a tick."""
    monkeypatch.setattr(daemon_check, "_LOOK_EVERY", timedelta(0))

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(dg.DagsterInstance, "get_daemon_heartbeats", fail)
    assert "daemons" not in str(place.tick(_definitions()).cursor)
