"""A run for each new partition: requests the runs, and reconciles their ends.

Each partition has its own lease. While its run waits or works, each tick renews the lease; the end
of the run ends the lease. The state between ticks is in the state database: a tick that is
repeated, or in another process, finds the leases of its owner and continues them, and repeats a run
request, under the same key, until Dagster has the run. So each partition's run is requested, and
created once.

A sensor that is renamed, or whose code location is, has another owner name. It takes over the
leases that have expired and have a run: else that run would continue beside the next delivery.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.consumers import partition_leases, store
from arctic_orchestration.consumers.engine import ConsumerEngine
from arctic_orchestration.consumers.partition import ConsumedPartition, Where
from arctic_orchestration.errors import LeaseLost
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.event_log.run_lookup import RunLookup, RunView
from arctic_orchestration.state.consumer_tables import consumer_leases, consumer_partitions

#: Dagster's: the run key of the request of a run.
RUN_KEY_TAG = "dagster/run_key"


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A partition that needs a run.

    Attributes:
        partition: the partition.
        token: the token of its lease.
        run_key: identifies the consumer, the partition, the attempt and this lease: a partition
            that was put back is requested again, and a fresh state database repeats no key.
    """

    partition: ConsumedPartition
    token: int
    run_key: str


@dataclass(frozen=True, kw_only=True)
class Followed:
    """The result of one tick: counts by name, and the requested runs."""

    counts: Counter[str]
    deliveries: Sequence[Delivery]


@dataclass(kw_only=True)
class Follower:
    """Follows a consumer with a run for each partition.

    Attributes:
        engine: the consumer.
        owner: identifies the leases of this follower among those of the consumer.
        runs: the lookup of runs.
        at_once: the maximum number of partitions with a live run.
        where: the filter of partitions.
    """

    engine: ConsumerEngine
    owner: str
    runs: RunLookup
    at_once: int = 10
    where: Where | None = None
    _registered: bool = field(default=False)

    def tick(self) -> Followed:
        """Performs one round: ends leases of ended runs, renews live ones, takes new partitions.

        Errors:
            DatabaseUnavailable: a database did not answer; the next tick continues from there.
        """
        if not self._registered:
            self.engine.register()
            self._registered = True
        counts: Counter[str] = Counter()
        wanted: list[Delivery] = []
        held = self._held()
        keys = [one.run_key for one, _ in held]
        found = self.runs.runs_by_tag(RUN_KEY_TAG, keys) if keys else {}
        going_on: list[tuple[Delivery, bool]] = []
        for one, owner in held:
            runs = [run for run in found.get(one.run_key, ()) if run.submitted]
            if owner != self.owner and not (runs and self._take_over(one, owner)):
                continue
            if (ended := _ended(runs)) is not None:
                self._end(one, ended, counts)
            else:
                going_on.append((one, bool(runs)))
        still = self._renewed([one for one, _ in going_on])
        for one, is_running in going_on:
            if one.token not in still:
                counts["lost"] += 1
            elif is_running:
                counts["running"] += 1
            else:
                wanted.append(one)
        reads, after = True, 0
        room = self.at_once - len(going_on)
        while room > 0:
            taking = self.engine.take(
                limit=1, where=self.where, owner=self.owner, reads=reads, after=after
            )
            if taking is None:
                break
            # What the filter has skipped is not examined again for each that it has not.
            taken, reads, after = taking.taken, False, taking.taken.place
            room -= 1
            wanted.append(_delivery(taken.partitions[0], taken.token, taken.taken_at))
            counts["new"] += 1
        counts["requested"] = len(wanted)
        return Followed(counts=counts, deliveries=wanted)

    def refuse(self, delivery: Delivery, reason: str) -> None:
        """Fails a partition whose run cannot be requested, if this follower still owns it."""
        with contextlib.suppress(LeaseLost):
            self._end_lease(delivery, {delivery.partition.key: reason})

    def _end(self, one: Delivery, run: RunView, counts: Counter[str]) -> None:
        failed = {}
        if run.status is not RunStatus.SUCCESS:
            failed[one.partition.key] = f"run {run.run_id} ended: {run.status.value}"
        try:
            self._end_lease(one, failed)
        except LeaseLost:
            # Another process has taken over since this tick read it.
            counts["lost"] += 1
            return
        counts["failed" if failed else "acknowledged"] += 1

    def _end_lease(self, one: Delivery, failed: Mapping[str, str]) -> None:
        with self.engine.database.begin() as tx:
            id = self.engine.seen(tx).id
            partition_leases.end_lease(tx, id, one.token, failed=failed, time=self.engine.time)

    def _take_over(self, one: Delivery, owner: str) -> bool:
        """Takes over an expired lease of another follower; returns whether it was still there."""
        col = consumer_leases.c
        with self.engine.database.begin() as tx:
            id, now = self.engine.seen(tx).id, self.engine.time(tx)
            these = (col.consumer_id == id, col.token == one.token, col.owner == owner)
            expired = (col.state == partition_leases.LIVE, col.expires_at <= now)
            values = {"owner": self.owner, "expires_at": now + self.engine.spec.lease}
            lease = sa.update(consumer_leases).where(*these, *expired).values(values)
            return tx.execute(lease).rowcount == 1

    def _renewed(self, going_on: Sequence[Delivery]) -> set[int]:
        """Renews the leases of live runs; returns the tokens that this follower still owns."""
        if not going_on:
            return set()
        life, time = self.engine.spec.lease, self.engine.time
        with self.engine.database.begin() as tx:
            id = self.engine.seen(tx).id
            return {
                one.token
                for one in going_on
                if partition_leases.renew(tx, id, one.token, life=life, time=time)
            }

    def _held(self) -> list[tuple[Delivery, str]]:
        """Returns the leases of this follower, and expired ones of a partition, with their owners.

        They are in the order in which they were taken.
        """
        col, leases = consumer_partitions.c, consumer_leases.c
        with self.engine.database.read() as tx:
            known = store.find(tx, self.engine.cluster, self.engine.spec.name)
            if known is None:
                # It was deleted: the next take creates it again.
                return []
            expired = (leases.expires_at <= self.engine.time(tx)) & (leases.partitions == 1)
            query = (
                sa.select(consumer_partitions, leases.taken_at, leases.owner)
                .join(
                    consumer_leases,
                    (leases.consumer_id == col.consumer_id) & (leases.token == col.token),
                )
                .where(
                    leases.consumer_id == known.id,
                    leases.state == partition_leases.LIVE,
                    (leases.owner == self.owner) | expired,
                )
                .order_by(leases.token)
            )
            rows = tx.execute(query).all()
        return [
            (_delivery(ConsumedPartition.from_row(row, known), row.token, row.taken_at), row.owner)
            for row in rows
        ]


def _ended(runs: Sequence[RunView]) -> RunView | None:
    """Returns the run that ends a delivery; none: its partition is still being processed.

    Two daemons on one instance may each have created a run of one request. The partition is done
    when one of them has succeeded, and has failed only when no other one may still succeed.
    """
    for run in runs:
        if run.status is RunStatus.SUCCESS:
            return run
    return runs[0] if runs and all(run.status.ended for run in runs) else None


def _delivery(partition: ConsumedPartition, token: int, taken_at: Any) -> Delivery:
    moment = int(taken_at.timestamp() * 1000)
    return Delivery(
        partition=partition,
        token=token,
        run_key=f"{partition.delivery}:{partition.attempt}:{token}:{moment}",
    )
