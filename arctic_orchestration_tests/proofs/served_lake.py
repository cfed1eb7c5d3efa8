"""A code location, a daemon and a service, of which a test uses HTTP and Dagster's storage."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import httpx2
from dagster import DagsterInstance

from arctic_orchestration import Schedule
from arctic_orchestration.errors import NotFound
from arctic_orchestration.schedules.dagster.resource import RunCause
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.coordinator import shifted_time
from arctic_orchestration_tests.proofs.coordinator.shifted_time import ShiftedTime
from arctic_orchestration_tests.proofs.dagster_processes import (
    CODE_SERVER,
    DAEMON,
    SERVICE,
    DagsterProcesses,
)
from arctic_orchestration_tests.proofs.lake_of_scenarios import DECLARED

_PROOFS = "arctic_orchestration_tests.proofs"


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A run in Dagster's storage: what it was given."""

    partitions: list[str]
    properties: Mapping[str, Any]

    @property
    def version(self) -> Any:
        return self.properties["version"]


class ServedLake:
    """The processes, and what a person does over HTTP.

    Time is the real one and a number of minutes: :meth:`advance` adds them.
    """

    def __init__(
        self, instance: DagsterInstance, database_url: str, declared: Sequence[Schedule]
    ) -> None:
        """Starts the processes, and waits until the first deployment is seen over HTTP."""
        self.instance = instance
        self._home = Path(instance.root_directory)
        offset = self._home / "offset.json"
        self._time = ShiftedTime(offset)
        self._began_at = datetime.now(UTC)
        self._keys = itertools.count(1)
        shifted: dict[str, Any] = {shifted_time.FILE: str(offset)}
        self.processes = DagsterProcesses(
            self._home,
            database_url,
            module=f"{_PROOFS}.lake_of_scenarios",
            launcher=f"{_PROOFS}.coordinator.timed_launcher.TimedRunLauncher",
            **shifted,
        )
        self._declare(declared, update_schedules=True)
        self._server = self.processes.start(CODE_SERVER)
        self.processes.start(DAEMON)
        self.processes.start(SERVICE)
        self._client = httpx2.Client(
            base_url=f"{self.processes.service_address}/api/v1",
            trust_env=False,
            timeout=PATIENCE_SECONDS,
        )
        self.wait(lambda: self._count() == len(declared), "the first deployment")

    def close(self) -> None:
        self._client.close()
        self.processes.end()

    def call(self, method: str, path: str, **values: Any) -> Any:
        """A request that succeeds; returns its answer."""
        headers = {"If-Match": "*", **values.pop("headers", {})}
        answer = self._client.request(method, path, headers=headers, **values)
        assert answer.is_success, (path, answer.text, self.processes.logs())
        return answer.json() if answer.content else None

    def create(self, made: Schedule) -> None:
        self.call("POST", "/schedules", json=made.to_form())

    def replace(self, changed: Schedule) -> None:
        self.call("PUT", f"/schedules/{changed.name}", json=changed.to_form())

    def announce(self, topic: str, *partitions: str) -> None:
        """Partitions of the topic's asset arrive, in one request."""
        arrivals = [{"asset": f"raw_{topic}", "partition": one} for one in partitions]
        headers = {"Idempotency-Key": f"k{next(self._keys)}"}
        self.call("POST", "/events", json={"arrivals": arrivals}, headers=headers)

    def job_states(self, schedule: str) -> list[str]:
        """The states of its jobs, oldest first."""
        return [job["state"] for job in reversed(self._jobs(schedule))]

    def holding(self, schedule: str) -> list[str]:
        """The forms of the constraints that hold its waiting job."""
        found = self.call("GET", f"/schedules/{schedule}/explanation")["constraints"]
        return [next(iter(one["form"])) for one in found if one["decision"] == "hold"]

    def deploy(self, schedules: Sequence[Schedule], *, update_schedules: bool) -> None:
        """Starts another code server, which declares these, and waits for its first tick."""
        self._declare(schedules, update_schedules=update_schedules)
        self._server.kill()
        self._server.join()
        self._server = self.processes.start(CODE_SERVER)
        self._wait_for_a_tick()

    def minute(self, number: float) -> datetime:
        """The moment that is so many minutes after the beginning."""
        return self._began_at + timedelta(minutes=number)

    def advance(self, minute: float) -> None:
        """Time passes to there, and the dispatcher ticks."""
        self._time.set(max(self._time.now(UTC), self.minute(minute)))
        self._wait_for_a_tick()

    def runs(self, schedule: str) -> list[Launched]:
        """The runs in Dagster's storage that a schedule requested, oldest first."""
        return [_launched(record.dagster_run.tags) for record in self._records(schedule)]

    def end_runs(self, schedule: str) -> None:
        """Its runs succeed."""
        for record in self._records(schedule):
            run = record.dagster_run
            event = dg.DagsterEvent(
                event_type_value=dg.DagsterEventType.RUN_SUCCESS.value, job_name=run.job_name
            )
            self.instance.report_dagster_event(event, run_id=run.run_id)

    def wait_for_runs(self, schedule: str, count: int) -> None:
        self.wait(lambda: len(self._records(schedule)) == count, f"{count} runs of {schedule}")

    def wait_for_states(self, schedule: str, states: list[str]) -> None:
        self.wait(lambda: self.job_states(schedule) == states, f"{schedule}: {states}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.processes.logs()}") from None

    def _count(self) -> int:
        """How many schedules there are."""
        (place,) = self.call("GET", "/locations")["locations"] or [{"schedules": 0}]
        return int(place["schedules"])

    def _wait_for_a_tick(self) -> None:
        now = datetime.now(UTC).timestamp()

        def has_ticked() -> bool:
            (state,) = self.instance.all_instigator_state()
            ticks = self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=5)
            done = [tick for tick in ticks if tick.is_completed and not tick.is_failure]
            return any(tick.timestamp > now for tick in done)

        self.wait(has_ticked, "a tick of the dispatcher")

    def _jobs(self, schedule: str) -> list[dict[str, Any]]:
        return list(self.call("GET", "/jobs", params={"schedule": schedule})["jobs"])

    def _records(self, schedule: str) -> Sequence[dg.RunRecord]:
        filters = dg.RunsFilter(tags={"arctic/schedule": schedule})
        return self.instance.get_run_records(filters, ascending=True)

    def _declare(self, schedules: Sequence[Schedule], *, update_schedules: bool) -> None:
        forms = [one.to_form() for one in schedules]
        text = json.dumps({"schedules": forms, "update_schedules": update_schedules})
        (self._home / DECLARED).write_text(text)


def _launched(tags: Mapping[str, str]) -> Launched:
    cause = RunCause(tags)
    try:
        return Launched(partitions=cause.partitions, properties=cause.properties)
    except NotFound:
        # Its job was deleted with the schedule.
        return Launched(partitions=[], properties={})
