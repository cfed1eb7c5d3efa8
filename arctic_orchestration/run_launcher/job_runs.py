"""The runs that claim a job before they begin."""

from dagster import DagsterRun

from arctic_orchestration.dagster_internals import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG, RUN_KEY_TAG
from arctic_orchestration.run_tags import JOB_TAG


def claims_its_job(run: DagsterRun) -> bool:
    """Returns whether a job requested the run, or Dagster retries a requested run.

    A run that a person launches with copied tags is no attempt of the job. A re-executed run names
    its parent, and Dagster numbers only its own retries; a run launched with the tags of another
    lacks the key of a request.
    """
    job = run.tags.get(JOB_TAG)
    was_requested = run.tags.get(RUN_KEY_TAG, "").startswith(f"{job}-")
    return was_requested and (PARENT_RUN_ID_TAG not in run.tags or is_retry(run))


def is_retry(run: DagsterRun) -> bool:
    """Returns whether Dagster created the run to retry another one."""
    return RETRY_NUMBER_TAG in run.tags
