"""Eight processes of one consumer, killed and stopped at random: each partition once, none missing.

The work is a row in the state database, written with the acknowledgement. The control is the same
crew without the look at the lease: a process that was stopped for longer than its lease holds
then writes what others have written already.

``ARCTIC_PROOF=full`` has 5,000 partitions, by default it is a small version of the same.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration.consumers import partition_leases, store
from arctic_orchestration.consumers.progress import Progress, counted
from arctic_orchestration.state.consumer_tables import consumer_leases
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.event_log.writers import entry
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.consuming.consumers import (
    NAME,
    Crew,
    consumer_of,
    make_tables,
    refused,
    results,
)
from arctic_orchestration_tests.proofs.consuming.sizes import KILLS, PARTITIONS, PROCESSES, STOPS

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]


class Scene:
    """What the processes share, as the test sees it."""

    def __init__(self, instance: DagsterInstance, url: str, home: Path) -> None:
        self.instance, self.url, self.home = instance, url, home
        self.database = Database(url)
        self.database.upgrade()
        make_tables(self.database)
        self.arrived: list[str] = []
        consumer_of(instance.root_directory, url).register()

    def arrives(self, number: int) -> None:
        """So many partitions more are materialized, in one transaction."""
        keys = [f"p{len(self.arrived) + n:05}" for n in range(number)]
        storage: Any = self.instance.event_log_storage
        storage.store_event_batch([entry(key) for key in keys])
        self.arrived += keys

    def live(self) -> list[Any]:
        """The leases that are held."""
        with self.database.read() as tx:
            return partition_leases.live_leases(tx, store.by_name(tx, "default", NAME).id)

    def state_of(self, token: int) -> str | None:
        """How a lease stands."""
        with self.database.read() as tx:
            here = consumer_leases.c
            return tx.execute(sa.select(here.state).where(here.token == token)).scalar()

    def progress(self) -> Progress:
        """How far the consumer is."""
        with self.database.read() as tx:
            one = store.by_name(tx, "default", NAME)
            return counted(tx, one.id, database_time(tx))

    def written(self) -> list[str]:
        """What the work has written."""
        with self.database.read() as tx:
            return list(tx.execute(sa.select(results.c.partition)).scalars())

    def refusals(self) -> int:
        """How often a process found that it has lost its lease."""
        with self.database.read() as tx:
            return int(tx.execute(sa.select(sa.func.count()).select_from(refused)).scalar_one())

    def deadlocks(self) -> int:
        """How often Postgres had to end a circle of transactions that waited for each other."""
        if self.database.engine.dialect.name == "sqlite":
            return 0
        query = "select deadlocks from pg_stat_database where datname = current_database()"
        with self.database.read() as tx:
            return int(tx.execute(sa.text(query)).scalar_one())


@pytest.fixture
def scene(
    backend: str,
    dagster_instance: Callable[[str], DagsterInstance],
    database_url: str,
    tmp_path: Path,
) -> Scene:
    """A Dagster instance and a state database, once on each backend."""
    return Scene(dagster_instance(backend), database_url, tmp_path)


def disturb(
    scene: Scene, crew: Crew, chance: random.Random, kills: int, stops: int, partitions: int
) -> int:
    """Kills and stops whoever has partitions, while so many more arrive.

    Returns:
        how many leases were taken over from a process that was stopped.
    """
    steps = ["kill"] * kills + ["stop"] * stops
    chance.shuffle(steps)
    each, taken_over = max(partitions // len(steps), PROCESSES), 0
    for step in steps:
        scene.arrives(each)
        found: list[Any] = []

        def some_lease_is_live(found: list[Any] = found) -> bool:
            found[:] = [crew.holder(scene.live())]
            if found[0] is None and scene.progress().acknowledged == len(scene.arrived):
                # They were faster than this test could look.
                scene.arrives(each)
            return found[0] is not None

        until(some_lease_is_live, "somebody has partitions")
        member, token = found[0]
        if step == "kill":
            crew.kill(member)
            crew.start()
        else:
            crew.stop_for_too_long(member, lambda token=token: scene.state_of(token) != "live")
            taken_over += scene.state_of(token) == "lost"
    return taken_over


def test_each_partition_is_acknowledged_once(scene: Scene) -> None:
    """Whoever dies, whoever is late: what is written is what has arrived."""
    with Crew(scene.instance.root_directory, scene.url, scene.home) as crew:
        for _ in range(PROCESSES):
            crew.start()
        chance = random.Random(1)
        taken_over = disturb(scene, crew, chance, KILLS, STOPS, PARTITIONS)
        while not taken_over:
            # Each of them was stopped in a transaction, which others have to wait for.
            taken_over = disturb(scene, crew, chance, 0, 1, 4)
        until(
            lambda: scene.progress().acknowledged == len(scene.arrived),
            "all are acknowledged",
            PATIENCE_SECONDS * (10 if KILLS > 10 else 1),
        )
        crew.end()
    assert Counter(scene.written()) == Counter(scene.arrived)
    assert scene.progress().caught_up
    assert scene.refusals() >= taken_over
    assert not scene.deadlocks()
    print(f"{len(scene.arrived)} partitions, {taken_over} leases of stopped processes taken over")


@pytest.mark.parametrize("backend", ["postgres"])
def test_without_the_lease_some_are_written_twice(scene: Scene) -> None:
    """The control."""
    with Crew(scene.instance.root_directory, scene.url, scene.home, checks=False) as crew:
        for _ in range(3):
            crew.start()
        taken_over = 0
        while not taken_over:
            taken_over = disturb(scene, crew, random.Random(2), 0, 2, 8)
        until(lambda: scene.progress().caught_up, "nothing is left", PATIENCE_SECONDS * 10)
        crew.end()
    doubled = [key for key, times in Counter(scene.written()).items() if times > 1]
    assert doubled
