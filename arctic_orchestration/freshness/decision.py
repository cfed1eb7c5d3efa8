"""The decision about a submission that does not own its task: pure rules over facts and a moment.

The order is that of a task's life: already fresh, skipped, its parents, a slot in its batch, and
last the single statement that decides ownership, which the caller executes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from arctic_orchestration.freshness.criteria import (
    Parent,
    TaskSpec,
    age_in_words,
    is_fresh,
    need_in_words,
    required_since,
)
from arctic_orchestration.freshness.definitions import Definition
from arctic_orchestration.freshness.ownership import TaskRow
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import BAD, Submission, SubmissionState
from arctic_orchestration.quantities import format_age, format_moment

#: The shared failures of another submission's run. A silent run is replaced instead, and so is one
#: that a person started: the sharing submission did not request it.
_SHARED = (SubmissionState.FAILED, SubmissionState.CANCELED)

#: fallback recheck for a submission that is normally woken
_WOKEN = timedelta(minutes=10)
#: the recheck interval of a submission that waits for something imminent
SHORTLY = timedelta(seconds=10)
#: a check that is this late was missed, with the database or the location away
LATE = timedelta(minutes=1)
#: a location without a tick for this long is away
_AWAY = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParentFacts:
    """The facts about one parent."""

    parent: Parent
    #: of a task: published; of another asset: materialized
    last_success_at: datetime | None = None
    #: a location declares it, or it is an asset of this Dagster instance
    exists: bool = True
    #: the declaration by which the child may submit it: of the child's own location or batch, or
    #: the one with which both were submitted together
    ours: Definition | None = None
    #: why it is skipped; none: it is not
    skipped: str | None = None
    #: a live submission that this one may wait for: of the same group or location
    live: Submission | None = None
    #: the ended submission that this one waited for
    ended: Submission | None = None
    #: when the location that runs it was last seen; none: the child's own location
    seen_at: datetime | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.parent.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The facts about a submission when it is checked."""

    submission: Submission
    #: what its location declares; none: nothing any more
    spec: TaskSpec | None
    row: TaskRow
    #: why it is skipped; none: it is not
    skipped: str | None = None
    parents: Sequence[ParentFacts] = ()
    #: the submission with the shared run
    shared: Submission | None = None
    #: a submission whose run ended between two checks: it would have been shared
    missed: Submission | None = None
    #: a failed submission of the task that will be retried soon
    retrying: Submission | None = None
    #: how many other tasks of its batch run, in all clusters
    running: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The decided step of a submission.

    Attributes:
        step: ``ACQUIRED`` requires the statement that decides ownership, ``SHARES`` means that the
            task is running.
        state: the state of the submission after the step.
        reason: for people.
        recheck_at: none: it has ended, or is to be acquired.
        submits: parents to submit for it.
        waits_for: names of parents whose end triggers a recheck, each with the submission that is
            waited for; none: it belongs to others, or is yet to be submitted.
        deadline_at: until when parents elsewhere are waited for.
        roots: parents that cause the failure, without failures reported to its location before.
    """

    step: Step
    state: SubmissionState
    reason: str
    recheck_at: datetime | None = None
    submits: tuple[ParentFacts, ...] = ()
    waits_for: Mapping[str, str | None] = field(default_factory=dict)
    deadline_at: datetime | None = None
    roots: tuple[str, ...] = ()


def decide(facts: Facts, now: datetime) -> Decision:
    """Returns the next step of a submission that does not own its task."""
    submission, row = facts.submission, facts.row
    if row.is_fresh(submission.required_since, force=submission.force):
        return _ended(Step.FRESH, SubmissionState.FRESH, _who_made_it(facts, now))
    if facts.skipped is not None:
        return _ended(Step.SKIPPED, SubmissionState.SKIPPED, f"skipped: {facts.skipped}")
    if facts.spec is None:
        place = f"location {submission.location} of cluster {submission.cluster}"
        text = f"{place} does not declare it any more"
        return _ended(Step.NOT_STARTED, SubmissionState.FAILED, text)
    failed = _shared_failure(facts.shared, submission, row)
    if failed is not None:
        return failed
    found = _parents(facts, facts.spec, now)
    if found is not None:
        return found
    # Before the slot is checked: a running task already has its slot.
    if row.is_held(now):
        return shares(row)
    if facts.retrying is not None:
        return _shares_next_attempt(facts.retrying, now)
    failed = _shared_failure(facts.missed, submission, row)
    if failed is not None:
        return failed
    if facts.spec.concurrency is not None and facts.running >= facts.spec.concurrency:
        return Decision(
            step=Step.WAITS_FOR_PLACE,
            state=SubmissionState.WAITING,
            reason=f"{facts.running} tasks of batch {facts.spec.batch} run, and "
            f"{facts.spec.concurrency} may",
            recheck_at=now + facts.spec.recheck,
        )
    ages = ", ".join(
        f"{one.name} ({age_in_words(one.last_success_at, now)})" for one in facts.parents
    )
    return Decision(
        step=Step.ACQUIRED,
        state=SubmissionState.ACQUIRED,
        reason=f"parents are fresh: {ages}" if ages else "it has no parents",
    )


def shares(row: TaskRow) -> Decision:
    """Returns the decision to share the holder's run, with a recheck when its lease may expire."""
    reason = f"shares {row.holder}"
    if row.submission is not None:
        reason += f" (submission {row.submission}, token {row.token})"
    return Decision(
        step=Step.SHARES,
        state=SubmissionState.SHARING,
        reason=reason,
        recheck_at=row.expires_at,
    )


def _shares_next_attempt(retrying: Submission, now: datetime) -> Decision:
    assert retrying.next_check_at is not None
    at = format_moment(retrying.next_check_at)
    return Decision(
        step=Step.SHARES,
        state=SubmissionState.SHARING,
        reason=f"shares the next attempt of submission {retrying.id} of cluster "
        f"{retrying.cluster}, location {retrying.location}, at {at}",
        recheck_at=max(retrying.next_check_at, now) + SHORTLY,
    )


def edge_since(parent: Parent, spec: TaskSpec, submitted_at: datetime, now: datetime) -> datetime:
    """Returns the earliest success of a parent that is fresh enough for a submission of a task.

    A success after the submission is fresh, however long other parents take.
    """
    return min(required_since(parent.hours, spec.timezone, now), submitted_at)


def _parents(facts: Facts, spec: TaskSpec, now: datetime) -> Decision | None:
    """Returns the decision that the parents require; none: all of them are fresh."""
    submission = facts.submission
    hopeless: list[str] = []
    roots: list[str] = []
    submits: list[ParentFacts] = []
    nearby: dict[str, str | None] = {}
    elsewhere: dict[str, str | None] = {}
    texts: list[str] = []
    for one in facts.parents:
        # Tasks that were submitted together run first, unless they are skipped.
        in_group = one.live is not None and one.live.group_id == submission.group_id
        goes_on = one.live is not None and one.live.state.owns
        since = edge_since(one.parent, spec, submission.submitted_at, now)
        is_skipped = one.skipped is not None and not goes_on
        if is_fresh(one.last_success_at, since) and (is_skipped or not in_group):
            continue
        name_and_age = (
            f"{one.name} ({age_in_words(one.last_success_at, now)}, to be "
            f"{need_in_words(one.parent.hours, spec.timezone)})"
        )
        if not one.exists:
            # Its location may be about to register it for the first time.
            elsewhere[one.name] = None
            texts.append(
                f"{one.name}, which does not exist yet: no location of any cluster declares it, "
                "and it is no asset of this Dagster instance"
            )
        elif is_skipped:
            hopeless.append(f"{name_and_age} is skipped: {one.skipped}")
            roots.append(one.name)
        elif one.live is not None:
            away = _away(one, now)
            (elsewhere if away else nearby)[one.name] = one.live.id
            together = "was submitted together with it, and " if in_group else ""
            if one.live.wanted_by == submission.id:
                together = "was submitted for it, and "
            texts.append(f"{name_and_age}, which {together}is {one.live.state.value}{away}")
        elif one.ended is not None and one.ended.state in BAD and not one.ended.by_hand:
            hopeless.append(f"{name_and_age} {one.ended.state.value}: {one.ended.reason}")
            if (one.ended.cluster, one.ended.location) != (submission.cluster, submission.location):
                roots.append(one.name)
        elif one.ours is not None and submission.submits_parents:
            away = _away(one, now)
            (elsewhere if away else nearby)[one.name] = None
            submits.append(one)
            texts.append(f"{name_and_age}, which is submitted for it{away}")
        else:
            elsewhere[one.name] = None
            texts.append(name_and_age)
    if hopeless:
        return _stale("; ".join(hopeless), roots)
    if not nearby and not elsewhere:
        return None
    deadline = None
    if elsewhere:
        deadline = submission.deadline_at or now + spec.patience
        if now >= deadline:
            waited = format_age(spec.patience)
            text = f"after {waited} still not fresh: {'; '.join(texts)}"
            return _stale(text, elsewhere)
        texts.append(f"until {format_moment(deadline)}")
    # The end of a parent here wakes it; the recheck is for parents elsewhere.
    recheck_at = now + (spec.recheck if elsewhere else max(spec.recheck, _WOKEN))
    return Decision(
        step=Step.WAITS_FOR_PARENTS,
        state=SubmissionState.WAITING,
        reason=f"waits for {'; '.join(texts)}",
        recheck_at=recheck_at if deadline is None else min(recheck_at, deadline),
        submits=tuple(submits),
        waits_for={**nearby, **elsewhere},
        deadline_at=deadline,
    )


def _away(one: ParentFacts, now: datetime) -> str:
    """Returns text about a parent whose location is away, if so: such parents have a deadline."""
    if one.seen_at is None or now - one.seen_at <= _AWAY:
        return ""
    silent = format_age(now - one.seen_at)
    return f" in a location that was not seen for {silent}"


def _stale(reason: str, roots: Iterable[str]) -> Decision:
    return Decision(
        step=Step.STALE_PARENTS, state=SubmissionState.FAILED, reason=reason, roots=tuple(roots)
    )


def _ended(step: Step, state: SubmissionState, reason: str) -> Decision:
    return Decision(step=step, state=state, reason=reason)


def _who_made_it(facts: Facts, now: datetime) -> str:
    row, shared = facts.row, facts.shared
    text = age_in_words(row.last_success_at, now)
    if row.last_success_run is not None:
        text += f" by run {row.last_success_run} of cluster {row.last_success_cluster}"
    if shared is not None and shared.token is not None and shared.token == row.last_token:
        text += f", which it shared with submission {shared.id}"
    return text


def _shared_failure(
    shared: Submission | None, submission: Submission, row: TaskRow
) -> Decision | None:
    """Returns the failure of a submission that shared a failed run; none: it goes on.

    A forced submission goes on if that run was begun before it: its success would not have counted.
    """
    if shared is None or shared.state not in _SHARED or shared.by_hand:
        return None
    if submission.force and (
        row.submission != shared.id
        or row.acquired_at is None
        or row.acquired_at < submission.required_since
    ):
        return None
    text = (
        f"shared {_run_of(shared)} of cluster {shared.cluster}, location {shared.location}, "
        f"which {shared.state.value}: {shared.reason}"
    )
    return _ended(Step.SHARED_FAILURE, SubmissionState.FAILED, text)


def _run_of(shared: Submission) -> str:
    return f"run {shared.run_id}" if shared.run_id else f"the run of submission {shared.id}"
