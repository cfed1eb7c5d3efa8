"""Scenarios of ``acceptance`` in which a person has HTTP alone.

Schedules are made, changed and deleted, and arrivals announced, over REST. Arrivals go through
Dagster's own event log, from which the dispatcher's next tick has them.
"""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from dagster import DagsterInstance
from starlette.testclient import TestClient

from arctic_orchestration import Schedule
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.service import schedules, service
from arctic_orchestration.state.database import Database

# Collected here, they take the fixture ``story`` of this file.
from arctic_orchestration_tests.acceptance.scenario import Story, schedule
from arctic_orchestration_tests.acceptance.test_scenarios import (
    test_a_schedule_deleted_half_a_second_before_its_delay_ends_runs_nothing,
    test_a_schedule_deleted_with_four_of_five_arrived_runs_nothing,
    test_an_update_to_fewer_partitions_and_a_shorter_delay_counts_from_the_update,
    test_five_partitions_after_an_update_means_five,
    test_of_five_partitions_over_five_minutes_one_runs_now_and_four_together_later,
)
from arctic_orchestration_tests.schedules.simulated import at
from arctic_orchestration_tests.service.conftest import MakeApi

__all__ = [
    "test_a_schedule_deleted_half_a_second_before_its_delay_ends_runs_nothing",
    "test_a_schedule_deleted_with_four_of_five_arrived_runs_nothing",
    "test_an_update_to_fewer_partitions_and_a_shorter_delay_counts_from_the_update",
    "test_five_partitions_after_an_update_means_five",
    "test_of_five_partitions_over_five_minutes_one_runs_now_and_four_together_later",
]
_keys = itertools.count(1)


@dataclass(kw_only=True)
class RestStory(Story):
    """A story whose person has HTTP alone."""

    client: TestClient
    instance: DagsterInstance
    patch: pytest.MonkeyPatch
    position: Position | None = field(default=None, init=False)

    def call(self, method: str, path: str, **values: Any) -> None:
        """A request about schedules; of a service without an instance, so that moments decide."""
        with self.patch.context() as patch:
            patch.delenv("DAGSTER_HOME")
            answer = self.client.request(method, path, headers={"If-Match": "*"}, **values)
        assert answer.is_success, answer.text

    def declare(self, one: Schedule) -> None:
        """It is created over REST."""
        self.apply(one)

    def apply(self, *schedules: Schedule) -> None:
        for one in schedules:
            self.call("POST", "/schedules", json=one.to_form())

    def update(self, changed: Schedule) -> None:
        self.call("PUT", f"/schedules/{changed.name}", json=changed.to_form())

    def delete(self, name: str) -> None:
        self.call("DELETE", f"/schedules/{name}")

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
        events = self.world.feed.events
        for event in batch.events:
            events.append(replace(event, at=at(self.seconds), storage_id=len(events) + 1))
        self.tick()


@pytest.fixture
def story(
    api: MakeApi, database: Database, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> RestStory:
    """A story, and the service beside it: at the same moment, on the same state database."""
    # The location is there before its first request.
    Story(database)
    made = RestStory(database, client=api(), instance=instance, patch=monkeypatch)
    for module in (schedules, service):
        monkeypatch.setattr(module, "utc_now", lambda: at(made.seconds))
    return made


def test_an_event_names_the_run_that_it_set_off(story: RestStory) -> None:
    """As GET /events lists it once it is taken."""
    story.apply(schedule())
    story.arrive("p0")
    story.until(60)
    listed = story.client.get("/events?kind=partition&partition=p0").json()["events"]
    assert [job["run_id"] for job in listed[0]["jobs"]] == [*story.world.dagster.runs]
