"""``PartitionConsumer``: what users have in their hands."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
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

_SPEC = ConsumerSpec.model_fields


class PartitionConsumer:
    """Everything new of a partitioned asset since one last looked, exactly.

    ::

        new_flights = PartitionConsumer("raw/flights", name="daily_report")

        with new_flights.consume(limit=100) as partitions:
            report(partitions.keys)

    What is new is what was materialized, or observed from outside of any run, and not
    acknowledged by this name. The partitions are nobody else's while the block runs. Leaving it
    acknowledges them; an exception lets them fail, and they come again; when the process is
    killed, they come again once the lease is over. Runs and programs that use one name share the
    partitions among them; each name gets all of them.

    To make one opens nothing, so that it can stand in a module of a code location.
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
        """Describes a consumer; nothing is opened.

        Args:
            asset: its definition, or its key such as ``raw/flights``.
            name: under which is kept what was read and acknowledged, in this cluster.
            start: where it begins when it is used, or registered, for the first time:
                ``from_beginning`` of the event log, ``from_now``, or a moment: with what arrived
                then or later. After that it goes on, whatever stands here.
            until: what arrived at this moment or later is not its own; none: it never ends. Two
                consumers with one moment as ``until`` and ``start`` have each arrival once.
            working_set: how far reading goes ahead: not further while so many partitions can be
                taken. What a filter passes over counts only as long as others are left.
            lease: how long partitions stay somebody's who has fallen silent. A block renews it.
            attempts: after so many that failed a partition is discarded, until a person or a new
                arrival says otherwise.
            retry_after: how long a partition rests after an attempt that failed.
            retry: ``one_by_one``: a partition that failed comes again in a block of its own, so
                that only the one to blame is given up, and a block that fails with several
                discards none of them. ``together``: in a block with others, each of which has an
                attempt less when it fails.
            held_for: how long a dynamic partition that arrived is held until it is added in
                Dagster. After that it is discarded, until a person or a new arrival says otherwise.
            partitions_def: how the asset is partitioned, where ``asset`` does not say it. Of
                dynamic partitions, those that are deleted in Dagster leave the working set.
            instance: the Dagster instance that is read; none: the one of ``DAGSTER_HOME``.
            settings: the state database and the cluster; none: those of the environment.

        Errors:
            InvalidDefinition: names each value that cannot be used.
            InvalidInput: the asset is none, or has no partitions; or ``partitions_def``,
                ``instance`` or ``settings`` are of another kind.
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
        """Under which all is kept."""
        return self.spec.name

    def on(self, instance: "dg.DagsterInstance") -> "PartitionConsumer":
        """The same consumer on an instance that one has, as ``context.instance`` of a run.

        Errors:
            InvalidInput: it is none.
        """
        check_instance(instance, f"PartitionConsumer({self.name}).instance")
        other = copy(self)
        other._instance, other._lock = instance, threading.Lock()
        other._engine, other._log, other._is_registered = None, None, False
        return other

    def register(self) -> None:
        """Makes the consumer in the state database, if it is not there: its ``start`` is now.

        The first use does the same.

        Errors:
            InvalidInput: one of this name reads another asset, or has read and ends earlier.
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
        """Takes what is new for a block, exclusively; there may be nothing.

        At the end of the block the partitions are acknowledged. An ``Exception`` lets them fail:
        an attempt, after which they rest. ``KeyboardInterrupt``, ``SystemExit`` and the end of a
        Dagster run that is terminated put them back, which counts as nothing.

        Args:
            limit: at most so many partitions; none: all that wait, which is ``working_set`` and at
                most one reading of 1,000 events more. What has failed comes alone. To have all
                that is new, take until there is nothing.
            where: which ones: a glob on the key, keys, or a function of a
                :class:`ConsumedPartition`, which is called while others wait. What it passes over
                is not lost: it waits for another filter.
            wait: for how long to look again when there is nothing; none: not at all.
            poll: how often.
            owner: who takes them, for people; none: host and process.

        Errors:
            LeaseLost: at the end of the block: others have taken over, since this process was
                stopped or cut off for longer than the lease. Nothing was acknowledged.
            InvalidInput: an argument cannot be used; at once, and nothing was opened.
            ConfigurationError: Dagster's instance or the database cannot be used.
            DatabaseUnavailable: a database did not answer. What was not acknowledged comes again.
        """
        check_request(limit=limit, where=where, wait=wait, poll=poll, owner=owner)
        return self._registered().consume(
            limit=limit, where=where, wait=wait, poll=poll, owner=owner
        )

    def progress(self) -> Progress:
        """How far it is: partitions that are done, and that are left, read or not; and the lag.

        Reads what the working set does not have yet from the event log: some 30 microseconds an
        event. Changes nothing.

        Errors:
            ConfigurationError: Dagster's instance or the database cannot be used.
            DatabaseUnavailable: a database did not answer.
        """
        engine = self._registered()
        try:
            return engine.progress()
        except NotFound:
            # It was deleted, and begins anew.
            engine.register()
            return engine.progress()

    def check_given_up(self) -> None:
        """Returns while no partition is given up: at the end of a run, to let the run fail.

        Errors:
            PartitionsGivenUp: names those that are, why, and what to do.
            ConfigurationError: Dagster's instance or the database cannot be used.
            DatabaseUnavailable: the database did not answer.
        """
        self._registered().check_given_up()

    @property
    def settings(self) -> Settings:
        """The state database and the cluster that it uses."""
        return self._settings or Settings.from_environment()

    def engine_on(self, instance: "dg.DagsterInstance", log: DagsterLog) -> ConsumerEngine:
        """What does the work, not registered yet, on a log that the caller keeps and closes."""
        settings = self.settings
        return ConsumerEngine(
            spec=self.spec,
            cluster=settings.cluster,
            feed=log,
            existing=self.existing_in(lambda: instance),
            database=Database.open(settings.database_url),
        )

    def existing_in(self, instance: "Callable[[], dg.DagsterInstance]") -> Existing | None:
        """What says which keys an instance has; none: they cannot be deleted there."""
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
                self._engine = self.engine_on(instance, self._log)
            return self._engine
