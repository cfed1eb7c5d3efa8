"""Leased partitions: the value of a block of ``consume``."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import overload

import sqlalchemy as sa

from arctic_orchestration.consumers import partition_leases
from arctic_orchestration.consumers.partition import ConsumedPartition
from arctic_orchestration.consumers.partition_leases import LeaseResult, Taken
from arctic_orchestration.consumers.store import Time
from arctic_orchestration.errors import InvalidInput, LeaseLost
from arctic_orchestration.leases import Renewal
from arctic_orchestration.state.dialect import database_time

_PUT_BACK = "put back"


class Partitions(Sequence[ConsumedPartition]):
    """New partitions, leased until the block ends; in the order of their arrival.

    The end of the block acknowledges them, except the ones that were put back or failed.
    """

    def __init__(
        self,
        consumer: str,
        taken: Taken | None,
        begin: Callable[[], AbstractContextManager[sa.Connection]],
        renewal: Renewal | None,
        time: Time = database_time,
        *,
        one_by_one: bool = True,
    ) -> None:
        self._consumer = consumer
        self._taken = taken
        self._begin = begin
        self._renewal = renewal
        self._time = time
        self._all = taken.partitions if taken is not None else ()
        #: the exception of a block with several does not determine which one failed
        self._shares_failure = one_by_one and len(self._all) > 1
        self._failed: dict[str, str] = {}
        self._shared: dict[str, str] = {}
        self._put_back: dict[str, str] = {}
        self._result: LeaseResult | None = None
        self._in_transaction = False

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> ConsumedPartition: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ConsumedPartition]: ...
    def __getitem__(self, index: int | slice) -> ConsumedPartition | Sequence[ConsumedPartition]:
        return self._all[index]

    @property
    def keys(self) -> list[str]:
        """The partition keys, in the order of their arrival."""
        return [partition.key for partition in self._all]

    @property
    def token(self) -> int:
        """The fencing token: higher than those of earlier owners; 0: there are no partitions."""
        return self._taken.token if self._taken is not None else 0

    @property
    def result(self) -> LeaseResult | None:
        """The result of the lease; none: not decided yet."""
        return self._result

    def check(self) -> None:
        """Returns while the lease is certainly valid: call it before expensive work.

        Errors:
            LeaseLost: others may own them; the result would be refused.
        """
        if self._renewal is None or self._result is not None or self._in_transaction:
            # In `acknowledging` the lease is locked: it cannot be taken over, however long that
            # lasts, and the renewal also waits for it.
            return
        self._renewal.check()

    def put_back(self, *partitions: ConsumedPartition | str, reason: str = _PUT_BACK) -> None:
        """Puts partitions back at the end of the block, as if they had not been taken.

        Args:
            partitions: the partitions or their keys; none: all of them.
            reason: for people.

        Errors:
            InvalidInput: a partition that is not among these, a reason that is not text, or the
                lease has ended.
        """
        _check_reason(reason)
        for key in self._named(partitions):
            self._failed.pop(key, None)
            self._put_back[key] = reason

    def failed(self, *partitions: ConsumedPartition | str, reason: str) -> None:
        """Fails partitions at the end of the block: each counts an attempt, and rests.

        Args:
            partitions: the partitions or their keys; none: all of them.
            reason: for people.

        Errors:
            InvalidInput: a partition that is not among these, a reason that is not text, or the
                lease has ended.
        """
        _check_reason(reason)
        for key in self._named(partitions):
            self._put_back.pop(key, None)
            self._failed[key] = reason

    @contextmanager
    def acknowledging(self) -> Iterator[sa.Connection]:
        """Acknowledges in the same transaction as the caller's writes to the state database.

        ::

            with consumer.consume() as partitions:
                rows = work(partitions)
                with partitions.acknowledging() as tx:
                    tx.execute(sa.insert(results), rows)

        The writes and the acknowledgement are atomic. Others cannot take over during the
        transaction. An exception rolls both back, and the partitions fail.

        Errors:
            LeaseLost: others have taken over. Nothing was written.
            InvalidInput: the lease has ended already.
        """
        self._open("acknowledging")
        if self._taken is None:
            with self._begin() as tx:
                yield tx
            return
        with self._begin() as tx:
            with self._naming():
                # First, so that nothing in progress is taken over.
                partition_leases.lock_lease(tx, self._taken.consumer_id, self._taken.token)
            self._in_transaction = True
            try:
                yield tx
            finally:
                self._in_transaction = False
            result = self._end_in(tx)
        self._result = result

    def _mark_others(self, reason: str, *, failed: bool) -> None:
        """Fails the unmarked partitions, or puts them back."""
        marked = {*self._failed, *self._put_back}
        others = dict.fromkeys((key for key in self.keys if key not in marked), reason)
        if not failed:
            self._put_back.update(others)
        elif self._shares_failure:
            self._shared.update(others)
        else:
            self._failed.update(others)

    def _end(self) -> None:
        """Acknowledges what is neither put back nor failed, unless the lease has ended."""
        if self._result is not None or self._taken is None:
            return
        with self._begin() as tx:
            result = self._end_in(tx)
        self._result = result

    def _end_in(self, tx: sa.Connection) -> LeaseResult:
        assert self._taken is not None
        with self._naming():
            return partition_leases.end_lease(
                tx,
                self._taken.consumer_id,
                self._taken.token,
                failed=self._failed,
                shared=self._shared,
                put_back=self._put_back,
                time=self._time,
            )

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost as error:
            raise LeaseLost(f"consumer {self._consumer}: {error}") from None

    def _has_ended(self) -> bool:
        """Returns whether a transaction with a lost answer has ended the lease after all."""
        assert self._taken is not None
        with self._begin() as tx:
            return partition_leases.ended_by_its_owner(
                tx, self._taken.consumer_id, self._taken.token
            )

    def _named(self, partitions: Sequence[ConsumedPartition | str]) -> list[str]:
        self._open("partitions")
        keys = [one.key if isinstance(one, ConsumedPartition) else one for one in partitions]
        mine = set(self.keys)
        for key in keys:
            if not isinstance(key, str) or key not in mine:
                expected = "one of those that were taken, or its key"
                raise InvalidInput("partition", key, expected)
        return keys or self.keys

    def _open(self, what: str) -> None:
        if self._result is not None:
            raise InvalidInput(what, str(self._result), "partitions whose lease has not ended")


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str):
        raise InvalidInput("reason", reason, "a text")
