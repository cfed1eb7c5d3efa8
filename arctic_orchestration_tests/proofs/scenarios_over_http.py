"""The eight scenarios of ``acceptance``, by a person who has HTTP alone.

Each is a generator: it acts and checks, and yields the minute at which it goes on. All run side by
side on one clock, which jumps from one of these minutes to the next.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from arctic_orchestration import Schedule, on, only
from arctic_orchestration.schedules.constraints import Constraint
from arctic_orchestration_tests.proofs.lake_of_scenarios import CONSTRAINTS
from arctic_orchestration_tests.proofs.served_lake import ServedLake

#: yields minutes
Scenario = Callable[[ServedLake], Iterator[float]]


def schedule(
    name: str, topic: str = "", *, count: int = 1, version: int = 0, constraints: Any = ()
) -> Schedule:
    """A schedule of a scenario, whose name its asset and its job have."""
    return Schedule(
        name=name,
        target=topic or name,
        trigger=on.partitions(f"raw_{topic or name}", count=count),
        constraints=constraints,
        properties={"version": version},
        enabled=True,
    )


def a_minimum_interval_gathers_what_arrives_meanwhile(lake: ServedLake) -> Iterator[float]:
    """Five partitions over five minutes: one runs now, and four together five minutes later."""
    lake.create(schedule("one", constraints=[only.minimum_interval("5m")]))
    lake.announce("one", "p0")
    lake.wait_for_runs("one", 1)
    for number in range(1, 5):
        yield number
        lake.announce("one", f"p{number}")
    yield 4.5
    assert lake.job_states("one") == ["succeeded", "waiting_constraints"]
    yield 6
    lake.wait_for_runs("one", 2)
    yield 50
    assert [run.partitions for run in lake.runs("one")] == [["p0"], ["p1", "p2", "p3", "p4"]]


def properties_of_a_file_reach_the_next_run(lake: ServedLake) -> Iterator[float]:
    """Those of the run before stay what they were."""
    for version, partition in enumerate(("p0", "p1"), start=1):
        forms = [schedule("two", version=version).to_form()]
        done = lake.call("POST", "/schedule-files?dry_run=false", json={"schedules": forms})
        assert done["applied"]
        lake.announce("two", partition)
        lake.wait_for_runs("two", version)
    yield 50
    assert [(run.partitions, run.version) for run in lake.runs("two")] == [(["p0"], 1), (["p1"], 2)]


BEFORE = [schedule(name, "three", version=1) for name in ("removed", "changed", "kept")]
AFTER = [
    schedule("changed", "three", version=2),
    schedule("kept", "three", version=1),
    schedule("added", "three", version=2),
]


def deployments_with_and_without_updates(lake: ServedLake) -> Iterator[float]:
    """What a person made or suspended stays so; a deployment without updates changes nothing."""

    def ran(partition: str) -> dict[str, int]:
        return {
            name: run.version
            for name in ("removed", "changed", "kept", "added", "own")
            for run in lake.runs(name)
            if run.partitions == [partition]
        }

    def arrives(partition: str, expected: dict[str, int]) -> None:
        lake.announce("three", partition)
        lake.wait(lambda: ran(partition) == expected, f"for {partition}: {expected}")

    lake.create(schedule("own", "three", version=9))
    lake.call("POST", "/schedules/kept/suspend")
    lake.deploy(AFTER, update_schedules=False)
    arrives("p0", {"removed": 1, "changed": 1, "own": 9})
    lake.deploy(AFTER, update_schedules=True)
    arrives("p1", {"changed": 2, "added": 2, "own": 9})
    lake.call("POST", "/schedules/kept/enable")
    arrives("p2", {"changed": 2, "added": 2, "own": 9, "kept": 1})
    yield 50
    # Nothing more, and nothing of `kept` for what arrived while it was suspended.
    totals = Counter(removed=1, changed=3, added=2, own=3, kept=1)
    assert {name: len(lake.runs(name)) for name in totals} == totals


def five_partitions_after_an_update_means_five(lake: ServedLake) -> Iterator[float]:
    """One arrives, update, four arrive: no run. One more: a run with the new properties."""
    lake.create(schedule("four", count=5, version=1))
    lake.announce("four", "p0")
    lake.wait_for_states("four", ["waiting_trigger"])
    lake.replace(schedule("four", count=5, version=2))
    lake.announce("four", "p1", "p2", "p3", "p4")
    yield 1
    assert lake.job_states("four") == ["discarded", "waiting_trigger"]
    lake.announce("four", "p5")
    lake.wait_for_runs("four", 1)
    yield 50
    (run,) = lake.runs("four")
    assert (run.partitions, run.version) == (["p1", "p2", "p3", "p4", "p5"], 2)


def an_update_to_fewer_and_a_shorter_delay_counts_from_the_update(
    lake: ServedLake,
) -> Iterator[float]:
    """The five that waited ten minutes are launched neither then nor with the three."""
    lake.create(schedule("five", count=5, constraints=[only.delay("10m")]))
    lake.announce("five", "p0", "p1", "p2", "p3", "p4")
    yield 2
    lake.wait_for_states("five", ["waiting_constraints"])
    delay = only.delay(timedelta(seconds=0.1))
    lake.replace(schedule("five", count=3, constraints=[delay]))
    yield 3
    lake.announce("five", "p5", "p6", "p7")
    lake.wait_for_runs("five", 1)
    yield 50
    assert [run.partitions for run in lake.runs("five")] == [["p5", "p6", "p7"]]
    assert lake.job_states("five") == ["discarded", "succeeded"]


def a_schedule_deleted_with_four_of_five_runs_nothing(lake: ServedLake) -> Iterator[float]:
    """Nor is anything left of the four for a new one of that name."""
    lake.create(schedule("six", count=5))
    lake.announce("six", "p0", "p1", "p2", "p3")
    lake.wait_for_states("six", ["waiting_trigger"])
    lake.call("DELETE", "/schedules/six")
    lake.announce("six", "p4")
    yield 1
    assert lake.job_states("six") == []
    lake.create(schedule("six", count=5))
    lake.announce("six", "p5")
    lake.wait_for_states("six", ["waiting_trigger"])
    yield 50
    assert lake.runs("six") == []
    assert lake.job_states("six") == ["waiting_trigger"]


def a_schedule_deleted_before_its_delay_ends_runs_nothing(lake: ServedLake) -> Iterator[float]:
    """Half a minute before; the control beside it is not deleted, and runs."""
    for name in ("seven", "control"):
        lake.create(schedule(name, "seven", constraints=[only.delay("5m")]))
    lake.announce("seven", "p0")
    lake.wait_for_states("seven", ["waiting_constraints"])
    yield 4.5
    assert lake.job_states("control") == ["waiting_constraints"]
    lake.call("DELETE", "/schedules/seven")
    yield 6
    lake.wait_for_runs("control", 1)
    yield 50
    assert (len(lake.runs("seven")), len(lake.runs("control"))) == (0, 1)


#: the minute at which each constraint admits, unless it is the last to do so
ADMITS = {"delay": 5, "window": 8, "minimum_interval": 11, "rate": 17}
LAST_MINUTE = 40


def _all_but_at_the_end(lake: ServedLake, last: str) -> Sequence[Constraint]:
    minute = {**ADMITS, last: LAST_MINUTE}

    def after(name: str) -> timedelta:
        return timedelta(minutes=minute[name])

    opens, closes = (lake.minute(minute["window"] + more) for more in (0, 360))
    return [
        only.delay(after("delay")),
        only.window(f"{opens:%H:%M}", f"{closes:%H:%M}"),
        only.minimum_interval(after("minimum_interval")),
        only.concurrency(1, group="late" if last == "concurrency" else "early"),
        only.rate(1, per=after("rate"), group=f"quota of {last}"),
        # One of the ten runs that may be in progress is one too many for the last.
        only.load(below=0.1 if last == "load" else 1, probe="runs"),
    ]


def a_run_begins_only_when_all_constraints_admit(lake: ServedLake) -> Iterator[float]:
    """A schedule for each constraint, of which that one admits at minute 40, the others before.

    Each is launched at the beginning, for its interval and its rate to count from there. Runs of
    two others then hold the slots, and the later one is the load, too.
    """
    for last in CONSTRAINTS:
        constraints = _all_but_at_the_end(lake, last)
        # Its job runs nothing else, so that the interval is its own.
        trigger = on.partitions("raw_eight")
        lake.create(
            Schedule(name=last, target=last, trigger=trigger, constraints=constraints, enabled=True)
        )
        lake.call("POST", f"/schedules/{last}/launch")
    for last in CONSTRAINTS:
        lake.wait_for_runs(last, 1)
        lake.wait_for_states(last, ["succeeded"])
    for name in ("early", "late"):
        lake.create(schedule(name, constraints=[only.concurrency(1, group=name)]))
        lake.announce(name, "p0")
        lake.wait_for_states(name, ["launched"])
    lake.announce("eight", "p0")
    # Its end sets off the check that is then shown: by now the rate admits, too.
    yield 25
    lake.end_runs("early")
    lake.wait_for_states("early", ["succeeded"])
    yield 30
    for last in CONSTRAINTS:
        lake.wait(lambda last=last: lake.holding(last) == [last], f"{last} alone holds")  # type: ignore[misc]
        assert lake.job_states(last) == ["succeeded", "waiting_constraints"]
    lake.end_runs("late")
    yield LAST_MINUTE + 1
    for last in CONSTRAINTS:
        lake.wait_for_runs(last, 2)
    yield 50
    for last in CONSTRAINTS:
        assert [run.partitions for run in lake.runs(last)] == [[], ["p0"]], last


SCENARIOS: Sequence[Scenario] = (
    a_minimum_interval_gathers_what_arrives_meanwhile,
    properties_of_a_file_reach_the_next_run,
    deployments_with_and_without_updates,
    five_partitions_after_an_update_means_five,
    an_update_to_fewer_and_a_shorter_delay_counts_from_the_update,
    a_schedule_deleted_with_four_of_five_runs_nothing,
    a_schedule_deleted_before_its_delay_ends_runs_nothing,
    a_run_begins_only_when_all_constraints_admit,
)
