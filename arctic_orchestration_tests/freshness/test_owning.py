"""Who may make a task: each law of the lease, by a clock that stands."""

import threading
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import Refused
from arctic_orchestration.freshness import ownership
from arctic_orchestration.freshness.ownership import Acquired, Busy, FreshMeanwhile, Owner
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_publications
from arctic_orchestration_tests.freshness.imagined import NOON
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.standing_clock import Clock

HERE = Owner(cluster="east", location="lake", submission="s", run_id="r")
SECOND = timedelta(seconds=1)


class Owners:
    """Owners of the task ``flights``, by their names."""

    def __init__(self, state: Database) -> None:
        self.state, self.clock = state, Clock()

    def acquire(self, owner: str, **how: Any) -> Acquired | FreshMeanwhile | Busy:
        given = {"since": NOON, "time": self.clock, "life": 60 * SECOND, **how}
        with self.state.begin() as tx:
            return ownership.acquire(tx, "flights", owner, HERE, **given)

    def publish(self, owner: str, token: int) -> None:
        with self.state.begin() as tx:
            ownership.publish(tx, "flights", owner, token, time=self.clock)

    def renew(self, owner: str, token: int) -> bool:
        with self.state.begin() as tx:
            return ownership.renew(tx, "flights", owner, token, life=60 * SECOND, time=self.clock)

    def tokens(self) -> list[int]:
        with self.state.read() as tx:
            return list(tx.execute(sa.select(task_publications.c.token)).scalars())


@pytest.fixture
def owners(state: Database) -> Owners:
    return Owners(state)


def test_one_owner_at_a_time_and_each_has_a_higher_token(owners: Owners) -> None:
    """The second learns who has it, and has it at the moment at which the lease is over."""
    assert owners.acquire("ann") == Acquired(token=1, expires_at=NOON + 60 * SECOND)
    busy = owners.acquire("ben")
    assert isinstance(busy, Busy)
    assert (busy.row.owner, busy.row.token) == ("ann", 1)
    owners.clock.passes(seconds=59, milliseconds=999)
    assert isinstance(owners.acquire("ben"), Busy)
    owners.clock.passes(milliseconds=1)
    taken = owners.acquire("ben")
    assert isinstance(taken, Acquired)
    assert taken.token == 2


def test_a_task_that_was_made_meanwhile_is_not_given(owners: Owners) -> None:
    """Exactly at the moment since which it counts; unless what was begun before does not."""
    owners.acquire("ann")
    owners.publish("ann", 1)
    assert isinstance(owners.acquire("ben"), FreshMeanwhile)
    assert isinstance(owners.acquire("ben", since=NOON + SECOND), Acquired)


def test_with_force_it_counts_when_the_success_was_begun(owners: Owners) -> None:
    """Begun before, published after: not what was requested."""
    owners.acquire("ann")
    owners.clock.passes(seconds=10)
    owners.publish("ann", 1)
    since = NOON + 5 * SECOND
    assert isinstance(owners.acquire("ben", since=since), FreshMeanwhile)
    assert isinstance(owners.acquire("ben", since=since, force=True), Acquired)
    owners.publish("ben", 2)
    assert isinstance(owners.acquire("cid", since=since, force=True), FreshMeanwhile)


def test_only_the_owner_with_its_token_renews(owners: Owners) -> None:
    """Also after the lease was over, as long as nobody has taken the task."""
    owners.acquire("ann")
    assert not owners.renew("ben", 1)
    assert not owners.renew("ann", 2)
    owners.clock.passes(seconds=90)
    assert owners.renew("ann", 1)
    owners.clock.passes(seconds=60)
    owners.acquire("ben")
    assert not owners.renew("ann", 1)


@pytest.mark.parametrize(
    ("owner", "token", "after", "message"),
    [
        ("ann", 1, 60, "lost its lease, which was over 0s ago"),
        ("ann", 1, 75, "lost its lease, which was over 15s ago"),
        ("ann", 2, 1, "superseded: run r of cluster east, location lake has it, under token 1"),
        ("ben", 1, 1, "superseded"),
    ],
)
def test_who_is_not_the_owner_publishes_nothing(
    owners: Owners, owner: str, token: int, after: float, message: str
) -> None:
    """With a lease that is over, another token, another name."""
    owners.acquire("ann")
    owners.clock.passes(seconds=after)
    with pytest.raises(Refused, match=message):
        owners.publish(owner, token)
    assert owners.tokens() == []


def test_an_owner_publishes_once(owners: Owners) -> None:
    """And a moment before its lease is over it still may."""
    owners.acquire("ann")
    owners.clock.passes(seconds=59, milliseconds=999)
    owners.publish("ann", 1)
    with pytest.raises(Refused, match="the task was published under token 1"):
        owners.publish("ann", 1)
    assert owners.tokens() == [1]


def test_another_attempt_shuts_out_the_one_before(owners: Owners) -> None:
    """Without anybody else coming in between."""
    owners.acquire("ann-1")
    with owners.state.begin() as tx:
        token = ownership.renew_with_new_token(
            tx, "flights", "ann-1", 1, new_owner="ann-2", life=60 * SECOND, time=owners.clock
        )
    assert token == 2
    assert isinstance(owners.acquire("ben"), Busy)
    with pytest.raises(Refused, match="superseded"):
        owners.publish("ann-1", 1)
    owners.publish("ann-2", 2)


def test_what_is_given_back_is_anybodys(owners: Owners) -> None:
    """But only its owner gives it back."""
    owners.acquire("ann")
    with owners.state.begin() as tx:
        assert not ownership.give_back(tx, "flights", "ben", 1)
        assert ownership.give_back(tx, "flights", "ann", 1)
    with pytest.raises(Refused, match="given back"):
        owners.publish("ann", 1)
    taken = owners.acquire("ben")
    assert isinstance(taken, Acquired)
    assert taken.token == 2


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_take_over_waits_for_a_publication_under_way(owners: Owners) -> None:
    """And then finds the task fresh. On SQLite there is one writer at a time anyway."""
    owners.acquire("ann")
    taken: list[object] = []
    with owners.state.begin() as tx:
        ownership.publish(tx, "flights", "ann", 1, time=owners.clock)
        owners.clock.passes(seconds=120)
        other = threading.Thread(target=lambda: taken.append(owners.acquire("ben")))
        other.start()
        until(lambda: _another_waits(owners.state), "the other one waits")
        assert taken == []
    other.join()
    (found,) = taken
    assert isinstance(found, FreshMeanwhile)
    assert owners.tokens() == [1]


def _another_waits(state: Database) -> bool:
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
    with state.read() as tx:
        return bool(tx.execute(sa.text(query + "and datname = current_database()")).scalar())
