"""Many runs that wait in Dagster's queue: their leases go on, and nothing else waits for that."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness import lifecycle, ownership, run_reconciler
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.freshness_tables import tasks
from arctic_orchestration_tests.freshness.imagined import Place, World, spec
from arctic_orchestration_tests.statements import statements_of


def _queued(world: World, number: int, cluster: str) -> Place:
    """A location whose tasks all have a queued run."""
    names = [f"{cluster}-{task:02}" for task in range(number)]
    place = world.place(*map(spec, names), cluster=cluster)
    place.submit(*names)
    for _ in range(2):
        place.tick()
    assert {run.status for run in place.runs.known.values()} == {RunStatus.QUEUED}
    assert len(place.runs.known) == number
    return place


def _statements(world: World, place: Place) -> int:
    with statements_of(world.state.engine) as found:
        assert place.tick().counts["renewed"] == len(place.runs.known)
    return len(found)


def test_leases_of_many_queued_runs_take_as_many_statements_as_few(world: World) -> None:
    """1,200 of them, one by one, were 3 s of statements on Postgres, every 20 seconds."""
    # The first tick prepares statements, and records that its location is alive.
    places = [_queued(world, number, name) for name, number in (("a", 2), ("few", 2), ("many", 40))]
    world.clock.passes(seconds=31)
    counts = [_statements(world, place) for place in places]
    assert counts[1] == counts[2]
    assert world.row("many-39").expires_at == world.clock.now + timedelta(seconds=60)


def test_only_what_is_still_owned_is_renewed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups of two, of which one task was taken over and one given back meanwhile."""
    monkeypatch.setattr(run_reconciler, "_RENEWED_AT_ONCE", 2)
    east = _queued(world, 5, "east")
    world.clock.passes(seconds=31)
    before = ownership.renew_all

    def late(tx: sa.Connection, *args: Any, **how: Any) -> int:
        monkeypatch.setattr(ownership, "renew_all", before)
        tx.execute(sa.update(tasks).where(tasks.c.task == "east-00").values(owner="b", token=9))
        tx.execute(sa.update(tasks).where(tasks.c.task == "east-01").values(owner=None))
        return before(tx, *args, **how)

    monkeypatch.setattr(ownership, "renew_all", late)
    assert east.lifecycle.tick().counts["renewed"] == 3
    ends = [world.row(f"east-{task:02}").expires_at for task in range(5)]
    assert ends == [world.clock.now + timedelta(seconds=left) for left in (29, 29, 60, 60, 60)]


def test_many_ended_runs_do_not_keep_others_from_beginning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 5 ms on Postgres: of thousands, Dagster could end each tick before that."""
    east = world.place(spec("new"), *(spec(f"old-{task}") for task in range(3)))
    old = east.submit("old-0", "old-1", "old-2")
    east.tick()
    (new,) = east.submit("new")
    # Dagster does not get its request: the next tick makes it again.
    east.lifecycle.tick()
    for run in list(east.runs.known):
        east.runs.becomes(run, RunStatus.CANCELED)
    with monkeypatch.context() as busy:
        busy.setattr(lifecycle, "_TICK_SECONDS", -1)
        result = east.tick()
    assert [request.submission for request in result.requests] == [new.id]
    assert result.counts["canceled"] == 0
    assert east.tick().counts["canceled"] == 3
    assert {world.state_of(one) for one in old} == {SubmissionState.CANCELED}
