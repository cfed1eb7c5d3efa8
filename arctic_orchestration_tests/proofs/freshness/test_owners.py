"""Owners that are killed and stopped: none publishes once another one has its task."""

import pytest

from arctic_orchestration.database.engine import Database
from arctic_orchestration_tests.proofs.dagster_processes import until
from arctic_orchestration_tests.proofs.freshness.owners import Owners
from arctic_orchestration_tests.proofs.freshness.sizes import (
    KILLED,
    PUBLICATIONS,
    SECONDS,
    STOPPED,
)

pytestmark = pytest.mark.proof


def test_no_superseded_owner_publishes(state: Database, database_url: str) -> None:
    """Four owners, hours apart by their clocks, two tasks, and somebody who kills and stops."""
    owners = Owners(state, database_url)
    try:
        for number in range(max(STOPPED, KILLED)):
            if number < STOPPED:
                owners.stop_one_until_it_is_superseded()
            if number < KILLED:
                owners.kill_one()
        until(lambda: owners.published() >= PUBLICATIONS, SECONDS, "all publications")
        until(lambda: owners.refused() >= 1, SECONDS, "an owner that was stopped was refused")
    finally:
        owners.end()
    assert owners.superseded() == []


def test_without_the_check_of_the_token_a_superseded_owner_publishes(
    state: Database, database_url: str
) -> None:
    """The control: the same disturbance is noticed, once publications are not checked."""
    owners = Owners(state, database_url, checked=False)
    try:
        for _ in range(200):
            owners.stop_one_until_it_is_superseded()
            if owners.superseded():
                break
    finally:
        owners.end()
    assert owners.superseded() != []
