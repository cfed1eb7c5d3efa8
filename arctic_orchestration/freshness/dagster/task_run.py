"""The context around the run of a task: of an asset, or in the op of a job.

The run of a submission verifies its token before it touches anything. A run that a person started
in Dagster acquires the task for itself, or fails and names the run that owns it. The lease is
renewed while the asset is materialized; the success is published once Dagster has stored the
result.

The newest partition determines the freshness of a task: a run that a person started for other
partitions acquires and publishes nothing.
"""

import time as steady
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cache, partial

import dagster as dg

from arctic_orchestration.errors import LeaseLost, Refused
from arctic_orchestration.freshness import ownership
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.dagster.fresh_parents import OwnedTask, Shown, newest_partition
from arctic_orchestration.freshness.owned_run import Running
from arctic_orchestration.freshness.ownership import LEASE
from arctic_orchestration.freshness.run_reconciler import NOWHERE, SUBMISSION_TAG
from arctic_orchestration.freshness.run_requests import TASK_TAG, TOKEN_TAG
from arctic_orchestration.freshness.run_start import acquired_manually, begun, insist, step_begun
from arctic_orchestration.freshness.status import history_of
from arctic_orchestration.leases import Lease, Renewal
from arctic_orchestration.run_tags import PARENT_TAG, RUN_KEY_TAG
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

Context = dg.AssetExecutionContext | dg.OpExecutionContext


class _Free:
    """The lease of a run that is no task's: it cannot be lost."""

    def check(self) -> None:
        """Always returns."""

    def show(self) -> None:
        """Always returns."""


@contextmanager
def guard(context: Context, spec: TaskSpec) -> Iterator[Shown]:
    """Guards a task while it runs; publishes its success at the end of the block.

    Runs of an ephemeral instance, as those of unit tests, are not guarded and publish nothing.

    Errors:
        dg.Failure: the run does not own the task, or no longer; the text says why. No retry.
    """
    if context.instance.is_ephemeral:
        yield _Free()
        return
    if context.run.tags.get(TASK_TAG) == spec.name:
        with _made(context, spec, _requested(context)) as held:
            yield held
        return
    # The run may belong to another task: to the job that contains this asset.
    with owned_step(context), _made(context, spec, None) as held:
        yield held


@contextmanager
def _made(context: Context, spec: TaskSpec, requested: tuple[str, int] | None) -> Iterator[Shown]:
    database = _state()
    if requested is None and _is_of_another_partition(context, partial(_now, database)):
        context.log.info(
            "task %s: this run is not for its newest partition alone; whatever comes of "
            "it, the task is as fresh as before",
            spec.name,
        )
        yield _Free()
        return
    try:
        with _begun(context, spec, database, requested) as running:
            _report(context, running)
            yield running
            # The day may have ended since the request: the next partition is still to be made.
            running.outdated = partial(_is_of_another_partition, context)
            at = running.publish()
            context.log.info("task %s is published at %s, token %s", spec.name, at, running.token)
    except (Refused, LeaseLost) as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


@contextmanager
def guard_partition(context: dg.AssetExecutionContext, spec: TaskSpec) -> Iterator[Shown]:
    """Like :func:`guard`, for an asset that is materialized one partition at a time.

    Errors:
        dg.Failure: the run has no partition or several; nothing was acquired. Also as ``guard``.
    """
    if _partition_of(context) is None:
        got = "a run without partition"
        if context.op_execution_context.has_partition_key_range:
            keys = context.partition_key_range
            got = f"a run for the partitions {keys.start} to {keys.end}"
        raise dg.Failure(
            description=f"task {spec.name}: got {got}, expected a run for one partition: its rows "
            "take the place of those of this partition; start one run for each",
            allow_retries=False,
        )
    with guard(context, spec) as held:
        yield held


def _partition_of(context: dg.AssetExecutionContext) -> str | None:
    """Returns the one partition of the run of an asset; none: it has none or several."""
    op_context = context.op_execution_context
    if not op_context.has_partition_key and not op_context.has_partition_key_range:
        return None
    keys = context.partition_key_range
    return keys.start if keys.start == keys.end else None


def _is_of_another_partition(context: Context, now: datetime | Callable[[], datetime]) -> bool:
    """Returns whether a run materializes another partition than the one that the task is for.

    ``now`` may be a function that reads it: an asset without partitions does not need it.
    """
    if not isinstance(context, dg.AssetExecutionContext):
        return False
    partitions = context.assets_def.partitions_def
    if partitions is None:
        return False
    newest = newest_partition(partitions, now if isinstance(now, datetime) else insist(now))
    return newest is None or _partition_of(context) != newest


def _now(database: Database) -> datetime:
    with database.read() as tx:
        return database_time(tx)


def _requested(context: Context) -> tuple[str, int] | None:
    """Returns the submission that requested a run, and its token; none: a person started it.

    Runs that a person started get these tags too, for other readers; only the sensor's request sets
    the run key.
    """
    tags = context.run.tags
    submission, token = tags.get(SUBMISSION_TAG, ""), tags.get(TOKEN_TAG, "")
    requested_by = tags.get(RUN_KEY_TAG, "").rpartition("-")[0]
    if not submission or requested_by != submission or not token.isdigit() or PARENT_TAG in tags:
        return None
    return submission, int(token)


def _begun(
    context: Context, spec: TaskSpec, database: Database, requested: tuple[str, int] | None
) -> AbstractContextManager[Running]:
    if requested is not None:
        submission, token = requested
        return begun(
            database,
            task=spec.name,
            submission=submission,
            token=token,
            run_id=context.run.run_id,
        )
    return acquired_manually(
        database,
        task=spec.name,
        cluster=Settings.from_environment().cluster,
        location=location_of(context.run),
        run_id=context.run.run_id,
    )


@contextmanager
def owned_step(context: Context) -> Iterator[OwnedTask]:
    """Guards one step of a requested run of a task; does not publish.

    The step verifies its token first, and renews the lease until it ends; the ticks of the location
    renew it between the steps of a job and after them. In other runs the guard has no effect.

    Errors:
        dg.Failure: another run has taken over the task; the text names it.
    """
    requested = _requested(context)
    if requested is None:
        yield _Free()
        return
    submission, token = requested
    database = _state()
    # The run key is the name of the owner: one attempt of one submission.
    task, owner = context.run.tags[TASK_TAG], context.run.tags[RUN_KEY_TAG]
    requested_at = 0.0

    def renew() -> bool:
        with database.begin() as tx:
            return ownership.renew(tx, task, owner, token, life=LEASE)

    def show() -> str | None:
        nonlocal requested_at
        requested_at = steady.monotonic()
        return step_begun(database, submission=submission, token=token, run_id=context.run.run_id)

    problem = insist(show)
    if problem is not None:
        raise dg.Failure(description=problem, allow_retries=False)
    _logged_history(context, database, submission)
    lease = Lease.taken(owner=owner, token=token, requested_at=requested_at, life=LEASE)
    try:
        with Renewal(lease, renew, life=LEASE, what=f"task {task}, token {token}") as renewal:
            yield renewal
    except LeaseLost as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def _logged_history(context: Context, database: Database, submission: str) -> list[dict[str, str]]:
    """Returns the submission's steps so far, which it writes to the log of its run."""
    history = history_of(database, submission)
    for step in history:
        context.log.info("%s %s: %s", step["at"], step["step"], step["reason"])
    return history


def location_of(run: dg.DagsterRun) -> str:
    """Returns the code location of a run; ``local`` if the run names none."""
    origin = run.remote_job_origin
    return origin.location_name if origin is not None else NOWHERE


def _report(context: Context, running: Running) -> None:
    """Reports the submission, its token and its history on the run and on the asset."""
    submission = running.submission
    tags = {TASK_TAG: submission.task, SUBMISSION_TAG: submission.id, TOKEN_TAG: str(running.token)}
    # The tags identify the run of a submission, even if it materializes other tasks too.
    if _requested(context) is None and any(
        context.run.tags.get(name) != value for name, value in tags.items()
    ):
        # A run of several tasks keeps the tags of the last.
        context.instance.add_run_tags(context.run.run_id, tags)
    history = _logged_history(context, running.database, submission.id)
    if isinstance(context, dg.AssetExecutionContext):
        context.add_asset_metadata(
            {
                "arctic/task": submission.task,
                "arctic/submission": submission.id,
                "arctic/token": running.token,
                "arctic/submitted_by": submission.by,
                "arctic/attempt": submission.attempt,
                "arctic/history": dg.MetadataValue.json(history),
            }
        )


def _state() -> Database:
    """Returns the state database, once it answers."""
    return insist(lambda: _database(Settings.from_environment().database_url))


@cache
def _database(url: str) -> Database:
    """Returns the database of the process: its steps may run in sequence."""
    return Database.open(url, outlives_upgrades=True)
