"""Owners that are killed and stopped: none publishes once another one has its task."""

import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.freshness.owners import MANUAL, REQUESTED, Owners
from arctic_orchestration_tests.proofs.freshness.sizes import KILLED, PUBLICATIONS, STOPPED

pytestmark = pytest.mark.proof
_KINDS = (REQUESTED, MANUAL)


def test_no_superseded_owner_publishes(state: Database, database_url: str) -> None:
    """Four owners, hours apart by their clocks, three tasks, and a process that kills owners.

    Runs that were requested and runs that a person started are disturbed in turn.
    """
    owners = Owners(state, database_url)
    try:
        for number in range(max(STOPPED, KILLED)):
            if number < STOPPED:
                owners.stop_one_until_it_is_superseded(_KINDS[number % 2])
            if number < KILLED:
                owners.kill_one(_KINDS[number % 2])

        def enough() -> bool:
            counts = [owners.published(kind) for kind in _KINDS]
            return sum(counts) >= PUBLICATIONS and min(counts) >= PUBLICATIONS // 4

        until(enough, "all publications, of both kinds")
        for kind in _KINDS:
            # One that was stopped just after its publication is refused nothing.
            for _ in range(20):
                if owners.refused(kind):
                    break
                owners.stop_one_until_it_is_superseded(kind)
            assert owners.refused(kind), f"no owner of the {kind} was refused"
    finally:
        owners.end()
    assert owners.superseded() == []


@pytest.mark.parametrize("kind", _KINDS)
def test_without_the_check_of_the_token_a_superseded_owner_publishes(
    state: Database, database_url: str, kind: str
) -> None:
    """The control: the same disturbance is noticed, once publications are not checked."""
    owners = Owners(state, database_url, checked=False)
    try:
        for _ in range(200):
            owners.stop_one_until_it_is_superseded(kind)
            if owners.superseded():
                break
    finally:
        owners.end()
    assert owners.superseded() != []
