"""The job ``compaction_worker``: a run of it works on the merge tasks of one queue.

Spark starts when there is a first task. The run ends when its queue has been idle for a while. One
that is terminated gives back what it has, and the tasks can be claimed by others at once.
"""

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from arctic_orchestration.code_location.compaction.runs import work_of, worker_name
from arctic_orchestration.compaction.queues import DEFAULT, queue_named
from arctic_orchestration.compaction.worker import What, WorkDone, Worker, WorkerEvent
from arctic_orchestration.database.engine import Database
from arctic_orchestration.lake.spark_resource import LakeSparkResource
from arctic_orchestration.lake.tables import open_catalog
from arctic_orchestration.settings import Settings

JOB = "compaction_worker"
OP = "merge_small_files"
_LOOK_EVERY_SECONDS = 1.0


class CompactionWorkerConfig(dg.Config):
    """Run configuration of ``compaction_worker``."""

    queue: str = Field(default=DEFAULT, description="The compaction queue it works for.")
    parallelism: int = Field(default=2, ge=1, description="How many tasks it has at once.")
    until_idle: float = Field(
        default=60, ge=0, description="It ends when it found nothing to do for so many seconds."
    )


def worker_job(settings: Settings | None, spark: LakeSparkResource) -> dg.JobDefinition:
    """The job; starts nothing before it is run.

    Args:
        settings: none: read from the environment by the run.
        spark: where its session is from.
    """

    @dg.op(name=OP, out=dg.Out(dg.Nothing))
    def merge_small_files(
        context: dg.OpExecutionContext,
        config: CompactionWorkerConfig,
        spark: LazyPySparkResource,
    ) -> None:
        """Claims tasks of the queue and merges their files, until there are none."""
        chosen = settings or Settings.from_environment()
        database = Database.open(chosen.database_url)
        try:
            with database.read() as tx:
                queue_named(tx, config.queue)
            tally = _Tally(context.log)
            if work_came(database, config.queue, config.until_idle):
                tally.done = _merge(context, config, spark, chosen, database, tally)
            context.add_output_metadata(tally.metadata)
        finally:
            database.close()

    @dg.job(
        name=JOB,
        description="Merges small files of lake tables: the tasks of one compaction queue.",
        resource_defs={"spark": spark},
        # The session is of this process, and so is what is to be given back at its end.
        executor_def=dg.in_process_executor,
    )
    def compaction_worker() -> None:
        merge_small_files()

    return compaction_worker


def work_came(database: Database, name: str, until_idle: float) -> bool:
    """Waits until a queue has something to claim, for so many seconds; returns whether it has.

    Errors:
        DatabaseUnavailable: the state database did not answer.
    """
    given_up_at = time.monotonic() + until_idle
    while True:
        with database.read() as tx:
            if work_of(tx)[name].claimable:
                return True
        left = given_up_at - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, _LOOK_EVERY_SECONDS))


def attended(
    worker: Worker,
    until_idle: timedelta,
    events: "queue.Queue[WorkerEvent]",
    hear: Callable[[WorkerEvent], None],
) -> WorkDone:
    """Lets a worker work, and hears in this thread what its threads say.

    Interrupted, as Dagster does with a run that is terminated, the worker gives its tasks back
    before the interruption goes on.

    Errors:
        DatabaseUnavailable: the state database did not answer when it began.
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
                hear(events.get(timeout=_LOOK_EVERY_SECONDS))
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


def _merge(
    context: dg.OpExecutionContext,
    config: CompactionWorkerConfig,
    spark: LazyPySparkResource,
    settings: Settings,
    database: Database,
    tally: "_Tally",
) -> WorkDone:
    from arctic_orchestration.lake.merging.merge import merge

    # In this thread: a session that was there before is only seen from here.
    session = spark.spark_session
    events: queue.Queue[WorkerEvent] = queue.Queue()
    worker = Worker(
        database,
        open_catalog(settings),
        partial(merge, session),
        queues=[config.queue],
        parallelism=config.parallelism,
        name=worker_name(context.run_id),
        cancel=session.sparkContext.cancelAllJobs,
        on_event=events.put,
    )
    return attended(worker, timedelta(seconds=config.until_idle), events, tally.hear)


class _Tally:
    """Logs what happens to tasks, and adds it up."""

    def __init__(self, log: dg.DagsterLogManager) -> None:
        self._log = log
        self.done = WorkDone()
        self._files = 0
        self._bytes = 0

    def hear(self, event: WorkerEvent) -> None:
        """Takes what a worker says."""
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
        """What the output of the run says."""
        return {
            "tasks merged": self.done.of(What.MERGED),
            "files merged": self._files,
            "bytes merged": self._bytes,
            "tasks failed": self.done.of(What.FAILED),
            "tasks lost": self.done.of(What.LOST),
        }
