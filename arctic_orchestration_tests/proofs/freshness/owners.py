"""Processes that acquire tasks, make them and publish, while others kill and stop them.

Half of them are runs that a person started, which acquire their task by themselves. The others are
runs that were requested: they submit, tick as the sensor of a location, and begin what a tick has
acquired, under its token.

The owners' clocks are hours apart. They do not ask themselves whether their lease may still be
trusted: what is proven is that the token in the transaction suffices. An audit by triggers of the
database, which knows nothing of the code under test, says in which order tokens were given and
used; it is written under the lock of the task's row.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from multiprocessing.process import BaseProcess
from typing import Any

import sqlalchemy as sa

from arctic_orchestration import clock
from arctic_orchestration.errors import DatabaseUnavailable, Refused
from arctic_orchestration.event_log.run_lookup import RunView
from arctic_orchestration.freshness import ownership, submissions
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.lifecycle import Lifecycle
from arctic_orchestration.freshness.owned_run import Running
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.run_requests import TOKEN_TAG
from arctic_orchestration.freshness.run_start import acquired_manually, begun
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.freshness.sizes import LIFE
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

TASKS = ("flights", "delays", "weather")
#: the cluster of runs that a person started, and that of runs that were requested
MANUAL, REQUESTED = "east", "west"
#: how far the clocks of the owners are from the right time, in hours
SKEWS = (0, -5, 7, 30)

_AUDIT = {
    "sqlite": (
        "create table proof_audit (id integer primary key, task text, what text, token integer)",
        "create trigger proof_first after insert on arctic_tasks begin insert into proof_audit "
        "(task, what, token) values (new.task, 'acquired', new.token); end",
        "create trigger proof_next after update of token on arctic_tasks begin insert into "
        "proof_audit (task, what, token) values (new.task, 'acquired', new.token); end",
        "create trigger proof_published after insert on arctic_task_publications begin insert "
        "into proof_audit (task, what, token) values (new.task, 'published', new.token); end",
    ),
    "postgresql": (
        "create table proof_audit (id bigserial primary key, task text, what text, token bigint)",
        "create function proof_note() returns trigger language plpgsql as $$ begin insert into "
        "proof_audit (task, what, token) values (new.task, tg_argv[0], new.token); return new; "
        "end $$",
        "create trigger proof_first after insert on arctic_tasks for each row execute function "
        "proof_note('acquired')",
        "create trigger proof_next after update of token on arctic_tasks for each row when "
        "(old.token <> new.token) execute function proof_note('acquired')",
        "create trigger proof_published after insert on arctic_task_publications for each row "
        "execute function proof_note('published')",
    ),
}


class Skewed:
    """What ``clock`` takes for ``datetime``, some hours off."""

    def __init__(self, hours: float) -> None:
        self._offset = timedelta(hours=hours)

    def now(self, zone: Any = None) -> datetime:
        return datetime.now(UTC) + self._offset


def skew(hours: float) -> None:
    """Sets the clock of this process wrong, as far as Python reads it."""
    vars(clock)["datetime"] = Skewed(hours)
    right = time.time
    time.time = lambda: right() + hours * 3600


class NoRuns:
    """A storage of Dagster that knows nothing: runs tell how they end, or fall silent."""

    def run_statuses(self, run_ids: Sequence[str]) -> Mapping[str, RunView]:
        return {}

    def runs_by_tag(self, key: str, values: Sequence[str]) -> Mapping[str, Sequence[RunView]]:
        return {}

    def why_failed(self, run_id: str) -> str | None:
        return None


def own(url: str, number: int, checked: bool) -> None:
    """Makes tasks for ever; ``checked`` is whether the token is checked at publication."""
    end_with_the_parent()
    skew(SKEWS[number % len(SKEWS)])
    # Each is sure of its lease until it publishes.
    Running.check = lambda self: None  # type: ignore[method-assign]
    if not checked:
        ownership.why_not = lambda row, owner, token, now: None
    database = Database(url)
    luck = random.Random(os.getpid())
    if _is_requested(number):
        _make_what_is_requested(database, luck)
    _make_manually(database, luck)


def _is_requested(number: int) -> bool:
    return number >= len(SKEWS) // 2


def _make_manually(database: Database, luck: random.Random) -> None:
    runs = 0
    while True:
        runs += 1
        try:
            with acquired_manually(
                database,
                task=luck.choice(TASKS),
                cluster=MANUAL,
                location="lake",
                run_id=f"{os.getpid()}.{runs}",
                outcomes=Outcomes(life=LIFE),
            ) as running:
                _work(running, luck)
        except Refused:
            pass
        # Tasks are free now and then, so that a tick finds one.
        time.sleep(luck.uniform(0.01, 0.1))


def _make_what_is_requested(database: Database, luck: random.Random) -> None:
    lifecycle = Lifecycle(
        database=database,
        cluster=REQUESTED,
        location="lake",
        # A run that falls silent is replaced once, under another token.
        declared=[TaskSpec.parse({"name": task, "target": task, "retries": 1}) for task in TASKS],
        runs=NoRuns(),
        life=LIFE,
    )
    runs = 0
    while True:
        runs += 1
        try:
            requests = lifecycle.tick().requests
            _submit(database, luck.choice(TASKS))
            if not requests:
                time.sleep(0.01)
                continue
            # Another one of the location may begin the same, as two daemons would.
            request = luck.choice(requests)
            with begun(
                database,
                task=request.task,
                submission=request.submission,
                token=int(request.tags[TOKEN_TAG]),
                run_id=f"{os.getpid()}.{runs}",
                outcomes=Outcomes(life=LIFE),
            ) as running:
                _work(running, luck)
        except (Refused, DatabaseUnavailable):
            time.sleep(0.01)


def _submit(database: Database, task: str) -> None:
    """Wishes for another success, unless one is waited for."""
    with database.begin() as tx:
        live = submissions.live_of(tx, [task]).get(task, [])
        if not any(one.cluster == REQUESTED for one in live):
            submissions.submit(tx, [task], cluster=REQUESTED, force=True)


def _work(running: Running, luck: random.Random) -> None:
    time.sleep(luck.uniform(0.02, 0.1))
    running.publish()


class Owners:
    """Some of them, and what disturbs them."""

    def __init__(self, database: Database, url: str, *, checked: bool = True) -> None:
        self._database, self._url, self._checked = database, url, checked
        self._processes: dict[int, BaseProcess] = {}
        self._context = forkserver()
        with database.begin() as tx:
            for statement in _AUDIT[tx.dialect.name]:
                tx.execute(sa.text(statement.replace(":", "\\:")))
        for number in range(len(SKEWS)):
            self._start(number)

    def _start(self, number: int) -> None:
        process = self._context.Process(target=own, args=(self._url, number, self._checked))
        process.start()
        self._processes[number] = process

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()

    def query(self, text: str, **given: Any) -> list[Any]:
        with self._database.read() as tx:
            return list(tx.execute(sa.text(text), given))

    def published(self, cluster: str) -> int:
        """How many successes runs of a cluster have published."""
        query = "select count(*) from arctic_task_publications where cluster = :cluster"
        return int(self.query(query, cluster=cluster)[0][0])

    def refused(self, cluster: str) -> int:
        """How many runs of a cluster were refused when they had done their work."""
        query = (
            "select count(*) from arctic_task_events where step = 'refused' "
            "and cluster = :cluster and reason not like '%may not begin%'"
        )
        return int(self.query(query, cluster=cluster)[0][0])

    def superseded(self) -> list[Any]:
        """Publications that came after another one had acquired the task."""
        return self.query(
            "select p.task, p.token, a.token from proof_audit p join proof_audit a "
            "on a.task = p.task and a.id < p.id and a.token > p.token "
            "where p.what = 'published' and a.what = 'acquired'"
        )

    def _one_at_work(self, cluster: str) -> tuple[int, int, str, int]:
        """The number and process of an owner of a cluster, with its task and token."""
        found: list[tuple[int, int, str, int]] = []
        query = (
            "select task, token, run_id from arctic_tasks "
            "where owner is not null and begun_at is not null and cluster = :cluster"
        )

        def an_owner() -> bool:
            pids = {process.pid: number for number, process in self._processes.items()}
            for task, token, run_id in self.query(query, cluster=cluster):
                pid = int(run_id.split(".")[0])
                if pid in pids:
                    found.append((pids[pid], pid, task, token))
            return bool(found)

        until(an_owner, f"somebody of the {cluster} has a task")
        return found[0]

    def kill_one(self, cluster: str) -> None:
        """Kills an owner at work, and starts another one."""
        number, pid, _, _ = self._one_at_work(cluster)
        os.kill(pid, signal.SIGKILL)
        self._processes[number].join()
        self._start(number)

    def stop_one_until_it_is_superseded(self, cluster: str) -> None:
        """Stops an owner at work, and lets it go on when another one has its task."""
        _, pid, task, token = self._one_at_work(cluster)
        os.kill(pid, signal.SIGSTOP)
        try:
            until(self._is_over(task, token), "a take-over", 4 * LIFE.total_seconds() + 2)
        except AssertionError:
            # It was stopped inside a transaction, for whose end all others wait.
            pass
        finally:
            os.kill(pid, signal.SIGCONT)

    def _is_over(self, task: str, token: int) -> Callable[[], bool]:
        query = "select token from arctic_tasks where task = :task"
        return lambda: bool(self.query(query, task=task)[0][0] > token)
