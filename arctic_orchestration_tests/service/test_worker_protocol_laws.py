"""Laws of the workers' protocol, while a proxy drops, doubles, delays and reorders requests.

Workers, a committer and what expires leases take their steps in a random order of one thread. No
task is committed twice, none is lost, and a worker has one attempt at most, whether or not it knows
of it: a claim whose answer was lost costs nothing.
"""

import os
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import AttemptState, MergedFile
from arctic_orchestration.compaction.work.http_source import HttpSource, Server
from arctic_orchestration.compaction.work.task_source import ClaimedTask
from arctic_orchestration.compaction.work.workers import WorkerInfo
from arctic_orchestration.errors import NotFound, Refused, RequestRefused, ServerUnavailable
from arctic_orchestration.state.compaction_tables import compaction_attempts, compaction_queues
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import Done, lake_in, table_of, tasks_of
from arctic_orchestration_tests.compaction.stored import planned, seen
from arctic_orchestration_tests.service.conftest import MakeApi

REQUESTS = 10_000 if os.environ.get("ARCTIC_PROOF") == "full" else 400
#: requests that a task takes, with its failures and lost answers: fewer than it does
_A_TASK = 4
_ROWS = 100


@dataclass
class Network:
    """Carries requests to the service, badly."""

    client: TestClient
    chance: random.Random
    #: requests that were sent, and have not arrived yet
    late: list[tuple[str, str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def deliver(self, method: str, path: str, body: Any) -> Any:
        self.counts["delivered"] += 1
        answer = self.client.request(method, f"/workers{path}", json=body)
        assert answer.status_code < 500, answer.text
        return answer

    def send(self, method: str, path: str, body: Any) -> Any:
        while self.late and self.chance.random() < 0.3:
            # In another order than they were sent.
            self.deliver(*self.late.pop(self.chance.randrange(len(self.late))))
        fate = self.chance.choices(
            ["well", "dropped", "delayed", "unanswered", "doubled"], [60, 10, 10, 10, 10]
        )[0]
        self.counts[fate] += 1
        if fate == "delayed":
            self.late.append((method, path, body))
        if fate in ("dropped", "delayed"):
            raise ServerUnavailable(f"it was {fate}")
        answer = self.deliver(method, path, body)
        if fate == "doubled":
            self.late.append((method, path, body))
            answer = self.deliver(method, path, body)
        if fate == "unanswered":
            raise ServerUnavailable("the answer was lost")
        return answer


class LossyServer(Server):
    """The worker's own client, on that network."""

    def __init__(self, network: Network) -> None:
        super().__init__("http://localhost")
        self._network = network

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, wait: float = 0
    ) -> dict[str, Any]:
        answer = self._network.send(method, path, body)
        document = answer.json() if answer.content else {}
        if answer.status_code < 400:
            return dict(document)
        kind = {404: NotFound, 409: Refused}.get(answer.status_code)
        raise (
            kind(document["detail"]) if kind else RequestRefused(answer.status_code, str(document))
        )


class ForgetfulSource(HttpSource):
    """The control: another key for each try of a claim."""

    def claim(self, wait: timedelta | None) -> ClaimedTask | None:
        self._keys.key = None
        return super().claim(wait)


@dataclass
class SimulatedWorker:
    """Works through one source, a request a step."""

    source: HttpSource
    info: WorkerInfo
    chance: random.Random
    is_registered: bool = False
    held: ClaimedTask | None = None
    #: the report that it repeats until it is answered
    report: str | None = None
    #: its attempt was taken from it
    is_late: bool = False

    def step(self) -> str | None:
        """Returns the report that was accepted, if one was; raises ServerUnavailable."""
        if not self.is_registered:
            self.source.start(self.info)
            self.is_registered = True
        elif self.held is None:
            self.held = self.source.claim(timedelta())
            self.report, self.is_late = None, False
        elif self.report is None and self.chance.random() < 0.5:
            self.source.beat([self.held])
        else:
            return self._report(self.held)
        return None

    def _report(self, held: ClaimedTask) -> str | None:
        if self.report is None:
            self.report = self.chance.choices(["merged", "failed", "released"], [80, 10, 10])[0]
        work, was_late = held.claim, self.is_late
        try:
            if self.report == "merged":
                answer: Any = work.answer  # type: ignore[attr-defined]
                output = MergedFile(path=f"{answer['directory']}/a.parquet", size=9, rows=_ROWS)
                self.source.merged(work, Done(outputs=(output,), rows_in=_ROWS, rows_out=_ROWS))
            elif self.report == "failed":
                self.source.failed(work, "a test", final=False, bad_files=False)
            else:
                self.source.release(work, "a test")
        except Refused:
            assert was_late, "a report of the attempt that has the task was refused"
            self.held = None
            return None
        # Unless an earlier copy was accepted before the attempt was lost.
        self.held = None
        return self.report


@dataclass
class World:
    """All of them, and what the laws are about."""

    database: Database
    network: Network
    chance: random.Random
    kind: type[HttpSource]
    tasks: int
    workers: list[SimulatedWorker] = field(default_factory=list)
    dead: list[SimulatedWorker] = field(default_factory=list)
    committed: Counter[str] = field(default_factory=Counter)
    snapshots: int = 0

    def run(self) -> None:
        """Until every task is committed."""
        while len(self.workers) < 4:
            self.join()
        while len(self.committed) < self.tasks:
            self.step()
        assert self.committed.most_common(1)[0][1] == 1, "a task was committed twice"

    def join(self) -> None:
        info = WorkerInfo(
            id=f"w{len(self.workers) + len(self.dead)}", name="w", queues=(), parallelism=1,
            host="", pid=0,
        )  # fmt: skip
        source = self.kind(LossyServer(self.network))
        self.workers.append(SimulatedWorker(source, info, self.chance))

    def step(self) -> None:
        what = self.chance.choices(["work", "commit", "late", "die"], [90, 7, 2, 1])[0]
        worker = self.chance.choice(self.workers)
        if what == "commit":
            self.commit()
            # Also what a late request claimed for one of them.
            dead = [one.info.id for one in self.dead]
            self.expire(compaction_attempts.c.worker_id.in_(dead))
        elif what == "late" and worker.held is not None:
            # As if it had been silent for its lease.
            worker.is_late = True
            self.expire(compaction_attempts.c.id == worker.held.claim.attempt_id)
        elif what == "die":
            self.workers.remove(worker)
            self.dead.append(worker)
            self.join()
        else:
            try:
                worker.step()
            except ServerUnavailable:
                self.network.counts["repeated"] += 1
        with self.database.read() as tx:
            for one in self.workers:
                assert len(attempt_lookup.live_attempts_of(tx, one.info.id)) <= 1, (
                    "one was forgotten"
                )

    def expire(self, which: sa.ColumnElement[bool]) -> None:
        with self.database.begin() as tx:
            live = compaction_attempts.c.state == AttemptState.LIVE.value
            past = utc_now() - timedelta(days=1)
            tx.execute(sa.update(compaction_attempts).where(which, live).values(expires_at=past))
            attempts.expire(tx)

    def commit(self) -> None:
        with self.database.begin() as tx:
            merged = commits.merged_tasks(tx, "lake.words")
            self.snapshots += 1
            commits.committed(tx, [one.task.id for one in merged], self.snapshots)
        for one in merged:
            (output,) = one.attempt.outputs or ()
            assert output.path == f"{one.attempt.location}/a.parquet"
            self.committed[one.task.id] += 1


def world_of(
    api: MakeApi, database: Database, tmp_path: Path, kind: type[HttpSource], requests: int
) -> World:
    """A queue of tasks of one table, and a network."""
    table_of(lake_in(tmp_path / "lake"), files=0)
    number = max(requests // _A_TASK, 20)
    with database.begin() as tx:
        seen(tx, "lake.words")
        tx.execute(sa.update(compaction_queues).values(capacity=number))
        tasks = [planned(f"f{one}") for one in range(number)]
        again = timedelta(microseconds=1)
        offer(tx, "lake.words", tasks, utc_now(), max_attempts=1_000, retry_after=again)
    chance = random.Random(17)
    return World(database, Network(api(), chance), chance, kind, len(tasks_of(database)))


@pytest.mark.proof
@pytest.mark.timeout(3_600)
def test_no_task_is_committed_twice_or_lost(
    api: MakeApi, database: Database, tmp_path: Path
) -> None:
    """Whatever happens to requests; late reports are refused, and all tasks are committed."""
    world = world_of(api, database, tmp_path, HttpSource, REQUESTS)
    world.run()
    assert {one.state for one in tasks_of(database)} == {TaskState.COMMITTED}
    counts = world.network.counts
    assert counts["delivered"] >= REQUESTS, counts
    assert min(counts[one] for one in ("dropped", "delayed", "unanswered", "doubled")) > 20, counts


def test_a_claim_with_another_key_each_time_would_be_noticed(
    api: MakeApi, database: Database, tmp_path: Path
) -> None:
    """The control: it leaves attempts that no worker knows of."""
    world = world_of(api, database, tmp_path, ForgetfulSource, 400)
    with pytest.raises(AssertionError, match="one was forgotten"):
        world.run()
