"""The eight scenarios by which a scheduler of partitions is judged, on the real engine.

The ideas are those of the test suite of CDAP's scheduler (its core scheduler service and its
time, partition and program-status schedules): what a user does to schedules while partitions
arrive, and what must run because of it. Here each runs on both databases, on a virtual clock
that ticks through every moment of the story. What a run was given is read as the run reads it.
Those without a deployment also run over REST: ``service/test_scenarios_over_rest.py``.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Arctic, ArcticResource, Schedule, on, only
from arctic_orchestration.arctic import DISPATCHER
from arctic_orchestration.schedules.dagster import dispatcher
from arctic_orchestration.schedules.dagster.resource import RunCause
from arctic_orchestration.schedules.facts import Surroundings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.acceptance.scenario import MINUTE, Launch, Story, schedule
from arctic_orchestration_tests.schedules.simulated import at

# -- one: a minimum interval gathers what arrives meanwhile ------------------------------------


def test_of_five_partitions_over_five_minutes_one_runs_now_and_four_together_later(
    story: Story,
) -> None:
    """Any new partition, five minutes apart: the first run ends at 10 s, so the next is at 310 s.

    The partitions come at 0, 1, 2, 3 and 4 minutes. The one that arrives first runs at once;
    the other four wait in one job, and are one run.
    """
    story.declare(schedule(constraints=[only.minimum_interval("5m")]))
    for number in range(5):
        story.until(number * MINUTE)
        story.arrive(f"p{number}")
    story.until(20 * MINUTE)
    assert [(run.seconds, run.partitions) for run in story.launches] == [
        (0, ["p0"]),
        (10 + 5 * MINUTE, ["p1", "p2", "p3", "p4"]),
    ]


# -- two: properties reach the next run --------------------------------------------------------


def test_properties_updated_by_deployment_reach_the_next_run(story: Story) -> None:
    """A run that is under way keeps those it was launched with."""
    story.deploy(schedule(properties={"color": "blue", "depth": 1}))
    story.arrive("p0")
    first = next(iter(story.world.dagster.runs.values()))
    story.deploy(schedule(properties={"color": "red"}))
    story.until(MINUTE)
    story.arrive("p1")
    assert [(run.partitions, run.properties) for run in story.launches] == [
        (["p0"], {"color": "blue", "depth": 1}),
        (["p1"], {"color": "red"}),
    ]
    assert RunCause(first.tags).properties == {"color": "blue", "depth": 1}


# -- four and five: an update begins again ------------------------------------------------------


def test_five_partitions_after_an_update_means_five(story: Story) -> None:
    """One arrives, update, four arrive: no run. One more: a run with the new properties."""
    story.declare(schedule(count=5, properties={"color": "blue"}))
    story.arrive("p0")
    story.update(schedule(count=5, properties={"color": "red"}))
    for number in range(1, 5):
        story.until(number * MINUTE)
        story.arrive(f"p{number}")
    story.until(10 * MINUTE)
    assert story.launches == []
    assert story.job_states() == ["discarded", "waiting_trigger"]
    story.arrive("p5")
    assert story.launches == [
        Launch(
            seconds=10 * MINUTE,
            schedule="collector",
            partitions=["p1", "p2", "p3", "p4", "p5"],
            properties={"color": "red"},
        )
    ]


def test_an_update_to_fewer_partitions_and_a_shorter_delay_counts_from_the_update(
    story: Story,
) -> None:
    """Five have arrived and wait ten minutes; update to three and 0.1 s; three more: a run.

    The five that waited are not launched when their ten minutes are over, nor with the three.
    """
    story.declare(schedule(count=5, constraints=[only.delay("10m")]))
    story.arrive("p0", "p1", "p2", "p3", "p4")
    story.until(2 * MINUTE)
    assert story.job_states() == ["waiting_constraints"]
    changed = schedule(count=3, constraints=[only.delay(timedelta(seconds=0.1))])
    story.update(changed)
    story.until(3 * MINUTE)
    story.step = 0.05
    story.arrive("p5", "p6", "p7")
    story.until(3 * MINUTE + 1)
    assert [(run.seconds, run.partitions) for run in story.launches] == [
        (3 * MINUTE + 0.1, ["p5", "p6", "p7"])
    ]
    story.step = 10.0
    story.until(15 * MINUTE)
    assert len(story.launches) == 1
    assert story.job_states() == ["discarded", "succeeded"]


# -- six and seven: what is deleted never runs -------------------------------------------------


def test_a_schedule_deleted_with_four_of_five_arrived_runs_nothing(story: Story) -> None:
    """One more arrives: no run. Nor is anything left of the four for a new one of that name."""
    story.deploy()
    story.apply(schedule(count=5))
    story.arrive("p0", "p1", "p2", "p3")
    story.delete("collector")
    story.arrive("p4")
    story.until(10 * MINUTE)
    assert story.launches == []
    assert story.job_states() == []
    story.apply(schedule(count=5))
    story.arrive("p5")
    story.until(20 * MINUTE)
    assert story.launches == []
    assert story.job_states() == ["waiting_trigger"]


@pytest.mark.parametrize("deleted", [True, False])
def test_a_schedule_deleted_half_a_second_before_its_delay_ends_runs_nothing(
    story: Story, deleted: bool
) -> None:
    """Ten seconds of delay, deleted after 9.5; and beside it the story in which it is not."""
    story.deploy()
    story.apply(schedule(constraints=[only.delay("10s")]))
    story.step = 0.1
    story.arrive("p0")
    story.until(9.5)
    assert story.job_states() == ["waiting_constraints"]
    if deleted:
        story.delete("collector")
    story.until(30)
    assert [run.seconds for run in story.launches] == ([] if deleted else [10.0])


# -- eight: all constraints, and no fewer ------------------------------------------------------

#: the minute at which each constraint admits, unless it is the last to do so
ADMITS = {
    "delay": 5,
    "window": 8,
    "minimum_interval": 11,
    "concurrency": 14,
    "rate": 17,
    "load": 20,
}
LAST_MINUTE = 40


@pytest.mark.parametrize("last", ADMITS)
def test_a_trigger_with_several_constraints_runs_only_when_all_admit(
    database: Database, last: str
) -> None:
    """Five of six constraints admit between minutes 5 and 20, and one not before minute 40.

    Whichever it is, the job that was made at midnight is launched when that one admits.
    """
    minute = {**ADMITS, last: LAST_MINUTE}
    story = Story(database, step=30, run_seconds=minute["concurrency"] * MINUTE)
    load = {"busy": 0.9, "idle": 0.1}

    def measure(probe: str) -> float:
        return load["busy" if story.seconds < minute["load"] * MINUTE else "idle"]

    story.world.engine.surroundings = Surroundings(measure=measure)
    neighbour = Schedule(
        name="neighbour",
        target="other",
        trigger=on.partitions("raw/b"),
        constraints=[only.concurrency(1, group="slot"), only.rate(9, per="1h", group="quota")],
        enabled=True,
    )
    constrained = schedule(
        constraints=[
            only.delay(timedelta(minutes=minute["delay"])),
            only.window(f"00:{minute['window']:02}", "06:00"),
            only.minimum_interval(timedelta(minutes=minute["minimum_interval"])),
            only.concurrency(1, group="slot"),
            only.rate(1, per=timedelta(minutes=minute["rate"]), group="quota"),
            only.load(below=0.5, probe="cpu"),
        ]
    )
    story.deploy(neighbour, constrained)
    # At midnight a run of the target ends, and the neighbour's takes the slot and the quota.
    story.world.dagster.start("rollup", "by hand")
    story.world.dagster.end("by hand", ended_at=at(0))
    story.world.feed.arrive("raw/b", "b0")
    story.tick()
    story.arrive("p0")
    story.until(60 * MINUTE)
    assert [(run.schedule, run.seconds) for run in story.launches] == [
        ("neighbour", 0),
        ("collector", LAST_MINUTE * MINUTE),
    ]


# -- the first scenario with Dagster's own parts -----------------------------------------------


def test_with_dagster_one_partition_runs_now_and_four_together_later(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scenario one through the sensor, the event log, real runs and the ``arctic`` resource.

    Only the clock of the dispatcher is ours: it goes forward minute by minute, from the moment
    at which the first run really ended.
    """
    instance = dagster_instance(backend)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    database = Database(database_url)
    database.upgrade()
    database.close()
    received: list[tuple[list[str], Mapping[str, Any]]] = []

    @dg.op
    def remember(arctic: ArcticResource) -> None:
        received.append((arctic.partitions, arctic.properties))

    @dg.job
    def rollup() -> None:
        remember()

    collector = schedule(constraints=[only.minimum_interval("5m")], properties={"color": "blue"})
    definitions = dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec("raw/a")], jobs=[rollup]),
        Arctic(schedules=[collector]).definitions(),
    )
    repository = definitions.get_repository_def()

    def arrive(partition: str) -> None:
        instance.report_runless_asset_event(
            dg.AssetMaterialization(["raw", "a"], partition=partition)
        )

    def tick() -> int:
        """A tick of the sensor, and the runs it requests; returns how many."""
        with dg.SensorEvaluationContext(
            instance_ref=instance.get_ref(),
            repository_name=repository.name,
            repository_def=repository,
            sensor_name=DISPATCHER,
        ) as context:
            requests = repository.get_sensor_def(DISPATCHER).evaluate_tick(context).run_requests
        for request in requests or ():
            tags = {**request.tags, "dagster/run_key": str(request.run_key)}
            job = repository.get_job(str(request.job_name))
            assert job.execute_in_process(instance=instance, tags=tags).success
        return len(requests or ())

    tick()
    arrive("p0")
    assert tick() == 1
    (record,) = instance.get_run_records()
    assert record.end_time is not None
    ended_at = datetime.fromtimestamp(record.end_time, UTC)
    for number, passed in enumerate([60, 120, 180, 240, 299.9], start=1):
        moment = ended_at + timedelta(seconds=passed)
        monkeypatch.setattr(dispatcher, "utc_now", lambda moment=moment: moment)
        if number < 5:
            arrive(f"p{number}")
        assert tick() == 0
    monkeypatch.setattr(dispatcher, "utc_now", lambda: ended_at + timedelta(seconds=300.1))
    assert tick() == 1
    assert received == [(["p0"], {"color": "blue"}), (["p1", "p2", "p3", "p4"], {"color": "blue"})]
