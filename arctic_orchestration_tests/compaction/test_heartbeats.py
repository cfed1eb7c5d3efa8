"""How often a worker is heard."""

import threading
from datetime import timedelta

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Worker
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import Merging


class FirstWait(threading.Event):
    """Ends with the first wait, and keeps how long that would have been."""

    seconds: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds = timeout
        return True


@pytest.mark.parametrize(("lease", "expected"), [(15, 5.0), (60, 20.0), (3600, 20.0)])
def test_a_worker_is_seen_and_obeys_within_20_seconds(
    state: Database, catalog: Catalog, lease: int, expected: float
) -> None:
    """Also one with long leases: after two minutes without a heartbeat it would not count."""
    source = DatabaseSource(state, catalog, life=timedelta(seconds=lease))
    first = FirstWait()
    Worker(source, Merging())._renew_all(first)
    assert first.seconds == expected
