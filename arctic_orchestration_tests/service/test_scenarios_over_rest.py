"""The scenarios in which a person changes and deletes schedules, and announces arrivals, over REST.

The stories are those of ``acceptance/test_scenarios.py``, on a virtual clock. Arrivals go through
Dagster's own event log, from which the dispatcher's next tick has them.
"""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from dagster import DagsterInstance
from starlette.testclient import TestClient

from arctic_orchestration import Schedule, only
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.service import schedules, service
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.acceptance.scenario import MINUTE, Launch, Story, schedule
from arctic_orchestration_tests.schedules.simulated import at
from arctic_orchestration_tests.service.conftest import MakeApi

_keys = itertools.count(1)


@dataclass
class RestStory:
    """A story whose person has HTTP alone."""

    story: Story
    client: TestClient
    instance: DagsterInstance
    patch: pytest.MonkeyPatch
    position: Position | None = field(default=None, init=False)

    def call(self, method: str, path: str, **values: Any) -> Any:
        """A request about schedules; of a service without an instance, so that moments decide."""
        with self.patch.context() as patch:
            patch.delenv("DAGSTER_HOME")
            answer = self.client.request(method, path, **values)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def create(self, *of: Schedule) -> None:
        for one in of:
            self.call("POST", "/schedules", json=one.to_form())

    def arrive(self, *partitions: str) -> None:
        """Partitions of raw/a are announced now, in one request, and the dispatcher ticks."""
        arrivals = [{"asset": "raw/a", "partition": partition} for partition in partitions]
        headers = {"Idempotency-Key": f"k{next(_keys)}"}
        answer = self.client.post("/events", json={"arrivals": arrivals}, headers=headers)
        assert answer.json()["assets"] == {"raw/a": len(partitions)}, answer.text
        log = DagsterLog(self.instance)
        try:
            batch = log.read(self.position, 100)
        finally:
            log.close()
        self.position = batch.position
        events = self.story.world.feed.events
        for event in batch.events:
            events.append(replace(event, at=at(self.story.seconds), storage_id=len(events) + 1))
        self.story.tick()


@pytest.fixture
def rest(
    api: MakeApi, database: Database, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> RestStory:
    """A story, and the service beside it: at the same moment, on the same state database."""
    story = Story(database)
    for module in (schedules, service):
        monkeypatch.setattr(module, "utc_now", lambda: at(story.seconds))
    return RestStory(story, api(), instance, monkeypatch)


def test_five_partitions_after_an_update_means_five(rest: RestStory) -> None:
    """One arrives, update, four arrive: no run. One more: a run with the new properties."""
    story = rest.story
    rest.create(schedule(count=5, properties={"color": "blue"}))
    rest.arrive("p0")
    story.until(10)
    changed = schedule(count=5, properties={"color": "red"}).to_form()
    rest.call("PUT", "/schedules/collector", json=changed, headers={"If-Match": "*"})
    for number in range(1, 5):
        story.until(number * MINUTE)
        rest.arrive(f"p{number}")
    story.until(10 * MINUTE)
    assert story.launches == []
    assert story.job_states() == ["discarded", "waiting_trigger"]
    rest.arrive("p5")
    assert story.launches == [
        Launch(
            seconds=10 * MINUTE,
            schedule="collector",
            partitions=["p1", "p2", "p3", "p4", "p5"],
            properties={"color": "red"},
        )
    ]
    story.until(11 * MINUTE)
    listed = rest.client.get("/events?kind=partition&partition=p5").json()["events"]
    assert [job["run_id"] for job in listed[0]["jobs"]] == [*story.world.dagster.runs]


def test_an_update_to_fewer_partitions_and_a_shorter_delay_counts_from_the_update(
    rest: RestStory,
) -> None:
    """Five have arrived and wait ten minutes; now three and 0.1 s; three more at once: a run.

    The five that waited are not launched when their ten minutes are over, nor with the three.
    """
    story = rest.story
    rest.create(schedule(count=5, constraints=[only.delay("10m")]))
    rest.arrive("p0", "p1", "p2", "p3", "p4")
    story.until(2 * MINUTE)
    assert story.job_states() == ["waiting_constraints"]
    rest.call(
        "PATCH",
        "/schedules/collector",
        json={
            "trigger": {"partitions": {"asset": "raw/a", "count": 3}},
            "constraints": [{"delay": {"duration": "0.1s"}}],
        },
    )
    story.until(3 * MINUTE)
    story.step = 0.05
    rest.arrive("p5", "p6", "p7")
    story.until(3 * MINUTE + 1)
    assert [(run.seconds, run.partitions) for run in story.launches] == [
        (3 * MINUTE + 0.1, ["p5", "p6", "p7"])
    ]
    story.step = 10.0
    story.until(15 * MINUTE)
    assert len(story.launches) == 1


def test_a_schedule_deleted_with_four_of_five_arrived_runs_nothing(rest: RestStory) -> None:
    """One more arrives: no run. Nor is anything left of the four for a new one of that name."""
    story = rest.story
    rest.create(schedule(count=5))
    rest.arrive("p0", "p1", "p2", "p3")
    story.until(10)
    rest.call("DELETE", "/schedules/collector")
    rest.arrive("p4")
    story.until(10 * MINUTE)
    assert (story.launches, story.job_states()) == ([], [])
    rest.create(schedule(count=5))
    rest.arrive("p5")
    story.until(20 * MINUTE)
    assert (story.launches, story.job_states()) == ([], ["waiting_trigger"])


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "control"])
def test_a_schedule_deleted_half_a_second_before_its_delay_ends_runs_nothing(
    rest: RestStory, deleted: bool
) -> None:
    """The control is not deleted, and runs at the end of its delay."""
    story = rest.story
    story.step = 0.5
    rest.create(schedule(constraints=[only.delay("10s")]))
    rest.arrive("p0")
    story.until(9.5)
    assert story.job_states() == ["waiting_constraints"]
    if deleted:
        rest.call("DELETE", "/schedules/collector")
    story.until(30)
    assert [run.seconds for run in story.launches] == ([] if deleted else [10.0])
