"""Planners, workers, committers and people at once, with leases that end all the time.

No deadlock occurs (Postgres would end one of them with an error), and what is promised of
files, attempts and queues holds in the end. ``ARCTIC_PROOF=full`` goes on ten times as long.
"""

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import commit_leases, commits, orphaned_outputs, records
from arctic_orchestration.compaction.queue import queues, table_queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue
from arctic_orchestration.compaction.queue.task import LIVE, TaskKind, TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.errors import InvalidInput, Refused
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_moves,
    compaction_records,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.stored import MERGE, NOON, opened, planned, seen

TURNS = 600 if os.environ.get("ARCTIC_PROOF") == "full" else 40
TABLES = ("lake.a", "lake.b", "lake.c")
QUEUES = ("default", "one", "two")
#: a lease that may be over before the report, and one that is not
LIFE, LONG = timedelta(milliseconds=40), timedelta(minutes=10)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A state database with three queues and three tables, once on each backend."""
    with opened(database_url) as made:
        with made.begin() as tx:
            for name in QUEUES[1:]:
                queues.add_queue(tx, CompactionQueue(name=name, capacity=6), NOON)
            for name in TABLES:
                seen(tx, name)
        yield made


def plan_something(database: Database, chance: random.Random) -> None:
    """Now and then, a plan of random files of a random table."""
    if chance.random() < 0.75:
        return
    numbers = chance.sample(range(20), 12)
    size = chance.choice([1, 2, 3])
    plan = [planned(*(f"f{n}" for n in numbers[at : at + size])) for at in range(0, 12, size)]
    with database.begin() as tx:
        offer(tx, chance.choice(TABLES), plan, database_time(tx), retry_after=LIFE)


def work(database: Database, chance: random.Random) -> None:
    """A claim, perhaps a renewal, and a report that may come too late."""
    is_silent = chance.random() < 0.2
    life = LIFE if is_silent else chance.choice([LIFE, LONG])
    with database.begin() as tx:
        claim = attempts.claim(tx, chance.sample(QUEUES, 2), "w", life=life)
    if claim is None:
        return
    if chance.random() < 0.5:
        with database.begin() as tx:
            attempts.renew(tx, claim.attempt_id, claim.token, life=life)
    if is_silent:
        return
    ways: list[Any] = [
        lambda tx: attempts.merged(tx, claim.attempt_id, claim.token, **MERGE),
        lambda tx: attempts.merged(tx, claim.attempt_id, claim.token, **MERGE),
        lambda tx: attempts.failed(tx, claim.attempt_id, claim.token, "broken"),
        lambda tx: attempts.release(tx, claim.attempt_id, claim.token),
    ]
    with database.begin() as tx:
        chance.choice(ways)(tx)


def commit(database: Database, chance: random.Random) -> None:
    """All that is merged of a table: most in a snapshot, some dropped."""
    table, snapshot_id = chance.choice(TABLES), chance.randrange(2**60)
    with database.begin() as tx:
        lease = commit_leases.take_commit_lease(tx, table, "c", life=LIFE)
        merged = commits.merged_tasks(tx, table)
    if lease is None:
        return
    dropped = [one.task.id for one in merged if chance.random() < 0.2]
    done = [one.task.id for one in merged if one.task.id not in dropped]
    with database.begin() as tx:
        commits.committed(tx, done, snapshot_id, lease=lease)
        for id in dropped:
            chance.choice([commits.conflicted, commits.wrong])(tx, id, "x", lease=lease)
        commit_leases.end_commit_lease(tx, lease)


def tidy(database: Database, chance: random.Random) -> None:
    """What a person or a clock does."""
    what = chance.randrange(5)
    with database.begin() as tx:
        if what < 2:
            attempts.expire(tx)
        elif what == 2:
            table_queues.map_table(tx, chance.choice(TABLES), chance.choice(QUEUES), NOON)
        elif what == 3:
            seen(tx, chance.choice(TABLES), queue=chance.choice(QUEUES))
        else:
            for leftover in orphaned_outputs.to_clean(tx, grace=LIFE):
                orphaned_outputs.cleaned(tx, leftover.attempt_id)


@pytest.mark.proof
def test_everybody_at_once(database: Database) -> None:
    """Nine threads of them; only late reports are refused, and the books balance."""
    errors: list[str] = []
    done: Counter[str] = Counter()

    def run(what: Any, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(TURNS):
            try:
                what(database, chance)
                done[what.__name__] += 1
            except Refused:
                done["refused"] += 1
            except InvalidInput as error:
                errors.append(f"{what.__name__}: {error}")
            except Exception as error:
                errors.append(f"{what.__name__}: {error!r}")

    roles = [plan_something, plan_something, work, work, work, commit, commit, tidy, tidy]
    threads = [threading.Thread(target=run, args=(what, n)) for n, what in enumerate(roles)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The committers may have been done before anything was merged.
    run(commit, len(roles))
    assert errors == []
    with database.begin() as tx:
        for table in TABLES:
            # What was claimed while its table moved, and waits again, follows at the next look.
            property = tables.table_by_name(tx, table).property_queue
            table_queues.see_table(tx, table, queue=property, level=0, now=NOON)
        tasks = task_store.tasks(tx)
        print(done, Counter(task.state.value for task in tasks))
        for table in TABLES:
            mine = [task for task in tasks if task.table == table and task.state in LIVE]
            paths = [
                (file.path, task.id)
                for task in mine
                for file in task_store.group_of(tx, task.id).files
            ]
            assert dict(paths) == task_store.live_paths(tx, table)
            assert len(paths) == len(dict(paths))
            queue = tables.table_by_name(tx, table).queue
            waiting = (TaskState.PLANNED, TaskState.FAILED)
            assert {task.queue for task in mine if task.state in waiting} <= {queue}
        live = sa.select(compaction_attempts.c.task_id).where(compaction_attempts.c.state == "live")
        assert sorted(tx.execute(live).scalars()) == sorted(
            task.id for task in tasks if task.state is TaskState.CLAIMED
        )
        assert all(task.attempts <= task.max_attempts for task in tasks)
        assert all(task.kind is TaskKind.MINOR for task in tasks)
        # Every move begins where the one before ended, and the last is the state.
        moves = sa.select(compaction_moves).order_by(compaction_moves.c.id)
        states: dict[str, str | None] = {}
        for move in tx.execute(moves):
            assert move.from_state == states.get(move.task_id)
            states[move.task_id] = move.state
        assert states == {task.id: task.state.value for task in tasks}
        # What was committed was recorded once.
        noted = [id for one in tx.execute(sa.select(compaction_records.c.tasks)).scalars()
                 for id in json.loads(one)]  # fmt: skip
        committed = [task.id for task in tasks if task.state is TaskState.COMMITTED]
        assert sorted(noted) == sorted(committed)
        assert committed
        assert len(records.records(tx)) <= len(committed)
