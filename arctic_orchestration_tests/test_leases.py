"""Leases as their owners hold them."""

import threading
import time
from datetime import timedelta

import pytest

from arctic_orchestration.errors import DatabaseUnavailable, InvalidInput, LeaseLost
from arctic_orchestration.leases import Lease, Renewal
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until

LIFE = timedelta(milliseconds=300)


def lease(life: timedelta = LIFE) -> Lease:
    """A lease that was requested a moment ago."""
    return Lease.taken(owner="me", token=7, requested_at=time.monotonic(), life=life)


def test_a_lease_is_trusted_from_before_its_request() -> None:
    """The answer may have taken longer than the lease holds."""
    requested_at = time.monotonic()
    assert Lease.taken(
        owner="me", token=1, requested_at=requested_at, life=timedelta(minutes=1)
    ).trusted
    assert not Lease.taken(
        owner="me", token=1, requested_at=requested_at - 60, life=timedelta(minutes=1)
    ).trusted
    again = lease().renewed(requested_at=requested_at, life=timedelta(minutes=1))
    assert (again.token, again.trusted_until) == (7, requested_at + 60)


def test_it_is_renewed_while_the_block_runs_and_not_after_it() -> None:
    """At a third of its life."""
    renewals: list[float] = []

    def renew() -> bool:
        renewals.append(time.monotonic())
        return True

    with Renewal(lease(), renew, life=LIFE) as renewal:
        until(lambda: len(renewals) > 3, "it is renewed")
        assert not renewal.lost.is_set()
        assert renewal.lease.trusted_until > lease().trusted_until - LIFE.total_seconds()
    number = len(renewals)
    assert not renewal.lost.wait(LIFE.total_seconds())
    assert len(renewals) == number


def test_a_lost_lease_is_not_renewed_any_more() -> None:
    """And the owner hears of it at its next look."""
    renewals: list[int] = []

    def renew() -> bool:
        renewals.append(1)
        return False

    with Renewal(lease(), renew, life=LIFE, what="the lease of task a") as renewal:
        assert renewal.lost.wait(PATIENCE_SECONDS)
        with pytest.raises(LeaseLost, match="the lease of task a: another owner has taken over"):
            renewal.check()
    assert renewals == [1]


def test_a_database_that_comes_back_in_time_costs_nothing() -> None:
    """It is asked again, sooner, as long as the lease may be trusted."""
    renewals: list[int] = []
    back = threading.Event()

    def renew() -> bool:
        renewals.append(1)
        if len(renewals) < 4:
            raise DatabaseUnavailable("gone")
        back.set()
        return True

    life = timedelta(seconds=60)
    with Renewal(lease(life), renew, life=timedelta(milliseconds=60)) as renewal:
        assert back.wait(PATIENCE_SECONDS)
        assert not renewal.lost.is_set()


def test_a_database_that_stays_away_ends_the_lease_when_it_is_over() -> None:
    """Whoever was not heard of for so long cannot know that others have not taken over."""

    def renew() -> bool:
        raise DatabaseUnavailable("gone")

    with Renewal(lease(), renew, life=LIFE) as renewal:
        assert renewal.lost.wait(PATIENCE_SECONDS)
        with pytest.raises(LeaseLost, match=r"could not be renewed for the 0.3 s of its life"):
            renewal.check()


def test_an_owner_that_was_stopped_itself_finds_out_at_its_look() -> None:
    """Before the thread beside it has."""
    asking = threading.Event()

    def renew() -> bool:
        asking.wait(PATIENCE_SECONDS)
        return True

    with Renewal(lease(), renew, life=LIFE) as renewal:
        until(lambda: not renewal.lease.trusted, "its time is over")
        with pytest.raises(LeaseLost):
            renewal.check()
        assert renewal.lost.is_set()
        asking.set()


def test_a_life_is_positive() -> None:
    """Else it would be renewed without end."""
    with pytest.raises(InvalidInput, match="life"):
        Renewal(lease(), lambda: True, life=timedelta(0))
