"""The work of a run of ``compaction_worker``: a worker's threads, and the log of their events.

Separate from the definition of the job: it needs pyiceberg and pyarrow, which take longer to import
than everything else, and every process that loads the code location defines the job.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from arctic_orchestration.compaction.dagster.worker_demand import worker_name
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import What, WorkDone, Worker, WorkerEvent
from arctic_orchestration.lake.merging.merge import merge
from arctic_orchestration.lake.merging.sessions import cancel_merges
from arctic_orchestration.lake.spark_resource import pyspark_resource
from arctic_orchestration.lake.tables import open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from arctic_orchestration.compaction.dagster.worker_job import CompactionWorkerConfig

_POLL_SECONDS = 1.0


def attended(
    worker: Worker,
    until_idle: timedelta,
    events: "queue.Queue[WorkerEvent]",
    hear: Callable[[WorkerEvent], None],
) -> WorkDone:
    """Runs a worker, and handles the events of its threads in this thread.

    When Dagster interrupts a terminated run, the worker releases its tasks before the interruption
    goes on.

    Errors:
        DatabaseUnavailable: the state database did not answer at the start.
    """
    ended: list[WorkDone] = []
    problems: list[Exception] = []

    def work() -> None:
        try:
            ended.append(worker.run(until_idle))
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    try:
        while thread.is_alive() or not events.empty():
            try:
                hear(events.get(timeout=_POLL_SECONDS))
            except queue.Empty:
                continue
    except BaseException:
        worker.give_back()
        raise
    finally:
        thread.join()
    if problems:
        raise problems[0]
    return ended[0]


def merge_tasks(
    context: dg.OpExecutionContext,
    config: "CompactionWorkerConfig",
    spark: LazyPySparkResource,
    settings: Settings,
    database: Database,
    tally: "Tally",
) -> WorkDone:
    """Merges tasks of a queue in a Spark session, until the queue is idle.

    Errors:
        DatabaseUnavailable: the state database did not answer at the start.
        ConfigurationError: a property of the application contradicts one that the lake needs.
    """
    events: queue.Queue[WorkerEvent] = queue.Queue()
    with _session(spark, settings, config.application) as session:
        worker = Worker(
            DatabaseSource(database, open_catalog(settings)),
            partial(merge, session),
            queues=[config.queue],
            parallelism=config.parallelism,
            name=worker_name(context.run_id),
            cancel=partial(cancel_merges, session),
            on_event=events.put,
        )
        return attended(worker, timedelta(seconds=config.until_idle), events, tally.hear)


@contextmanager
def _session(
    spark: LazyPySparkResource, settings: Settings, application: Mapping[str, str] | None
) -> "Iterator[SparkSession]":
    """Yields the session of the resource, or that of an application that ends with the run."""
    # In this thread: an existing session is only visible from here.
    if application is None:
        yield spark.spark_session
        return
    master = application.get("spark.master", settings.spark_master)
    own = pyspark_resource(
        replace(settings, spark_master=master, spark_remote=None), application, own=True
    )
    try:
        yield own.spark_session
    finally:
        own.stop()


class Tally:
    """Logs and counts the events of tasks."""

    def __init__(self, log: dg.DagsterLogManager) -> None:
        self._log = log
        self.done = WorkDone()
        self._files = 0
        self._bytes = 0

    def hear(self, event: WorkerEvent) -> None:
        """Handles an event of a worker."""
        text = f"{event.what}: {event.text} (task {event.claim.task.id})"
        if event.what in (What.FAILED, What.LOST):
            self._log.warning(text)
        else:
            self._log.info(text)
        if event.what is What.MERGED:
            self._files += len(event.claim.group.files)
            self._bytes += event.claim.group.bytes

    @property
    def metadata(self) -> dict[str, int]:
        """The metadata of the run's output."""
        return {
            "tasks merged": self.done.of(What.MERGED),
            "files merged": self._files,
            "bytes merged": self._bytes,
            "tasks failed": self.done.of(What.FAILED),
            "tasks lost": self.done.of(What.LOST),
        }
