"""Writers that commit late, on Postgres: a consumer gets each partition once, a cursor loses some.

The naive control, a cursor that remembers the largest id it saw, reads in the same loop.

``ARCTIC_PROOF=full`` writes some 20,000 events; by default it is a small version of the same.
"""

import time
from collections import Counter
from collections.abc import Callable

import psycopg2
import pytest
from dagster import DagsterInstance

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.event_log.test_exactly_once import writers
from arctic_orchestration_tests.event_log.writers import late_commit
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.proofs.consuming.consumers import consumer_of
from arctic_orchestration_tests.proofs.consuming.sizes import FULL, WRITERS

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

_SECONDS = 1200 if FULL else PATIENCE_SECONDS


def test_what_is_committed_late_is_delivered_once(
    dagster_instance: Callable[[str], DagsterInstance],
    postgres_server: PostgresServer,
    postgres_database: str,
) -> None:
    """Transactions that are held open, rolled back in part and committed out of their order."""
    instance = dagster_instance("postgres")
    name = instance.event_log_storage.postgres_url.rsplit("/", 1)[1]  # type: ignore[attr-defined]
    dsn, url = postgres_server.dsn(name), postgres_server.url(postgres_database)
    database = Database(url)
    database.upgrade()
    database.close()
    consumer = consumer_of(instance.root_directory, url)
    ours: list[str] = []
    naive: list[str] = []
    largest = 0
    connection = psycopg2.connect(dsn)
    connection.autocommit = True

    def look() -> int:
        """Both look once; how much was new."""
        nonlocal largest
        with consumer.consume(limit=97) as partitions:
            ours.extend(partitions.keys)
            number = len(partitions)
        with connection.cursor() as cursor:
            cursor.execute(
                'select id, "partition" from event_logs where id > %s '
                "and dagster_event_type = 'ASSET_MATERIALIZATION' order by id",
                (largest,),
            )
            for id, partition in cursor.fetchall():
                largest = id
                naive.append(partition)
                number += 1
        return number

    deadline = time.monotonic() + _SECONDS
    with writers(instance.root_directory, dsn, WRITERS) as processes:
        with late_commit(instance, dsn) as later:
            while largest < later:
                assert time.monotonic() < deadline, "the later event was not read"
                look()
        while any(process.is_alive() for process in processes):
            assert time.monotonic() < deadline, "the writers did not end"
            look()
        assert all(process.exitcode == 0 for process in processes)
    quiet = 0
    while quiet < 3:
        quiet = 0 if look() else quiet + 1
    with connection.cursor() as cursor:
        cursor.execute(
            'select "partition" from event_logs '
            "where dagster_event_type = 'ASSET_MATERIALIZATION'"
        )
        truth = [partition for (partition,) in cursor.fetchall()]
    connection.close()
    consumer.close()
    lost = set(truth) - set(naive)
    print(f"{len(truth)} partitions, the consumer lost none, the naive cursor lost {len(lost)}")
    assert Counter(ours) == Counter(truth)
    # One is made above; at full counts the writers make others.
    assert len(lost) > FULL, "the control saw no late commit: this run proves nothing"
