"""The gates of rates: how many more runs may start, and when the next one may."""

from datetime import timedelta

from arctic_orchestration_tests.run_queue.queues import NOON, gates, submitted
from arctic_orchestration_tests.run_queue.seen_gates import API, active, gates_of, shut, strays


def rate_after(*seconds_ago: float) -> tuple[float, str]:
    starts = [
        submitted(API, f"{ago}", dagster_status="SUCCESS", ended_at=NOON,
                  started_at=NOON - timedelta(seconds=ago))
        for ago in seconds_ago
    ]  # fmt: skip
    (found,) = shut(gates(API, [], ended=starts), API)
    return found


def test_a_rate_has_room_for_what_its_span_leaves() -> None:
    """Two in a minute; a start counts while it is less than a minute ago."""
    assert rate_after() == (2, "rate api: 0 of 2 starts within 1m")
    assert rate_after(10) == (1, "rate api: 1 of 2 starts within 1m")
    next_one = "the next may start at 2026-03-02 12:00:10Z"
    assert rate_after(50, 10) == (0, f"rate api: 2 of 2 starts within 1m, {next_one}")
    assert rate_after(60, 10) == (1, "rate api: 1 of 2 starts within 1m")
    assert rate_after(59.999, 59.998)[0] == 0
    assert rate_after(60.001, 61, 3600) == (2, "rate api: 0 of 2 starts within 1m")


def test_a_rate_that_was_exceeded_says_when_there_is_room_again() -> None:
    """Of four starts three have to be over, as when the limit was lowered."""
    next_one = "the next may start at 2026-03-02 12:00:40Z"
    assert rate_after(50, 40, 20, 10) == (0, f"rate api: 4 of 2 starts within 1m, {next_one}")


def test_a_rate_counts_what_passes_in_this_plan_in_its_text() -> None:
    """The run after the last one that may start has that as its reason."""
    (gate,) = gates_of(gates(API, []), API)
    gate.taken = 2
    assert not gate.is_open
    assert gate.text == "rate api: 2 of 2 starts within 1m"


def test_runs_in_progress_count_by_their_start_and_one_that_is_being_started_as_now() -> None:
    """Also those that were never queued; a run that is seen in progress and ended counts once."""
    starting = active(API, dagster_status="STARTING", started_at=None)
    stray = strays(started_at=NOON - timedelta(seconds=10))
    old = active(API, started_at=NOON - timedelta(hours=1))
    old[0].run_id = "old"
    assert shut(gates(API, [], [*starting, *old]), API)[0][0] == 1
    assert shut(gates(API, [], [*starting, *stray, *old]), API)[0][0] == 0
    both = active(API)
    assert shut(gates(API, [], both, ended=both), API)[0][0] == 1
