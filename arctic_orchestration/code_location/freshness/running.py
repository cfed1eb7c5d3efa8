"""What surrounds the making of a task: of an asset, or in the op of a job.

The run of a submission shows its token before anything is touched; one that a person started in
Dagster acquires the task for itself, or fails saying whose run is in the way. The lease is renewed
while the asset is made, and its success is published once Dagster has stored what came of it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import dagster as dg

from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import LeaseLost, Refused
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.requesting import TASK_TAG, TOKEN_TAG
from arctic_orchestration.freshness.running import (
    Running,
    acquired_by_hand,
    begun,
    insist,
    token_problem,
)
from arctic_orchestration.freshness.settling import NOWHERE, SUBMISSION_TAG
from arctic_orchestration.settings import Settings

#: Dagster's: set on a run that was started again from another one, whose tags it has
_PARENT_TAG = "dagster/parent_run_id"

Context = dg.AssetExecutionContext | dg.OpExecutionContext


@contextmanager
def guard(context: Context, spec: TaskSpec) -> Iterator[Running]:
    """The task, for as long as it is made; published at the end of the block.

    Errors:
        dg.Failure: the run is not, or no more, the task's; its text says why. It is not repeated.
    """
    settings = Settings.from_environment()
    database = insist(lambda: _database(settings.database_url))
    try:
        with _begun(context, spec, settings, database) as running:
            _tell(context, running)
            yield running
            at = running.publish()
            context.log.info(f"task {spec.name} is published at {at}, token {running.token}")
    except (Refused, LeaseLost) as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def _begun(
    context: Context, spec: TaskSpec, settings: Settings, database: Database
) -> AbstractContextManager[Running]:
    tags = context.run.tags
    asked_for = tags.get(TASK_TAG) == spec.name and _PARENT_TAG not in tags
    if asked_for and SUBMISSION_TAG in tags and tags.get(TOKEN_TAG, "").isdigit():
        return begun(
            database,
            task=spec.name,
            submission=tags[SUBMISSION_TAG],
            token=int(tags[TOKEN_TAG]),
            run_id=context.run.run_id,
        )
    return acquired_by_hand(
        database,
        task=spec.name,
        cluster=settings.cluster,
        location=location_of(context.run),
        run_id=context.run.run_id,
    )


def show_token(context: Context) -> None:
    """Returns if the run is that of no submission, or still the task's.

    Errors:
        dg.Failure: another one has taken the task over; its text says who.
    """
    tags = context.run.tags
    token, submission = tags.get(TOKEN_TAG, ""), tags.get(SUBMISSION_TAG)
    if submission is None or not token.isdigit() or _PARENT_TAG in tags:
        return
    database = insist(lambda: _database(Settings.from_environment().database_url))
    problem = insist(lambda: token_problem(database, submission, int(token)))
    if problem is not None:
        raise dg.Failure(description=problem, allow_retries=False)


def location_of(run: dg.DagsterRun) -> str:
    """The code location that a run is of; ``local`` for one that none was named for."""
    origin = run.remote_job_origin
    return origin.location_name if origin is not None else NOWHERE


def _tell(context: Context, running: Running) -> None:
    """Says on the run and on the asset which submission this is, its token and its way here."""
    asked = running.asked
    tags = {TASK_TAG: asked.task, SUBMISSION_TAG: asked.id, TOKEN_TAG: str(running.token)}
    if any(context.run.tags.get(name) != value for name, value in tags.items()):
        # A run of several tasks keeps those of the last.
        context.instance.add_run_tags(context.run.run_id, tags)
    history = running.history()
    for step in history:
        context.log.info(f"{step['at']} {step['step']}: {step['reason']}")
    if isinstance(context, dg.AssetExecutionContext):
        context.add_asset_metadata(
            {
                "arctic/submission": asked.id,
                "arctic/token": running.token,
                "arctic/submitted by": asked.by,
                "arctic/attempt": asked.attempt,
                "arctic/history": dg.MetadataValue.json(history),
            }
        )


@cache
def _database(url: str) -> Database:
    """One for the process: its steps may run one after another in it."""
    return Database.open(url)
