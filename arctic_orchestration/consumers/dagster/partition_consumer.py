"""``PartitionConsumer``: the public consumer of partitions."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from arctic_orchestration.consumers.dagster.event_source import (
    AssetLike,
    asset_of,
    check_instance,
    existing_in,
    log_of,
    opened_instance,
)
from arctic_orchestration.consumers.engine import POLL, ConsumerEngine
from arctic_orchestration.consumers.leased_partitions import Partitions
from arctic_orchestration.consumers.partition import Where
from arctic_orchestration.consumers.progress import Progress
from arctic_orchestration.consumers.request import check_request
from arctic_orchestration.consumers.specification import (
    FROM_BEGINNING,
    HELD_FOR,
    ONE_BY_ONE,
    ConsumerSpec,
)
from arctic_orchestration.consumers.working_set import Existing
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    import dagster as dg


class PartitionConsumer:
    """All new partitions of an asset since the last acknowledged delivery, exactly.

    ::

        new_flights = PartitionConsumer("raw/flights", name="daily_report")

        with new_flights.consume(limit=100) as partitions:
            report(partitions.keys)

    A partition is new if it was materialized, or observed from outside of any run, and is not
    acknowledged under this name. The block owns its partitions exclusively. Leaving the block
    acknowledges them. An exception lets them fail, and they are delivered again; after a killed
    process they are delivered again when the lease has expired. Runs and programs with the same
    name share the partitions; each name receives all of them.

    The constructor opens nothing, so it can be called in a module of a code location.
    """

    def __init__(
        self,
        asset: AssetLike,
        *,
        name: str,
        start: str | datetime = FROM_BEGINNING,
        until: datetime | None = None,
        working_set: int = 10_000,
        lease: timedelta = timedelta(seconds=60),
        attempts: int = 3,
        retry_after: timedelta = timedelta(minutes=1),
        retry: str = ONE_BY_ONE,
        held_for: timedelta = HELD_FOR,
        partitions_def: "dg.PartitionsDefinition[Any] | None" = None,
        instance: "dg.DagsterInstance | None" = None,
        settings: Settings | None = None,
    ) -> None:
        """Describes a consumer; opens nothing.

        Args:
            asset: its definition, or its key such as ``raw/flights``.
            name: the name of its position and acknowledgements in this cluster.
            start: where it begins when it is first used or registered: ``from_beginning`` of the
                event log, ``from_now``, or at a moment: with arrivals then or later. Ignored
                afterwards.
            until: arrivals at this moment or later are excluded; none: no end. Two consumers with
                the same moment as ``until`` and ``start`` receive each arrival once.
            working_set: the limit of reading ahead: no further while this many partitions can be
                taken. Partitions that a filter skips count only while others are left.
            lease: how long partitions stay leased to a silent owner. A block renews it.
            attempts: a partition is discarded after this many failures, until a person retries it
                or it arrives again.
            retry_after: how long a partition rests after a failed attempt.
            retry: ``one_by_one``: a failed partition is delivered again in a block of its own, so
                that only the culprit is given up, and a failure of several discards none of them.
                ``together``: in a block with others, each of which loses an attempt when it fails.
            held_for: how long a dynamic partition that arrived is held until it is added in
                Dagster. Then it is discarded, until a person retries it or it arrives again.
            partitions_def: the partitions of the asset, where ``asset`` does not contain them.
                Dynamic partitions that are deleted in Dagster leave the working set.
            instance: the Dagster instance to read; none: that of ``DAGSTER_HOME``.
            settings: the state database and the cluster; none: those of the environment.

        Errors:
            InvalidDefinition: names each invalid value.
            InvalidInput: the asset is none, or has no partitions; or ``partitions_def``,
                ``instance`` or ``settings`` has another type.
        """
        field = f"PartitionConsumer({name})" if isinstance(name, str) else "PartitionConsumer"
        self._asset = asset_of(asset, partitions_def, field)
        if instance is not None:
            check_instance(instance, f"{field}.instance")
        if settings is not None and not isinstance(settings, Settings):
            raise InvalidInput(f"{field}.settings", settings, "Settings")
        form = {
            "name": name, "asset": self._asset.key, "start": start, "until": until,
            "working_set": working_set, "lease": lease, "attempts": attempts,
            "retry_after": retry_after, "retry": retry, "held_for": held_for,
        }  # fmt: skip
        self.spec = ConsumerSpec.parse(form, field=field)
        self._instance = instance
        self._settings = settings
        self._lock = threading.Lock()
        self._engine: ConsumerEngine | None = None
        self._log: DagsterLog | None = None
        self._is_registered = False

    @property
    def name(self) -> str:
        """The name of its state in this cluster."""
        return self.spec.name

    def on(self, instance: "dg.DagsterInstance") -> "PartitionConsumer":
        """Returns the same consumer on a given instance, such as ``context.instance`` of a run.

        Errors:
            InvalidInput: it is not an instance.
        """
        check_instance(instance, f"PartitionConsumer({self.name}).instance")
        other = copy(self)
        other._instance, other._lock = instance, threading.Lock()
        other._engine, other._log, other._is_registered = None, None, False
        return other

    def register(self) -> None:
        """Creates the consumer in the state database, if it is missing: its ``start`` is now.

        The first use does the same.

        Errors:
            InvalidInput: the name belongs to a consumer of another asset, or has read and ends
                earlier.
            ConfigurationError: Dagster's instance or the database cannot be used.
            DatabaseUnavailable: a database did not answer.
        """
        self._opened().register()

    def consume(
        self,
        *,
        limit: int | None = None,
        where: Where | None = None,
        wait: timedelta | None = None,
        poll: timedelta = POLL,
        owner: str | None = None,
    ) -> AbstractContextManager[Partitions]:
        """Leases the new partitions, possibly none, to a block.

        The end of the block acknowledges the partitions. An ``Exception`` lets them fail: this
        counts an attempt, and they rest. ``KeyboardInterrupt``, ``SystemExit`` and the termination
        of a Dagster run put them back, which counts no attempt.

        Args:
            limit: the maximum number of partitions; none: all waiting ones: ``working_set`` and at
                most one read of 1,000 events more. A failed partition comes alone. To receive
                everything new, repeat until there is nothing.
            where: a filter: a glob on the key, keys, or a function of a :class:`ConsumedPartition`,
                which is called while others wait. A skipped partition is not lost: it waits for
                another filter.
            wait: how long to poll when there is nothing; none: not at all.
            poll: the interval of polling.
            owner: who takes them, for people; none: host and process.

        Errors:
            LeaseLost: at the end of the block: others have taken over, since this process was
                stopped or cut off for longer than the lease. Nothing was acknowledged.
            InvalidInput: an argument is invalid; raised at once, and nothing was opened.
            ConfigurationError: Dagster's instance or the database cannot be used.
            DatabaseUnavailable: a database did not answer. Unacknowledged partitions come again.
        """
        check_request(limit=limit, where=where, wait=wait, poll=poll, owner=owner)
        return self._registered().consume(
            limit=limit, where=where, wait=wait, poll=poll, owner=owner
        )

    def progress(self) -> Progress:
        """Returns its progress: partitions done, and partitions left, read or not; and the lag.

        Reads what the working set does not contain yet from the event log: some 30 microseconds an
        event. Changes nothing.

        Errors:
            ConfigurationError: Dagster's instance or the database cannot be used.
            DatabaseUnavailable: a database did not answer.
        """
        engine = self._registered()
        try:
            return engine.progress()
        except NotFound:
            # It was deleted, and starts again.
            engine.register()
            return engine.progress()

    def check_given_up(self) -> None:
        """Returns if no partition is given up: at the end of a run, it lets the run fail.

        Errors:
            PartitionsGivenUp: names the given up partitions, the reasons, and what to do.
            ConfigurationError: Dagster's instance or the database cannot be used.
            DatabaseUnavailable: the database did not answer.
        """
        with suppress(NotFound):
            # A deleted consumer has given up nothing.
            self._registered().check_given_up()

    @property
    def settings(self) -> Settings:
        """The state database and the cluster that it uses."""
        return self._settings or Settings.from_environment()

    def engine_on(
        self, instance: "dg.DagsterInstance", log: DagsterLog, *, in_run: bool = False
    ) -> ConsumerEngine:
        """Returns the engine, not registered yet, on a log that the caller keeps and closes."""
        settings = self.settings
        return ConsumerEngine(
            spec=self.spec,
            cluster=settings.cluster,
            feed=log,
            existing=self.existing_in(lambda: instance),
            database=Database.open(settings.database_url, outlives_upgrades=in_run),
        )

    def existing_in(self, instance: "Callable[[], dg.DagsterInstance]") -> Existing | None:
        """Returns a lookup of an instance's keys; none: they cannot be deleted there."""
        return existing_in(instance, self._asset.partitions)

    def close(self) -> None:
        """Closes the connections; the next use opens them again."""
        with self._lock:
            engine, log, self._engine, self._log = self._engine, self._log, None, None
            self._is_registered = False
        if engine is not None:
            engine.database.close()
        if log is not None:
            log.close()

    def _registered(self) -> ConsumerEngine:
        engine = self._opened()
        if not self._is_registered:
            engine.register()
            self._is_registered = True
        return engine

    def _opened(self) -> ConsumerEngine:
        with self._lock:
            if self._engine is None:
                instance = self._instance or opened_instance()
                self._log = log_of(instance, [self.spec.asset])
                self._engine = self.engine_on(instance, self._log, in_run=True)
            return self._engine
