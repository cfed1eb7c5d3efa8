"""What is to be done about a submission that nobody makes yet: pure rules over facts and a moment.

The order is that of a task's life: fresh already, skipped, its parents, a place in its batch, and
at last the one statement that decides whose it is, which is not asked here.
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
from arctic_orchestration.quantities import format_duration, format_moment

#: The failures of another's run that are shared. One that fell silent is made up for instead, and
#: so is one that a person started: whoever shared it did not ask for that.
_SHARED = (SubmissionState.FAILED, SubmissionState.CANCELED)

#: after so long who is to be woken looks by itself
_WOKEN = timedelta(minutes=10)
#: who waits for something that is about to happen looks again after so long
SHORTLY = timedelta(seconds=10)
#: a look that is so late was missed, with the database or the location away
LATE = timedelta(minutes=1)
#: a location that has not ticked for so long is away
_AWAY = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParentFacts:
    """What is known of one parent."""

    parent: Parent
    #: of a task when it was published, of another asset when it was materialized
    last_success_at: datetime | None = None
    #: some location declares it, or it is an asset of this Dagster instance
    exists: bool = True
    #: by which it is submitted for its child: of the child's own location or batch, or the one by
    #: which it was submitted together with it
    ours: Definition | None = None
    #: why it is not to be made; none: it may be
    skipped: str | None = None
    #: a submission of it that this one may wait for: of the same group or location
    live: Submission | None = None
    #: the submission of it that this one waited for, if that has ended
    ended: Submission | None = None
    #: when the location that is to make it was seen last; none: it is the child's own
    seen_at: datetime | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.parent.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known when a submission is looked at."""

    submission: Submission
    #: what its location declares; none: nothing any more
    spec: TaskSpec | None
    row: TaskRow
    #: why it is not to be made; none: it may be
    skipped: str | None = None
    parents: Sequence[ParentFacts] = ()
    #: the submission whose run it shares
    shared: Submission | None = None
    #: a submission whose run ended between two looks: it would have been shared
    missed: Submission | None = None
    #: a submission of the task that failed, and is about to be tried again
    retrying: Submission | None = None
    #: how many other tasks of its batch are being made, in all clusters
    running: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What is to be done.

    Attributes:
        step: ``ACQUIRED`` means that the one statement is to be asked, ``SHARES`` that the task is
            being made.
        state: where the submission then stands.
        reason: for people.
        recheck_at: none: it has ended, or is to be acquired.
        submits: parents that are to be submitted for it.
        waits_for: names of parents, whose end lets it be looked at again, with the submission of
            each that is waited for; none: it is another's, or yet to be submitted.
        deadline_at: until when parents elsewhere are waited for.
        roots: parents by which it fails, without those whose own failure its location was told of.
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
    """The next step of a submission that does not own its task."""
    asked, row = facts.submission, facts.row
    if row.is_fresh(asked.required_since, force=asked.force):
        return _ended(Step.FRESH, SubmissionState.FRESH, _who_made_it(facts, now))
    if facts.skipped is not None:
        return _ended(Step.SKIPPED, SubmissionState.SKIPPED, f"skipped: {facts.skipped}")
    if facts.spec is None:
        text = f"location {asked.location} of cluster {asked.cluster} does not declare it any more"
        return _ended(Step.NOT_STARTED, SubmissionState.FAILED, text)
    failed = _shared_failure(facts.shared, asked, row)
    if failed is not None:
        return failed
    found = _parents(facts, facts.spec, now)
    if found is not None:
        return found
    # Before a place is asked for: what is being made has its place already.
    if row.is_held(now):
        return shares(row)
    if facts.retrying is not None:
        return _shares_next_attempt(facts.retrying, now)
    failed = _shared_failure(facts.missed, asked, row)
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
    told = ", ".join(
        f"{one.name} ({age_in_words(one.last_success_at, now)})" for one in facts.parents
    )
    return Decision(
        step=Step.ACQUIRED,
        state=SubmissionState.ACQUIRED,
        reason=f"parents are fresh: {told}" if told else "it has no parents",
    )


def shares(row: TaskRow) -> Decision:
    """That the run of the task's holder is shared; looked at again when its lease may be over."""
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


def edge_since(parent: Parent, spec: TaskSpec, asked_at: datetime, now: datetime) -> datetime:
    """The moment since which a parent's success is fresh enough for a submission of a task.

    What was made since the task was submitted is fresh, however long other parents take.
    """
    return min(required_since(parent.hours, spec.timezone, now), asked_at)


def _parents(facts: Facts, spec: TaskSpec, now: datetime) -> Decision | None:
    """What the parents ask for; none: all of them are fresh."""
    asked = facts.submission
    hopeless: list[str] = []
    roots: list[str] = []
    submits: list[ParentFacts] = []
    here: dict[str, str | None] = {}
    elsewhere: dict[str, str | None] = {}
    texts: list[str] = []
    for one in facts.parents:
        # What was submitted together is made first, unless it is not to be made at all.
        in_group = one.live is not None and one.live.group_id == asked.group_id
        goes_on = one.live is not None and one.live.state.owns
        since = edge_since(one.parent, spec, asked.submitted_at, now)
        is_skipped = one.skipped is not None and not goes_on
        if is_fresh(one.last_success_at, since) and (is_skipped or not in_group):
            continue
        told = (
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
            hopeless.append(f"{told} is skipped: {one.skipped}")
            roots.append(one.name)
        elif one.live is not None:
            away = _away(one, now)
            (elsewhere if away else here)[one.name] = one.live.id
            together = "was submitted together with it, and " if in_group else ""
            if one.live.wanted_by == asked.id:
                together = "was submitted for it, and "
            texts.append(f"{told}, which {together}is {one.live.state.value}{away}")
        elif one.ended is not None and one.ended.state in BAD and not one.ended.by_hand:
            hopeless.append(f"{told} {one.ended.state.value}: {one.ended.reason}")
            if (one.ended.cluster, one.ended.location) != (asked.cluster, asked.location):
                roots.append(one.name)
        elif one.ours is not None and asked.submits_parents:
            away = _away(one, now)
            (elsewhere if away else here)[one.name] = None
            submits.append(one)
            texts.append(f"{told}, which is submitted for it{away}")
        else:
            elsewhere[one.name] = None
            texts.append(told)
    if hopeless:
        return _stale("; ".join(hopeless), roots)
    if not here and not elsewhere:
        return None
    deadline = None
    if elsewhere:
        deadline = _deadline(asked, spec, now)
        if now >= deadline:
            waited = format_duration(_to_the_second(spec.patience))
            text = f"after {waited} still not fresh: {'; '.join(texts)}"
            return _stale(text, elsewhere)
        texts.append(f"until {format_moment(deadline)}")
    # What is made here wakes it; to look by itself is for what others make.
    again = now + (spec.recheck if elsewhere else max(spec.recheck, _WOKEN))
    return Decision(
        step=Step.WAITS_FOR_PARENTS,
        state=SubmissionState.WAITING,
        reason=f"waits for {'; '.join(texts)}",
        recheck_at=again if deadline is None else min(again, deadline),
        submits=tuple(submits),
        waits_for={**here, **elsewhere},
        deadline_at=deadline,
    )


def _away(one: ParentFacts, now: datetime) -> str:
    """That nobody is there who could make a parent, if so: such are not waited for without end."""
    if one.seen_at is None or now - one.seen_at <= _AWAY:
        return ""
    silent = format_duration(_to_the_second(now - one.seen_at))
    return f" in a location that was not seen for {silent}"


def _deadline(asked: Submission, spec: TaskSpec, now: datetime) -> datetime:
    """Until when parents elsewhere are waited for; the time in which nobody looked is no part."""
    if asked.deadline_at is None:
        return now + spec.patience
    # The last look was when its state was written, and another one was due after ``recheck``.
    away = now - asked.state_at
    return asked.deadline_at + (away if away > spec.recheck + LATE else timedelta(0))


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


def _shared_failure(shared: Submission | None, asked: Submission, row: TaskRow) -> Decision | None:
    """The end of a submission by the failure of the run that it shared; none: it goes on.

    A forced one goes on if that run was begun before: its success would not have counted either.
    """
    if shared is None or shared.state not in _SHARED or shared.by_hand:
        return None
    if asked.force and (
        row.submission != shared.id
        or row.acquired_at is None
        or row.acquired_at < asked.required_since
    ):
        return None
    text = (
        f"shared {_run_of(shared)} of cluster {shared.cluster}, location {shared.location}, "
        f"which {shared.state.value}: {shared.reason}"
    )
    return _ended(Step.SHARED_FAILURE, SubmissionState.FAILED, text)


def _run_of(shared: Submission) -> str:
    return f"run {shared.run_id}" if shared.run_id else f"the run of submission {shared.id}"


def _to_the_second(span: timedelta) -> timedelta:
    second = timedelta(seconds=1)
    return span - span % second if span >= second else span
