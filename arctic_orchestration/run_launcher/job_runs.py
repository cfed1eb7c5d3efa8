"""Which runs claim a job before they begin."""

from dagster import DagsterRun
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG

from arctic_orchestration.scheduling.runs import JOB_TAG


def claims_its_job(run: DagsterRun) -> bool:
    """Whether a job asked for the run, or Dagster retries a run that a job asked for.

    A run that a person executes again carries the tags of the first one, and is nobody's attempt:
    Dagster numbers only the retries it makes itself.
    """
    return JOB_TAG in run.tags and (PARENT_RUN_ID_TAG not in run.tags or is_retry(run))


def is_retry(run: DagsterRun) -> bool:
    """Whether Dagster made the run to retry another one."""
    return RETRY_NUMBER_TAG in run.tags
