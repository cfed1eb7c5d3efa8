"""What a submission waits for, as rows: the end of any of them wakes it."""

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.freshness.decision import Decision
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.freshness_tables import task_waits


def note(
    tx: sa.Connection,
    submission: Submission,
    decision: Decision,
    made: Mapping[str, str],
    now: datetime,
) -> bool:
    """Records what a submission waits for, from a decision.

    Args:
        tx: the transaction.
        submission: the submission, locked.
        decision: the decision to wait.
        made: submissions that were created for it, by their task.
        now: the moment.

    Returns:
        whether the waits changed.
    """
    mine = task_waits.c.submission == submission.id
    known = {}
    if submission.state is SubmissionState.WAITING:
        found = tx.execute(sa.select(task_waits).where(mine))
        known = {(row.kind, row.name): row for row in found}
    wanted: dict[tuple[str, str], str | None] = {}
    if decision.step is Step.WAITS_FOR_PLACE:
        wanted["batch", submission.batch or ""] = None
    else:
        for name, live in decision.waits_for.items():
            wanted["task", name] = made.get(name) or live
    if {key: row.parent_submission for key, row in known.items()} == wanted:
        return False
    if known:
        tx.execute(sa.delete(task_waits).where(mine))
    rows = [
        {
            "submission": submission.id,
            "kind": kind,
            "name": name,
            "parent_submission": parent,
            "since": known[(kind, name)].since if (kind, name) in known else now,
        }
        for (kind, name), parent in wanted.items()
    ]
    tx.execute(sa.insert(task_waits), rows)
    return True
