"""When the demo ends: at rest or after a failure, however slow the machine is."""

from types import SimpleNamespace
from typing import Any

from arctic_orchestration.flights.demo_end import Rest, failed_jobs, seconds_at_work
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.views.overview import Overview, ScheduleView


def _seen(**jobs: int) -> Overview:
    counts = {JobState(name): count for name, count in jobs.items()}
    view = ScheduleView(name="flights", jobs=counts, events=3)
    return Overview(following=True, events=3, schedules=(view,))


def test_two_ticks_without_work_are_rest() -> None:
    ticks = iter([10.0, 10.0, 15.0, 15.0, 20.0])
    rest = Rest(lambda: next(ticks), lambda: 0)
    # The tick at 10 had ended before; the one at 15 may have read the log before the last event.
    assert [rest.reached(_seen(succeeded=1)) for _ in range(5)] == [False] * 4 + [True]


def test_a_job_that_is_held_or_runs_is_no_rest_however_long_it_takes() -> None:
    for state in ("waiting_constraints", "launching", "launched"):
        now = 0.0

        def tick() -> float:
            nonlocal now
            now += 3600
            return now

        rest = Rest(tick, lambda: 0)
        assert not any(rest.reached(_seen(**{state: 1})) for _ in range(1000))


def test_a_job_that_waits_for_its_trigger_through_two_ticks_waits_for_what_does_not_come() -> None:
    ticks = iter([10.0, 15.0, 20.0])
    rest = Rest(lambda: next(ticks), lambda: 0)
    assert [rest.reached(_seen(waiting_trigger=1)) for _ in range(3)] == [False, False, True]


def test_a_run_whose_end_was_not_read_yet_is_no_rest() -> None:
    ticks = iter(range(100))
    active = [1, 1, 1, 1, 0, 0, 0]
    rest = Rest(lambda: float(next(ticks)), lambda: active.pop(0))
    assert [rest.reached(_seen(succeeded=1)) for _ in range(7)] == [False] * 6 + [True]


def test_work_that_begins_again_restarts_the_count() -> None:
    ticks = iter(range(100))
    rest = Rest(lambda: float(next(ticks)), lambda: 0)
    idle, busy = _seen(succeeded=1), _seen(launching=1)
    assert [rest.reached(seen) for seen in (idle, idle, busy, idle, idle, idle)] == [
        *[False] * 5,
        True,
    ]


def test_without_a_tick_there_is_no_rest() -> None:
    rest = Rest(lambda: None, lambda: 0)
    assert not any(rest.reached(_seen()) for _ in range(10))


def test_a_failed_job_is_counted() -> None:
    assert failed_jobs(_seen(succeeded=2)) == 0
    assert failed_jobs(_seen(succeeded=2, failed=1)) == 1


class Steps:
    """An instance of Dagster with two runs, and when their steps began and ended."""

    def __init__(self, *runs: list[tuple[float | None, float | None]]) -> None:
        self._runs = runs

    def get_runs(self) -> list[Any]:
        return [SimpleNamespace(run_id=number) for number in range(len(self._runs))]

    def get_run_step_stats(self, number: int) -> list[Any]:
        return [
            SimpleNamespace(start_time=start, end_time=end) for start, end in self._runs[number]
        ]


def test_steps_beside_each_other_are_work_once() -> None:
    """10 to 14 with 12 to 16 are six seconds, 20 to 21 is one; a step that goes on is none."""
    steps: Any = Steps([(10, 14), (20, 21), (30, None)], [(12, 16), (13, 14), (None, None)])
    assert seconds_at_work(steps) == 7
    nothing: Any = Steps()
    assert seconds_at_work(nothing) == 0
