"""The job ``compaction_worker``: a run of it works on the merge tasks of one queue.

Spark starts with the first task, or at once where the queue keeps workers without tasks. The run
ends after its queue was idle for a while. A terminated run releases its tasks, and other workers
can claim them at once.
"""

import time
from contextlib import closing

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from arctic_orchestration.compaction.dagster.worker_demand import work_of
from arctic_orchestration.compaction.queue.queues import DEFAULT, queue_by_name
from arctic_orchestration.lake.spark_resource import LakeSparkResource
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

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
    starts_spark: bool = Field(
        default=False, description="Whether it starts Spark before there is a task."
    )
    application: dict[str, str] | None = Field(
        default=None,
        description="It starts a Spark application of its own, with these properties; none: it "
        "uses the session of the resource.",
    )


def worker_job(settings: Settings | None, spark: LakeSparkResource) -> dg.JobDefinition:
    """Returns the job; starts nothing before it is run.

    Args:
        settings: none: the run reads them from the environment.
        spark: the source of its session.
    """

    @dg.op(name=OP, out=dg.Out(dg.Nothing))
    def merge_small_files(
        context: dg.OpExecutionContext,
        config: CompactionWorkerConfig,
        spark: LazyPySparkResource,
    ) -> None:
        """Claims tasks of the queue and merges their files, until there are none."""
        from arctic_orchestration.compaction.dagster.worker_run import Tally, merge_tasks

        chosen = settings or Settings.from_environment()
        with closing(Database.open(chosen.database_url, outlives_upgrades=True)) as database:
            with database.read() as tx:
                queue_by_name(tx, config.queue)
            tally = Tally(context.log)
            if config.starts_spark or work_came(database, config.queue, config.until_idle):
                tally.done = merge_tasks(context, config, spark, chosen, database, tally)
            context.add_output_metadata(tally.metadata)

    @dg.job(
        name=JOB,
        description="Merges small files of lake tables: the tasks of one compaction queue.",
        resource_defs={"spark": spark},
        # The session belongs to this process, and so do the tasks to release at its end.
        executor_def=dg.in_process_executor,
    )
    def compaction_worker() -> None:
        merge_small_files()

    return compaction_worker


def work_came(database: Database, name: str, until_idle: float) -> bool:
    """Waits this many seconds for a claimable task of a queue; returns whether there is one.

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
