"""Tasks of a worker that opens the state database itself."""

import time
from collections.abc import Sequence
from datetime import timedelta

from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction import catalog_binding
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts, workers
from arctic_orchestration.compaction.work.attempt import AttemptState, directory_name
from arctic_orchestration.compaction.work.attempts import LEASE
from arctic_orchestration.compaction.work.task_source import (
    Beat,
    ClaimedTask,
    MergedFiles,
    Place,
    Work,
    place_of,
)
from arctic_orchestration.compaction.work.workers import Order, WorkerInfo
from arctic_orchestration.errors import Refused
from arctic_orchestration.state.database import Database


class DatabaseSource:
    """Tasks from the state database.

    Args:
        database: the state database.
        catalog: the catalog of the tables.
        table: only tasks of this table; none: of any.
        life: the duration of a lease.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        *,
        table: str | None = None,
        life: timedelta = LEASE,
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._table = table
        self.life = life
        self._worker: WorkerInfo | None = None
        self._order = Order.RUN

    def start(self, worker: WorkerInfo) -> None:
        catalog_binding.require_same(self._database, self._catalog)
        self._worker = worker
        self._record_heartbeat()

    def claim(self, wait: timedelta | None) -> ClaimedTask | None:  # noqa: ARG002
        assert self._worker is not None
        if self._order is not Order.RUN:
            return None
        requested_at = time.monotonic()
        with self._database.begin() as tx:
            claim = attempts.claim(
                tx, self._worker.queues, self._worker.name, table=self._table, life=self.life,
                worker_id=self._worker.id,
            )  # fmt: skip
        if claim is None:
            return None
        return ClaimedTask(claim=claim, trusted_until=requested_at + self.life.total_seconds())

    def order(self) -> Order:
        return self._order

    def place(self, work: Work) -> Place:
        # The catalog may have moved since the worker began.
        catalog_binding.require_same(self._database, self._catalog)
        found = place_of(self._catalog, work.task.table, directory_name(work.attempt_id))
        with self._database.begin() as tx:
            if not attempts.writes_to(tx, work.attempt_id, work.token, found.directory):
                raise Refused("its lease was over before it began to write")
        return found

    def beat(self, held: Sequence[ClaimedTask]) -> Beat:
        renewed = set()
        for one in held:
            # Not in one transaction: the expiry locks tables before attempts.
            with self._database.begin() as tx:
                if attempts.renew(tx, one.claim.attempt_id, one.claim.token, life=self.life):
                    renewed.add(one.claim.attempt_id)
        self._record_heartbeat()
        with self._database.begin() as tx:
            attempts.expire(tx)
        return Beat(order=self._order, renewed=frozenset(renewed))

    def merged(self, work: Work, done: MergedFiles) -> None:
        with self._database.begin() as tx:
            attempts.merged(
                tx,
                work.attempt_id,
                work.token,
                outputs=done.outputs,
                rows_in=done.rows_in,
                rows_deleted=done.rows_deleted,
                rows_out=done.rows_out,
                way=done.way,
                because=done.because,
                sort_order_id=done.sort_order_id,
            )

    def failed(self, work: Work, reason: str, *, final: bool, bad_files: bool) -> TaskState:
        with self._database.begin() as tx:
            return attempts.failed(
                tx, work.attempt_id, work.token, reason, final=final, bad_files=bad_files
            )

    def release(self, work: Work, reason: str) -> None:
        with self._database.begin() as tx:
            attempts.release(tx, work.attempt_id, work.token, reason=reason)

    def state(self, work: Work) -> AttemptState | None:
        with self._database.read() as tx:
            found = attempt_lookup.attempts_of(tx, work.task.id)
        return next((one.state for one in found if one.id == work.attempt_id), None)

    def interrupt(self) -> None:
        pass

    def end(self) -> None:
        assert self._worker is not None
        with self._database.begin() as tx:
            workers.forget_worker(tx, self._worker.id)

    def _record_heartbeat(self) -> None:
        assert self._worker is not None
        with self._database.begin() as tx:
            self._order = workers.record_heartbeat(tx, self._worker)
