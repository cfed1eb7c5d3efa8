"""A state database on each backend, and clusters whose runs are imagined."""

import math

import pytest

from arctic_orchestration.freshness import lifecycle
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.freshness.imagined import World


@pytest.fixture
def world(state: Database, monkeypatch: pytest.MonkeyPatch) -> World:
    """Clusters over one state database, and a clock that stands until it is set."""
    # On a busy machine a tick would leave the rest of its work to the next one.
    monkeypatch.setattr(lifecycle, "_TICK_SECONDS", math.inf)
    return World(state)
