"""Gathers the facts about a submission for the decision rules."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Protocol

import sqlalchemy as sa

from arctic_orchestration.freshness import definitions, ownership, skip_list, slots, submissions
from arctic_orchestration.freshness.criteria import Parent, TaskSpec
from arctic_orchestration.freshness.decision import LATE, Facts, ParentFacts
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state import dialect
from arctic_orchestration.state.freshness_tables import task_submissions, task_waits


class Assets(Protocol):
    """What a Dagster instance knows of assets that are no tasks."""

    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:
        """Returns the last materialization of each asset; omits assets that have none."""
        ...

    def known(self, assets: Sequence[str]) -> frozenset[str]:
        """Returns the names that are assets of the instance."""
        ...


class _NoAssets:
    # It has no assets at all.
    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:  # noqa: ARG002
        return {}

    def known(self, assets: Sequence[str]) -> frozenset[str]:  # noqa: ARG002
        return frozenset()


#: without a Dagster instance
NO_ASSETS: Assets = _NoAssets()


def facts_of(
    tx: sa.Connection,
    submission: Submission,
    assets: Assets,
    now: datetime,
    *,
    only_look: bool = False,
) -> Facts:
    """Returns the facts about a submission that does not own its task; its row is locked.

    Slots of a batch are counted under a lock, unless ``only_look`` is set.

    Cost: one statement of the state database for a fresh task, else about ten.
    """
    row = ownership.row_of(tx, submission.task)
    shared = submissions.by_id(tx, submission.shares) if submission.shares is not None else None
    if row.is_fresh(submission.required_since, force=submission.force):
        return Facts(submission=submission, spec=None, row=row, shared=shared)
    spec = definitions.spec_of(tx, submission.task, submission.cluster, submission.location)
    if spec is None:
        return Facts(submission=submission, spec=None, row=row, shared=shared)
    names = [submission.task, *(parent.name for parent in spec.parents)]
    skipped = skip_list.reasons(tx, names)
    running = 0
    if spec.concurrency is not None and spec.batch is not None:
        if not only_look:
            definitions.take_turn_in(tx, spec.batch)
        running = slots.running(tx, spec.batch, now, besides=submission.task)
    missed, retrying = _last(tx, submission, row, now)
    return Facts(
        submission=submission,
        spec=spec,
        row=row,
        skipped=skipped.get(submission.task) or spec.skip,
        parents=parents_of(tx, submission, spec, skipped, assets),
        shared=shared,
        missed=missed,
        retrying=retrying,
        running=running,
    )


def parents_of(
    tx: sa.Connection,
    submission: Submission,
    spec: TaskSpec,
    skipped: Mapping[str, str],
    assets: Assets,
) -> list[ParentFacts]:
    """Returns the facts about each parent of a task."""
    if not spec.parents:
        return []
    names = [parent.name for parent in spec.parents]
    rows = ownership.rows_of(tx, names)
    declared = definitions.definitions(tx, names)
    declared_by = definitions.by_task(declared)
    live = submissions.live_of(tx, names)
    others = sorted(set(names) - set(declared_by))
    # Of declarations that only another version of the package can read, the success counts.
    unreadable = definitions.declared(tx, others)
    others = [name for name in others if name not in unreadable]
    made = assets.materialized_at(others) if others else {}
    known = assets.known(others) if others else frozenset()
    place = (submission.cluster, submission.location)
    strangers = set(declared_by) - {
        one.spec.name for one in declared if is_near(one, place, spec.batch)
    }
    together = _placed_together(tx, submission, sorted(strangers))
    # Only waiting submissions have rows of waits.
    waited = _waited_for(tx, submission.id) if submission.state is SubmissionState.WAITING else {}
    # If several places declare the parent, and none is ours: one that was seen lately.
    crowded = len(declared_by) < len(declared)
    seen = definitions.live_locations(tx, submission.submitted_at) if crowded else frozenset()

    # Many parents have few locations.
    @cache
    def seen_at(cluster: str, location: str) -> datetime | None:
        if (cluster, location) == place:
            return None
        registered = definitions.location_of(tx, cluster, location)
        return (registered.ticked_at if registered is not None else None) or submission.submitted_at

    def facts_of_parent(parent: Parent) -> ParentFacts:
        name = parent.name
        places = declared_by.get(name, [])
        is_task = bool(places) or name in unreadable
        ours = _ours(places, place, spec.batch, seen, together.get(name))
        row = rows.get(name)
        before = waited.get(name)
        deciding = [ours] if ours is not None else places
        reasons = [one.spec.skip for one in deciding]
        waits_for = _to_wait_for(live.get(name, []), submission, row)
        maker = waits_for or ours
        ended = before if before is not None and before.state.ended else None
        if ended is not None and ours is not None:
            # One that ended as its task moved away says nothing about the task.
            still = {(one.cluster, one.location) for one in places}
            ended = ended if (ended.cluster, ended.location) in still else None
        return ParentFacts(
            parent=parent,
            last_success_at=(row.last_success_at if row else None) if is_task else made.get(name),
            exists=is_task or name in known or name in made,
            ours=ours,
            # A parent elsewhere counts as skipped if all of its definitions skip it.
            skipped=skipped.get(name) or (reasons[0] if reasons and all(reasons) else None),
            live=waits_for,
            seen_at=seen_at(maker.cluster, maker.location) if maker is not None else None,
            ended=ended,
        )

    return [facts_of_parent(parent) for parent in spec.parents]


def _ours(
    places: Sequence[definitions.Definition],
    place: tuple[str, str],
    batch: str | None,
    seen: Collection[tuple[str, str]],
    together: tuple[str, str] | None,
) -> definitions.Definition | None:
    """Returns the declaration of a parent that its child may submit: of its own location or batch.

    Or the declaration that was submitted ``together`` with its child: it has grown too old since.
    """
    near = [one for one in places if (one.cluster, one.location) == place]
    if not near:
        same = [one for one in places if is_near(one, place, batch)]
        same = [one for one in same if (one.cluster, one.location) in seen] or same
        near = [one for one in same if one.cluster == place[0]] or same
    if not near:
        near = [one for one in places if (one.cluster, one.location) == together]
    return near[0] if near else None


def is_near(one: definitions.Definition, place: tuple[str, str], batch: str | None) -> bool:
    """Returns whether a declaration belongs to a place or to a batch."""
    return (one.cluster, one.location) == place or (batch is not None and one.spec.batch == batch)


def _placed_together(
    tx: sa.Connection, submission: Submission, names: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Returns cluster and location of tasks that were submitted together with another."""
    if not names:
        return {}
    col = task_submissions.c
    query = sa.select(col.task, col.cluster, col.location).where(
        col.group_id == submission.group_id, dialect.among(tx, col.task, names)
    )
    return {row.task: (row.cluster, row.location) for row in tx.execute(query)}


def _to_wait_for(
    live: Sequence[Submission], submission: Submission, row: ownership.TaskRow | None
) -> Submission | None:
    """Returns the live submission of a parent that a submission waits for; none without work."""
    live = [one for one in live if submissions.has_work(one, row)]
    for one in live:
        if one.group_id == submission.group_id:
            return one
    for one in live:
        if (one.cluster, one.location) == (submission.cluster, submission.location):
            return one
    return None


def _waited_for(tx: sa.Connection, id: str) -> dict[str, Submission]:
    """Returns the submissions of parents that a submission was waiting for, by task."""
    query = (
        sa.select(task_submissions)
        .join(task_waits, task_waits.c.parent_submission == task_submissions.c.id)
        .where(task_waits.c.submission == id, task_waits.c.kind == "task")
    )
    return {row["task"]: Submission.from_row(row) for row in tx.execute(query).mappings()}


def _last(
    tx: sa.Connection, submission: Submission, row: ownership.TaskRow, now: datetime
) -> tuple[Submission | None, Submission | None]:
    """Returns the last owner of the task, if its run, or its next run, would be shared.

    Returns:
        the owner, if its run ended since the last check of ``submission``, which was ready (it only
        waited for a slot, or was unchecked); and the owner, if it will be retried soon.
    """
    if row.owner is not None or row.submission is None or row.submission == submission.id:
        return None, None
    last = submissions.by_id(tx, row.submission)
    if last is None:
        return None, None
    if last.state is SubmissionState.RETRYING and last.next_check_at is not None:
        # A submission whose location is away is not waited for.
        return None, last if now <= last.next_check_at + LATE else None
    if last.ended_at is None or last.ended_at <= submission.state_at:
        return None, None
    ready = submission.state is SubmissionState.SUBMITTED
    ready = ready or slots.awaited_by(tx, submission) is not None
    return last if ready else None, None
