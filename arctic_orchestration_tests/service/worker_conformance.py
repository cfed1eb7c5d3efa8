"""What a worker has to do that follows docs/worker-protocol.md, whatever it is written in.

::

    check_worker(["my-worker", "--server", "{server}", "--token-file", "{token_file}"], ...)

starts the command beside a service and a lake of its own, and loses, doubles and refuses its
requests. The worker has one slot, merges Parquet files without deletes, ends on SIGTERM, and gets
neither the state database nor the catalog: its environment has no variable of them.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import Attempt, AttemptState
from arctic_orchestration.service import tokens, worker_documents, workers
from arctic_orchestration.service.scopes import parse_scopes
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.compaction_tables import compaction_attempts, compaction_tasks
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import (
    lake_in,
    offered,
    rows_of,
    table_of,
    tasks_of,
)
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.service.lossy_service import Fault, Served, served

_LEASE = timedelta(seconds=9)
_WAIT_SECONDS = 1.0
#: more than a worker sends while a test looks on
_MANY = 10_000


@dataclass
class Bench:
    """A worker under test, with the service and the lake that it works for."""

    command: Sequence[str]
    environment: Mapping[str, str]
    place: Path
    database: Database
    catalog: Catalog
    service: Served
    token: str
    _tables: int = 0

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """The running command; it has ended by itself at the end of the block."""
        file = self.place / "token"
        file.write_text(self.token + "\n")
        words = {"server": self.service.address, "token_file": str(file)}
        log = self.place / f"worker-{self._tables}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [word.format_map(words) for word in self.command],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.place,
                env={**self.environment, "HOME": str(self.place), "PATH": os.environ["PATH"]},
            )  # fmt: skip
        try:
            registered = len(self.service.proxy.requests("PUT")) + 1
            self._until(
                lambda: (
                    process.poll() is not None
                    or len(self.service.proxy.requests("PUT")) >= registered
                ),
                "it registers",
            )
            assert process.poll() is None, log.read_text()
            yield process
            assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()
        except BaseException:
            print(log.read_text()[-5_000:])
            raise
        finally:
            process.kill()
            process.wait()

    def offer(self) -> Task:
        """Offers the four files of a new table as one task."""
        self._tables += 1
        offered(self.database, table_of(self.catalog, f"lake.words{self._tables}"))
        (task,) = (one for one in tasks_of(self.database) if one.table == self.table)
        return task

    @property
    def table(self) -> str:
        """The table of the last task."""
        return f"lake.words{self._tables}"

    def reaches(self, task: Task, state: TaskState) -> Task:
        """Waits until a task has a state."""
        self._until(lambda: self.now(task).state is state, f"task {task.id} is {state}")
        return self.now(task)

    def now(self, task: Task) -> Task:
        with self.database.read() as tx:
            return task_store.task_by_id(tx, task.id)

    def attempts(self, task: Task) -> list[Attempt]:
        with self.database.read() as tx:
            return attempt_lookup.attempts_of(tx, task.id)

    def commit(self, task: Task) -> None:
        """Publishes a merged task; readers must see the same rows in one file."""
        table = self.catalog.load_table(task.table)
        before = rows_of(table)
        assert len(before) == 40
        done = Committer(self.database, self.catalog).commit(task.table)
        assert done is not None
        assert (done.counts.committed, done.trouble) == (1, None), self.now(task).reason
        assert rows_of(table) == before
        assert len(list(table.refresh().scan().plan_files())) == 1

    def is_hit(self, word: str, *faults: Fault) -> Callable[..., None]:
        """Lets faults happen to the next requests.

        Returns what waits until they have, or until a worker has ended, if it is given.
        """
        self.service.proxy.faults[word] = list(faults)
        left = self.service.proxy.faults[word]

        def wait(worker: "subprocess.Popen[bytes] | None" = None) -> None:
            self._until(
                lambda: not left or (worker is not None and worker.poll() is not None),
                f"{word} requests: {faults}",
            )

        return wait

    def sent(self, word: str, attempt: Attempt) -> list[Any]:
        """The requests about an attempt with a word."""
        return [one for one in self.service.proxy.requests(word) if attempt.id in one.path]

    def knows(self, word: str, attempt: Attempt) -> None:
        """Waits until a report was answered, or the question what became of the attempt.

        Other slots of a worker claim in the meantime. A beat after a report whose answer was lost
        may tell a worker that the attempt is over: then it asks, and reports no more.
        """
        self._until(
            lambda: any(
                one.status == 200 for one in (*self.sent(word, attempt), *self.asked(attempt))
            ),
            f"it knows of {word}",
        )

    def asked(self, attempt: Attempt) -> list[Any]:
        """The questions what became of an attempt."""
        return self.sent("GET", attempt)

    def orders(self, action: str) -> None:
        """Orders the only worker."""
        root = f"{self.service.address}/api/v1/workers"
        headers = {"Authorization": f"Bearer {self.token}"}
        (one,) = httpx2.get(root, headers=headers, verify=False).json()["workers"]
        answer = httpx2.post(f"{root}/{one['worker']}/{action}", headers=headers, verify=False)
        assert answer.status_code == 200, answer.text

    def claims_again(self) -> None:
        """Waits until two more claims have ended: what came before them is over."""
        self.service.proxy.waits_for("claim", len(self.service.proxy.requests("claim")) + 2)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what)


def check_worker(
    command: Sequence[str], place: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Holds a worker against the protocol.

    Args:
        command: with ``{server}`` and ``{token_file}``.
        place: an empty directory.
        environment: what the worker needs beside ``PATH`` and ``HOME``.
    """
    with bench_of(command, place, environment) as bench:
        with bench.worker():
            for step in STEPS:
                step(bench)
        _ends_in_order(bench)


@contextmanager
def bench_of(
    command: Sequence[str], place: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Bench]:
    """A service and a lake for a worker that is not started yet; arguments as above."""
    database = Database.open(f"sqlite:///{place / 'arctic.db'}")
    with database.begin() as tx:
        ann = Actor(name="ann", cluster="default")
        token = tokens.create(tx, ann, "worker", parse_scopes(["workers:write"]), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "LEASE", _LEASE)
        patch.setattr(worker_documents, "LONGEST_WAIT_SECONDS", _WAIT_SECONDS)
        with served(database, place / "lake") as service:
            catalog = lake_in(place / "lake")
            yield Bench(command, environment or {}, place, database, catalog, service, token)
    database.close()


def _merges(bench: Bench) -> None:
    """It writes below its directory alone, and reports rows and sizes that are true."""
    task = bench.reaches(bench.offer(), TaskState.MERGED)
    (attempt,) = bench.attempts(task)
    (output,) = attempt.outputs or ()
    assert attempt.location is not None
    assert output.path.startswith(f"{attempt.location}/")
    assert output.size == Path(output.path).stat().st_size
    assert (output.rows, attempt.rows_in, attempt.rows_deleted) == (40, 40, 0)
    bench.commit(task)


def _repeats_a_claim(bench: Bench) -> None:
    """A claim whose answer was lost, or that was sent twice, takes one task, as one attempt."""
    for fault in (Fault.UNANSWERED, Fault.DOUBLED, Fault.DROPPED, Fault.REFUSED):
        before = len(bench.service.proxy.requests("claim"))
        bench.is_hit("claim", fault)()
        task = bench.reaches(bench.offer(), TaskState.MERGED)
        assert len(bench.attempts(task)) == 1, fault
        assert len(bench.service.proxy.requests("claim")) > before
        bench.commit(task)


def _repeats_a_report(bench: Bench) -> None:
    """Until it is answered; it is accepted once."""
    faults = (Fault.UNANSWERED, Fault.DROPPED, Fault.REFUSED, Fault.DOUBLED)
    for fault in faults:
        was_hit = bench.is_hit("merged", fault)
        task = bench.reaches(bench.offer(), TaskState.MERGED)
        was_hit()
        (attempt,) = bench.attempts(task)
        assert attempt.state is AttemptState.MERGED, fault
        bench.knows("merged", attempt)
        bench.claims_again()
        (sent, *more) = bench.sent("merged", attempt)
        assert all(one.body == sent.body for one in more)
        last = sent if fault is Fault.DOUBLED else [*more, *bench.asked(attempt)][-1]
        assert last.status == 200
        # What did not arrive has to be reported again.
        assert more or fault in (Fault.DOUBLED, Fault.UNANSWERED)
        bench.commit(task)


def _reports_a_failure(bench: Bench) -> None:
    """With a reason; it goes on, and leaves no file."""
    table = table_of(bench.catalog, f"lake.words{bench._tables + 1}")
    for file in table.scan().plan_files():
        Path(file.file.file_path).unlink()
    task = bench.reaches(bench.offer(), TaskState.FAILED)
    (attempt,) = bench.attempts(task)
    assert attempt.state is AttemptState.FAILED
    assert attempt.reason
    assert attempt.location
    assert not any(Path(attempt.location).rglob("*.parquet"))


def _beats(bench: Bench) -> None:
    """While it has an attempt, so often that its lease does not end."""
    bench.is_hit("merged", *[Fault.REFUSED] * _MANY)
    task = bench.reaches(bench.offer(), TaskState.CLAIMED)
    (attempt,) = bench.attempts(task)
    before = len(bench.service.proxy.requests("beat"))
    bench.service.proxy.waits_for("beat", before + 4)
    with bench.database.begin() as tx:
        assert attempts.expire(tx) == 0
    beats = bench.service.proxy.requests("beat")[before:]
    held = {"attempt": attempt.id, "fencing_token": attempt.token}
    assert all(one.body["attempts"] == [held] and one.status == 200 for one in beats[1:])
    bench.service.proxy.faults.clear()
    bench.commit(bench.reaches(task, TaskState.MERGED))
    assert len(bench.attempts(task)) == 1


def _gives_up_what_is_lost(bench: Bench) -> None:
    """No report of an attempt after a heartbeat said that it is lost; its files go."""
    bench.is_hit("merged", *[Fault.REFUSED] * _MANY)
    task = bench.reaches(bench.offer(), TaskState.CLAIMED)
    (attempt,) = bench.attempts(task)
    until(lambda: bool(bench.sent("merged", attempt)), "it reports")
    with bench.database.begin() as tx:
        tx.execute(sa.update(compaction_attempts).values(expires_at=attempt.claimed_at))
        assert attempts.expire(tx) == 1
    until(lambda: len(bench.attempts(task)) == 2, "the task is claimed again")
    sent = len(bench.sent("merged", attempt))
    bench.service.proxy.faults.clear()
    bench.reaches(task, TaskState.MERGED)
    bench.claims_again()
    assert len(bench.sent("merged", attempt)) == sent
    lost, again = bench.attempts(task)
    assert (lost.state, again.state) == (AttemptState.LOST, AttemptState.MERGED)
    # It was claimed a moment before its directory was known.
    assert lost.location
    left = Path(lost.location)
    until(lambda: not any(left.rglob("*.parquet")), "its files are removed")
    bench.commit(task)


def _claims_nothing_while_quiet(bench: Bench) -> None:
    """A drained worker lives on; resumed, it goes on."""
    bench.orders("drain")
    task = bench.offer()
    bench.claims_again()
    assert bench.now(task).state is TaskState.PLANNED
    bench.orders("resume")
    bench.commit(bench.reaches(task, TaskState.MERGED))


def _stops(bench: Bench) -> None:
    """Ordered to stop, it gives its task back, says that it ends, and ends."""
    bench.is_hit("merged", *[Fault.REFUSED] * _MANY)
    task = bench.reaches(bench.offer(), TaskState.CLAIMED)
    bench.orders("stop")
    bench.service.proxy.faults["merged"] = [Fault.REFUSED] * 20
    bench.service.proxy.waits_for("DELETE")
    assert bench.now(task).state in (TaskState.PLANNED, TaskState.MERGED)


STEPS = (
    _merges,
    _repeats_a_claim,
    _repeats_a_report,
    _reports_a_failure,
    _beats,
    _gives_up_what_is_lost,
    _claims_nothing_while_quiet,
    _stops,
)


def _ends_in_order(bench: Bench) -> None:
    """On SIGTERM it claims nothing more, and finishes its task or puts it back."""
    with bench.database.begin() as tx:
        # The task that was put back must not come first.
        tx.execute(sa.delete(compaction_tasks))
    bench.service.proxy.faults.clear()
    with bench.worker() as process:
        was_hit = bench.is_hit("merged", Fault.REFUSED, Fault.REFUSED)
        task = bench.reaches(bench.offer(), TaskState.CLAIMED)
        process.send_signal(signal.SIGTERM)
        # It may not know the task yet: then it is put back at once, and nothing is reported.
        was_hit(process)
    left = TaskState.PLANNED if bench.service.proxy.faults["merged"] else TaskState.MERGED
    assert bench.now(task).state in (TaskState.PLANNED, left)
    assert not any(one.state is AttemptState.LIVE for one in bench.attempts(task))
