from collections.abc import Callable, Sequence

import pytest

from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World


@pytest.fixture
def world(database: Database) -> Callable[[Sequence[Schedule]], World]:
    """Makes an engine over a list of events, with these schedules; its first tick is done."""

    def make(schedules: Sequence[Schedule]) -> World:
        made = World(database, schedules)
        made.tick(0)
        return made

    return make
