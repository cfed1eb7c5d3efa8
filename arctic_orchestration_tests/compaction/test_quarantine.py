"""The notice of a merge task that is given up."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.attempt import Claim
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations, notices
from arctic_orchestration_tests.compaction.stored import MERGE, NOON, opened, planned, seen
from arctic_orchestration_tests.standing_clock import Clock


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A state database with one task, and three locations of two clusters."""
    with opened(database_url) as made:
        with made.begin() as tx:
            seen(tx, "lake.a")
            offer(tx, "lake.a", [planned("a", "b")], NOON)
            for cluster, name, ticked_at in (
                ("east", "old", NOON - timedelta(days=1)),
                ("west", "new", NOON),
                ("east", "none", None),
            ):
                values = {"cluster": cluster, "name": name, "ticked_at": ticked_at}
                tx.execute(sa.insert(locations).values(values))
        yield made


def claimed(tx: sa.Connection, clock: Clock) -> Claim:
    claim = attempts.claim(tx, [], "w", time=clock)
    assert claim is not None
    return claim


def fail(tx: sa.Connection, clock: Clock) -> None:
    for _ in range(3):
        claim = claimed(tx, clock)
        attempts.failed(tx, claim.attempt_id, claim.token, "no space", time=clock)
        clock.passes(hours=1)


def fail_for_good(tx: sa.Connection, clock: Clock) -> None:
    claim = claimed(tx, clock)
    attempts.failed(tx, claim.attempt_id, claim.token, "format v9", final=True, time=clock)


def lose(tx: sa.Connection, clock: Clock) -> None:
    for _ in range(3):
        claimed(tx, clock)
        clock.passes(minutes=2)
        assert attempts.expire(tx, time=clock) == 1


def merge_wrongly(tx: sa.Connection, clock: Clock) -> None:
    claim = claimed(tx, clock)
    attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
    commits.wrong(tx, claim.task.id, "9 rows too few", time=clock)


@pytest.mark.parametrize(
    ("give_up", "reason"),
    [
        (fail, "given up after 3 of 3 attempts: no space"),
        (fail_for_good, "given up after 1 of 3 attempts: format v9"),
        (lose, "given up after 3 of 3 attempts: attempt 3 of 3 was lost: worker w"),
        (merge_wrongly, "its outputs are wrong: 9 rows too few"),
    ],
)
def test_one_notice_tells_of_it(
    database: Database, give_up: Callable[[sa.Connection, Clock], None], reason: str
) -> None:
    """At the location that ticked last: compaction belongs to all clusters."""
    with database.begin() as tx:
        give_up(tx, Clock())
        (task,) = task_store.tasks(tx, states=[TaskState.QUARANTINED])
        (notice,) = tx.execute(sa.select(notices, locations.c.name).join(locations)).all()
    assert (notice.event, notice.schedule, notice.name) == ("quarantined", "table lake.a", "new")
    assert notice.reason.startswith(reason)
    assert notice.reason.endswith(
        f". Mend the cause, then run: arctic compaction tasks retry {task.id}"
    )
    assert notice.tags == '{"arctic/table": "lake.a"}'


def test_without_a_location_none_is_written(database: Database) -> None:
    """The task is given up all the same, as where only workers and their service run."""
    with database.begin() as tx:
        tx.execute(sa.delete(locations))
        fail_for_good(tx, Clock())
        assert len(task_store.tasks(tx, states=[TaskState.QUARANTINED])) == 1
        assert tx.execute(sa.select(notices)).all() == []
