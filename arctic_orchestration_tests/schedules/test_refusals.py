"""A request at which Dagster's daemon fails stops no other, and its job fails in the end."""

from arctic_orchestration.event_log.ticks import FailedTick
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at
from arctic_orchestration_tests.schedules.test_engine import job_rows, states
from arctic_orchestration_tests.schedules.test_hand_outs import SimulatedTicks, expire, with_ticks


def submit(here: World, ticks: SimulatedTicks, seconds: int, *, fails_at: str) -> list[str]:
    """One tick, whose requests the daemon submits up to one at which it fails.

    Returns the jobs of the requests, in their order.
    """
    ticks.current = str(seconds)
    requests = here.engine.tick(at(seconds)).requests
    order = [request.job_id for request in requests]
    if fails_at in order:
        made = order.index(fails_at)
        here.dagster.submit(requests[:made])
        unmade = tuple(request.run_key for request in requests[made:])
        ticks.failures[ticks.current] = FailedTick(error="KeyError: 'spare'", unmade=unmade)
    else:
        here.dagster.submit(requests)
    expire(here)
    return order


def test_a_request_at_which_dagster_fails_comes_last_and_its_job_fails(world: MakeWorld) -> None:
    """The first of three jobs is refused, three times; the others have their runs meanwhile."""
    here, ticks = with_ticks(world, arrivals=3)
    ticks.current = "0"
    order = [request.job_id for request in here.engine.tick(at(1)).requests]
    ticks.failures["0"] = FailedTick(
        error="KeyError: 'spare'", unmade=tuple(f"{id}-1" for id in order)
    )
    expire(here)
    refused, *others = order
    assert submit(here, ticks, 2, fails_at=refused) == [*others, refused]
    reasons = {row["id"]: row["reason"] for row in job_rows(here)}
    assert reasons[refused] == (
        "its run was requested 2 times and is not seen yet; "
        "Dagster failed at the last request: KeyError: 'spare'"
    )
    assert submit(here, ticks, 3, fails_at=refused) == [], "its tick has launched runs just now"
    assert submit(here, ticks, 4, fails_at=refused) == [refused]
    assert submit(here, ticks, 5, fails_at=refused) == []
    ended = {row["id"]: (row["state"], row["reason"]) for row in job_rows(here)}
    assert ended[refused] == (
        "failed",
        "Dagster failed at 3 requests for its run, the last time with: KeyError: 'spare'",
    )
    assert {ended[id][0] for id in others} == {"launched"}


def test_a_tick_that_failed_at_another_request_is_no_reason_to_fail(world: MakeWorld) -> None:
    """A job whose request was only behind it in the tick goes on, however often that happens."""
    here, ticks = with_ticks(world, arrivals=2)
    for seconds in range(1, 6):
        ticks.current = str(seconds)
        requests = here.engine.tick(at(seconds)).requests
        # The daemon fails at a request whose run it has made all the same.
        gone = FailedTick(error="OSError", unmade=("gone-1",))
        ticks.failures[ticks.current] = gone
        expire(here)
        assert len(requests) == 2
    assert states(here) == ["launching", "launching"]


def test_a_job_whose_run_comes_after_a_failure_is_launched(world: MakeWorld) -> None:
    """Dagster submits the requests of a tick that failed once more."""
    here, ticks = with_ticks(world)
    ticks.current = "1"
    requests = here.engine.tick(at(1)).requests
    ticks.failures["1"] = FailedTick(error="OSError", unmade=(requests[0].run_key,))
    here.dagster.submit(requests)
    expire(here)
    assert here.engine.tick(at(2)).requests == []
    assert states(here) == ["launched"]
