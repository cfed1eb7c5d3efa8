"""The runs that are requested from Dagster, repeatedly until they are seen.

The run key of a request contains submission and attempt, so Dagster creates one run however often
the request is handed out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.run_reconciler import SUBMISSION_TAG
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.state.freshness_tables import is_live, task_submissions

TASK_TAG = "arctic/task"
TOKEN_TAG = ".dagster/arctic_token"

#: Dagster stores all requests of a tick in one row, and creates their runs one by one.
_REQUESTED_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRequest:
    """A run request for Dagster."""

    run_key: str
    submission: str
    task: str
    kind: Literal["asset", "job"]
    #: the asset's key with slashes, or the job's name
    target: str
    tags: Mapping[str, str]


def has_some(tx: sa.Connection, cluster: str, location: str) -> bool:
    """Returns whether an acquired task has a run that was not seen yet; only reads."""
    given = {"cluster_": cluster, "location_": location}
    return tx.execute(_TO_REQUEST.limit(1), given).first() is not None


def hand_out(
    tx: sa.Connection, cluster: str, location: str, outcomes: Outcomes
) -> tuple[list[TaskRequest], dict[str, str]]:
    """Returns the requests of a location's acquired tasks whose run was not seen yet.

    Returns:
        the requests, and why other submissions can have none, by their ids.
    """
    given = {"cluster_": cluster, "location_": location}
    found = [Submission.from_row(row) for row in tx.execute(_TO_REQUEST, given).mappings()]
    requests: list[TaskRequest] = []
    problems: dict[str, str] = {}
    for submission in found:
        try:
            spec = definitions.spec_of(tx, submission.task, cluster, location)
        except InvalidInput as error:
            # Another version wrote it; the other tasks are still requested.
            problems[submission.id] = f"this version cannot read its declaration: {error}"
            continue
        if spec is None:
            problems[submission.id] = "its location does not declare it any more"
            continue
        if submission.next_check_at is None:
            # A value means that the run was requested.
            now, text = outcomes.time(tx), "its run is requested"
            details = {"run_key": submission.run_key, "token": submission.token}
            outcomes.report(tx, submission, Step.REQUESTED, text, now, details)
            submissions.update(tx, submission.id, next_check_at=now)
        requests.append(_request(submission, spec))
    return requests, problems


def _request(submission: Submission, spec: TaskSpec) -> TaskRequest:
    return TaskRequest(
        run_key=submission.run_key,
        submission=submission.id,
        task=submission.task,
        kind=spec.kind,
        target=spec.target,
        tags={
            **spec.tags,
            TASK_TAG: submission.task,
            SUBMISSION_TAG: submission.id,
            TOKEN_TAG: str(submission.token),
            # Retries are runs under a new token; Dagster's own retry would have the old one.
            "dagster/max_retries": "0",
        },
    )


_TO_REQUEST = (
    sa.select(task_submissions)
    .where(
        task_submissions.c.cluster == sa.bindparam("cluster_"),
        task_submissions.c.location == sa.bindparam("location_"),
        is_live,
        task_submissions.c.state == "acquired",
        task_submissions.c.run_id.is_(None),
    )
    .order_by(task_submissions.c.state_at, task_submissions.c.id)
    .limit(_REQUESTED_AT_ONCE)
)
