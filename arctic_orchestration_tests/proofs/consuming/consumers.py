"""Processes that consume partitions, each until it is to stop, or is killed."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.consumers import partition_leases
from arctic_orchestration.errors import DatabaseUnavailable, LeaseLost
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.consuming.sizes import LIFE, WORK_SECONDS
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

ASSET, NAME = "raw/flights", "proof"

_metadata = sa.MetaData()
#: What the work has written, in the transaction of the acknowledgement. Nothing keeps a partition
#: from being there twice but the consumer.
results = sa.Table(
    "results",
    _metadata,
    sa.Column("partition", sa.Text, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
)
#: Whose lease was found to be another one's.
refused = sa.Table("refused", _metadata, sa.Column("owner", sa.Text, nullable=False))


def make_tables(database: Database) -> None:
    """The tables of the work, in the state database."""
    with database.begin() as tx:
        _metadata.create_all(tx)


def consumer_of(home: str, url: str) -> PartitionConsumer:
    """The consumer of this proof, which gives nothing up."""
    return PartitionConsumer(
        ASSET,
        name=NAME,
        lease=LIFE,
        attempts=1_000_000,
        retry_after=timedelta(0),
        instance=DagsterInstance.from_config(home),
        settings=Settings.from_environment({"ARCTIC_DATABASE_URL": url}),
    )


def consume(home: str, url: str, owner: str, stop: str, checks: bool) -> None:
    """Takes, works and acknowledges, until the file ``stop`` is there."""
    end_with_the_parent()
    if not checks:
        # The control: whoever was stopped goes on as if nothing had happened.
        partition_leases.lock_lease = lambda tx, consumer_id, token: 0
        partition_leases.check_number = lambda result, partitions, token: None
    consumer, chance = consumer_of(home, url), random.Random(owner)
    while not os.path.exists(stop):
        try:
            _take(consumer, owner, chance)
        except LeaseLost:
            _note_refusal(url, owner)
        except DatabaseUnavailable:
            continue


def _take(consumer: PartitionConsumer, owner: str, chance: random.Random) -> None:
    block = consumer.consume(limit=chance.randint(1, 4), wait=LIFE / 4, poll=LIFE / 40, owner=owner)
    with block as partitions:
        if not partitions:
            return
        # The work.
        time.sleep(chance.uniform(0, WORK_SECONDS))
        with partitions.acknowledging() as tx:
            rows = [{"partition": one.key, "token": partitions.token} for one in partitions]
            tx.execute(sa.insert(results), rows)


def _note_refusal(url: str, owner: str) -> None:
    database = Database(url)
    with database.begin() as tx:
        tx.execute(sa.insert(refused), {"owner": owner})
    database.close()


@dataclass
class Member:
    """A process of the crew."""

    owner: str
    process: BaseProcess

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


class Crew:
    """Processes of one consumer; killed at the end of the block."""

    def __init__(self, home: str, url: str, directory: Path, *, checks: bool = True) -> None:
        self._home, self._url, self._checks = home, url, checks
        self._stop = directory / "stop"
        self._context = forkserver()
        self._started = 0
        self.members: list[Member] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            # SIGKILL ends a stopped process, too.
            member.process.kill()
            member.process.join()

    def start(self) -> Member:
        """One more."""
        self._started += 1
        owner = f"worker {self._started}"
        process = self._context.Process(
            target=consume, args=(self._home, self._url, owner, str(self._stop), self._checks)
        )
        process.start()
        self.members.append(Member(owner, process))
        return self.members[-1]

    def kill(self, member: Member) -> None:
        """Ends one without a word."""
        member.process.kill()
        member.process.join()
        self.members.remove(member)

    def holder(self, leases: Sequence[Any]) -> tuple[Member, int] | None:
        """A member that has one of these live leases, and its token."""
        for lease in leases:
            for member in self.members:
                if member.owner == lease.owner:
                    return member, lease.token
        return None

    def stop_for_too_long(self, member: Member, until_over: Any) -> None:
        """Stops a process until others have its partitions, or until it cannot be waited for.

        One that is stopped in a transaction may hold what the others wait for.
        """
        os.kill(member.pid, signal.SIGSTOP)
        try:
            with contextlib.suppress(AssertionError):
                until(until_over, "others have its partitions", 2.5 * LIFE.total_seconds())
        finally:
            os.kill(member.pid, signal.SIGCONT)

    def end(self) -> None:
        """Lets all finish what they have, and waits until they have ended."""
        self._stop.touch()
        for member in self.members:
            member.process.join(PATIENCE_SECONDS)
            assert member.process.exitcode == 0, member.process.exitcode
