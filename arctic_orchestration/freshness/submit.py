"""`submit_tasks`: submits tasks from code, such as a schedule, a notebook or a test."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database


def submit_tasks(
    names: Sequence[str], *, by: str, settings: Settings | None = None, **options: Any
) -> list[Submission]:
    """Requests that tasks be brought up to date, all of them or none, in one transaction.

    Args:
        names: tasks, or batches, which stand for all of their tasks.
        by: who submits, for the history.
        settings: none: read from the environment.
        options: ``location``, ``force``, ``freshness_hours``, ``only`` and ``with_parents`` of
            :func:`~arctic_orchestration.freshness.submissions.submit`.

    Errors:
        ConfigurationError: there is no state database, or it has another schema.
        NotFound: no location of any cluster declares a name.
        InvalidInput: options that contradict each other; see ``submissions.submit``.
    """
    read = settings or Settings.from_environment()
    with closing(Database.open(read.database_url)) as database, database.begin() as tx:
        return submissions.submit(tx, names, cluster=read.cluster, by=by, **options)
