"""The engine of a consumer: reads ahead, takes partitions, and ends deliveries."""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.consumers import given_up_partitions, partition_leases, store, working_set
from arctic_orchestration.consumers.leased_partitions import Partitions
from arctic_orchestration.consumers.partition import ConsumedPartition, Where, matcher
from arctic_orchestration.consumers.partition_leases import Taken
from arctic_orchestration.consumers.progress import Progress, counted
from arctic_orchestration.consumers.request import check_request
from arctic_orchestration.consumers.specification import FROM_NOW, ConsumerSpec
from arctic_orchestration.consumers.store import Consumer, Time
from arctic_orchestration.consumers.working_set import Existing
from arctic_orchestration.errors import ArcticError, DatabaseUnavailable, LeaseLost, LogWentBack
from arctic_orchestration.event_log.feed import Feed, Position
from arctic_orchestration.event_log.narrowing import Narrowing
from arctic_orchestration.leases import Lease, Renewal
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.consumer_tables import consumers as consumer_rows
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

_log = logging.getLogger("arctic.consumers")

#: the kind of position of ``events.sqlite_log``; the commands load no Dagster
_SQLITE = "sqlite"
#: how many events one transaction reads and stores
EVENTS_AT_ONCE = 1_000
#: the polling interval while a caller waits for arrivals
POLL = timedelta(seconds=1)
#: the interval at which polls without news are recorded
NOTED_EVERY = timedelta(minutes=1)
#: the interval after which a message is repeated
_RETRY_SECONDS = 1.0
#: the maximum length of an error's text
_LETTERS = 1_000


@dataclass(frozen=True, kw_only=True)
class Taking:
    """Leased partitions, and their lease as the owner may trust it."""

    taken: Taken
    lease: Lease


@dataclass(kw_only=True)
class ConsumerEngine:
    """One consumer with its databases. Threads may share it."""

    spec: ConsumerSpec
    cluster: str
    database: Database
    feed: Feed
    #: looks keys up in Dagster; none: they cannot be deleted there
    existing: Existing | None = None
    #: the source of the time; in tests a fixed clock
    time: Time = database_time
    events_at_once: int = field(default=EVENTS_AT_ONCE)
    #: when a poll without news was last recorded, by ``time.monotonic``
    _noted: float = field(default=float("-inf"), init=False)

    def register(self) -> Consumer:
        """Creates the consumer, if it is missing: this fixes its ``start``.

        Errors:
            InvalidInput: a consumer of this name reads another asset, or has read and ends earlier.
            ConfigurationError: it has read another event log.
            DatabaseUnavailable: a database did not answer.
        """
        storage_id = self.feed.storage_id
        while True:
            with self.database.read() as tx:
                known = store.find(tx, self.cluster, self.spec.name)
            position = None
            if known is None and self.spec.start == FROM_NOW:
                # Read before the consumer exists: arrivals in between are delivered.
                position = self.feed.end().to_json()
            with self.database.begin() as tx:
                now = self.time(tx)
                made = store.register(
                    tx, self.spec, self.cluster, storage_id=storage_id, position=position, now=now
                )
                if known is not None and made is not None and made.until not in (None, known.until):
                    working_set.end_at(tx, made.id, made.until, now)
            if made is not None:
                return made

    def seen(self, tx: sa.Connection) -> Consumer:
        """Returns the consumer's present row."""
        return store.by_name(tx, self.cluster, self.spec.name)

    def read_on(self, *, at_most: int | None = None, though_full: bool = False) -> bool:
        """Reads the event log ahead, to its end or until enough partitions wait.

        Args:
            at_most: the maximum number of reads; none: unlimited.
            though_full: reads even if enough partitions wait.

        Returns:
            whether the log contains more.

        Errors:
            InvalidInput: it was deleted, and created again with another asset.
            ConfigurationError: the consumer has read another event log.
            DatabaseUnavailable: a database did not answer; what was stored stays.
        """
        readings = 0
        while at_most is None or readings < at_most:
            with self.database.read() as tx:
                known = store.find(tx, self.cluster, self.spec.name)
                full = known is not None and not though_full and self._is_full(tx, known)
            if known is None or known.storage_id is None:
                # It was deleted, or reset.
                known = self.register()
            store.check(known, self.spec, self.feed.storage_id)
            if full:
                return True
            readings += 1
            if not self._read(known):
                return False
        return True

    def _is_full(self, tx: sa.Connection, known: Consumer) -> bool:
        # Resting and held partitions cannot be taken: they must not hide later ones.
        return working_set.waiting(tx, known.id, self.time(tx)) >= self.spec.working_set

    def _read(self, known: Consumer) -> bool:
        narrowing = Narrowing(most=self.events_at_once)
        while True:
            try:
                return self._read_once(known, narrowing)
            except DatabaseUnavailable:
                raise
            except Exception as error:
                if not narrowing.narrow(error):
                    raise

    def _read_once(self, known: Consumer, narrowing: Narrowing) -> bool:
        position = None if known.position is None else Position.from_json(known.position)
        try:
            batch = self.feed.read(position, narrowing.limit)
        except LogWentBack as error:
            command = f"arctic consumers reset {known.name} --start"
            raise LogWentBack(error.why, f"{command} from_now, or another start") from error
        moved, at_end = batch.position.to_json(), not batch.more
        if moved == known.position and at_end == known.at_end:
            self._note_look(known)
            return batch.more
        with self.database.begin() as tx:
            now = self.time(tx)
            if not store.moved(tx, known, moved, at_end=at_end, now=now):
                # Another process has read the same meanwhile: continue after its position.
                return True
            events, aside = narrowing.begin(batch.events)
            reader = f"consumer {known.name}"
            unreadable_events.set_aside(tx, known.cluster, reader, aside, now)
            ids_ascend = batch.position.state.get("storage") == _SQLITE
            working_set.take_in(tx, known, events, now, ids_ascend=ids_ascend)
        return batch.more

    def _note_look(self, known: Consumer) -> None:
        """Records polls without news now and then, so that people see when a consumer stops."""
        if time.monotonic() - self._noted < NOTED_EVERY.total_seconds():
            return
        self._noted = time.monotonic()
        col = consumer_rows.c
        with self.database.begin() as tx:
            now = self.time(tx)
            same = (col.id == known.id, col.version == known.version)
            stale = col.read_at <= now - NOTED_EVERY
            tx.execute(sa.update(consumer_rows).where(*same, stale).values(read_at=now))

    def take(
        self,
        *,
        limit: int | None = None,
        where: Where | None = None,
        owner: str | None = None,
        reads: bool = True,
        after: int = 0,
    ) -> Taking | None:
        """Reads ahead, and takes waiting partitions; see :func:`partition_leases.take`.

        Args:
            limit: the maximum number; none: all waiting ones.
            where: a filter; skipped partitions continue to wait.
            owner: the owner's name, for people; none: this process.
            reads: false: only partitions that were already read, and that existed in Dagster then.
            after: only partitions after this place, if all before it were examined.

        Returns:
            none: there is nothing new.
        """
        check_request(limit=limit, where=where, owner=owner)
        wanted = matcher(where)
        more = self.read_on() if reads else False
        taking, seen = self._claim(limit, wanted, owner, after, checks_existing=reads)
        while taking is None and more:
            if wanted is None:
                # All that filled the working set is held, or has left it.
                more, seen = self.read_on(), 0
            else:
                # The filter skips all that fills the working set: it must not hide later ones.
                more = self.read_on(at_most=1, though_full=True)
            taking, seen = self._claim(limit, wanted, owner, after=seen)
        return taking

    def _claim(
        self,
        limit: int | None,
        wanted: Callable[[ConsumedPartition], bool] | None,
        owner: str | None,
        after: int = 0,
        *,
        checks_existing: bool = True,
    ) -> tuple[Taking | None, int]:
        """Returns what was taken after a place, and the place up to which it searched."""
        with self.database.read() as tx:
            known = store.find(tx, self.cluster, self.spec.name)
            if known is None:
                return None, 0
            # Places that are assigned later are searched next.
            seen = known.next_number - 1
            if not partition_leases.may_take(tx, known.id, self.time(tx), after=after):
                return None, seen
        requested_at = time.monotonic()
        with self.database.begin() as tx:
            taken = partition_leases.take(
                tx, known.id, owner or this_process(), life=self.spec.lease, limit=limit,
                wanted=wanted, existing=self.existing, held_for=self.spec.held_for, after=after,
                checks_existing=checks_existing, one_by_one=self.spec.one_by_one, time=self.time,
            )  # fmt: skip
        if taken is None:
            return None, seen
        lease = Lease.taken(
            owner=taken.owner, token=taken.token, requested_at=requested_at, life=self.spec.lease
        )
        return Taking(taken=taken, lease=lease), seen

    @contextmanager
    def consume(
        self,
        *,
        limit: int | None = None,
        where: Where | None = None,
        wait: timedelta | None = None,
        poll: timedelta = POLL,
        owner: str | None = None,
    ) -> Iterator[Partitions]:
        """Leases partitions to a block; see :meth:`PartitionConsumer.consume`."""
        check_request(limit=limit, where=where, wait=wait, poll=poll, owner=owner)
        taking = self._waited_for(limit, where, wait, poll, owner)
        name = self.spec.name
        if taking is None:
            yield Partitions(name, None, self.database.begin, None)
            return
        renewal = Renewal(
            taking.lease,
            lambda: self.renew(taking.taken),
            life=self.spec.lease,
            what=f"the lease of consumer {name} with token {taking.taken.token}",
        )
        partitions = Partitions(
            name, taking.taken, self.database.begin, renewal, self.time,
            one_by_one=self.spec.one_by_one,
        )  # fmt: skip
        with renewal:
            try:
                yield partitions
            except BaseException as error:
                self._give_back(partitions, renewal, error)
                raise
            self._insist(partitions, renewal)

    def renew(self, taken: Taken) -> bool:
        """Renews a lease; false: it was taken over, or has ended."""
        with self.database.begin() as tx:
            return partition_leases.renew(
                tx, taken.consumer_id, taken.token, life=self.spec.lease, time=self.time
            )

    def progress(self) -> Progress:
        """Returns the progress, including events that were not read yet; changes nothing.

        Errors:
            NotFound: it was deleted.
            InvalidInput: it reads another asset.
            ConfigurationError: it has read another event log.
            DatabaseUnavailable: a database did not answer.
        """
        with self.database.read() as tx:
            known = self.seen(tx)
            store.check(known, self.spec, self.feed.storage_id)
            pending = working_set.pending_keys(tx, known.id)
        position = None if known.position is None else Position.from_json(known.position)
        unread: dict[str, datetime] = {}
        more = True
        while more:
            batch = self.feed.read(position, self.events_at_once)
            for event in batch.events:
                if working_set.is_own(known, event) and event.partition not in pending:
                    unread.setdefault(str(event.partition), event.at)
            position, more = batch.position, batch.more
        with self.database.read() as tx:
            return counted(tx, known.id, self.time(tx), unread=unread)

    def check_given_up(self) -> None:
        """Returns if no partition is given up.

        Errors:
            NotFound: it was deleted.
            PartitionsGivenUp: names the given up partitions, and the reasons.
            DatabaseUnavailable: the database did not answer.
        """
        with self.database.read() as tx:
            given_up_partitions.check(tx, self.seen(tx))

    def _waited_for(
        self,
        limit: int | None,
        where: Where | None,
        wait: timedelta | None,
        poll: timedelta,
        owner: str | None,
    ) -> Taking | None:
        give_up_at = time.monotonic() + (wait.total_seconds() if wait is not None else 0)
        while True:
            taking = self.take(limit=limit, where=where, owner=owner)
            left = give_up_at - time.monotonic()
            if taking is not None or left <= 0:
                return taking
            time.sleep(min(poll.total_seconds(), left))

    def _insist(self, partitions: Partitions, renewal: Renewal) -> None:
        """Ends the lease; retries while it may be valid and the database does not answer.

        Errors:
            LeaseLost: others have taken over.
            DatabaseUnavailable: the end could not be recorded; unrecorded partitions come again.
        """
        retried = False
        while True:
            try:
                partitions._end()
                return
            except LeaseLost:
                # Only the answer may have been lost, after a success.
                if retried and partitions._has_ended():
                    return
                raise
            except DatabaseUnavailable as error:
                if not renewal.lease.trusted:
                    raise
                retried = True
                _log.warning("consumer %s: the report is retried: %s", self.spec.name, error)
                time.sleep(_RETRY_SECONDS)

    def _give_back(self, partitions: Partitions, renewal: Renewal, error: BaseException) -> None:
        """Records that a block ended with an exception, which is raised in any case."""
        if partitions.result is not None:
            return
        text = _text_of(error)
        # Partitions that the block has marked stay marked. The end of its process or its run is no
        # fault of the others.
        partitions._mark_others(text, failed=isinstance(error, Exception))
        try:
            self._insist(partitions, renewal)
        except ArcticError as unrecorded:
            # What could not be recorded is delivered again when the lease has expired.
            if not isinstance(error, LeaseLost):
                _log.warning("after %s: %s", text, unrecorded)


def this_process() -> str:
    """Returns the owner name of this process."""
    return f"{socket.gethostname()} pid {os.getpid()}"


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        # An error without text is shown by its name.
        text = ""
    lines = [line.strip() for line in f"{type(error).__name__}: {text}".splitlines()]
    return " ".join(filter(None, lines))[:_LETTERS].removesuffix(":")
