"""Why a schedule did not launch at a moment: from history, else by simulating the span again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.quantities import format_moment, iso
from arctic_orchestration.schedules.constraints import Concurrency
from arctic_orchestration.schedules.jobs import Job, JobState
from arctic_orchestration.schedules.location import Location, is_alive
from arctic_orchestration.schedules.lookup import schedule_by_name, schedule_if_there
from arctic_orchestration.schedules.schedule_history import Action, history_of
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus, StoredSchedule
from arctic_orchestration.schedules.target_partitions import partition_of
from arctic_orchestration.schedules.triggers.base import NOTHING, Arrivals
from arctic_orchestration.schedules.views.forecast import previous_ticks
from arctic_orchestration.schedules.views.numbers import IS_FIRING
from arctic_orchestration.schedules.views.replay import held_spans, replay
from arctic_orchestration.schedules.views.why_not_answer import Evidence, Source, WhyNot
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import event_of_job, events, job_events, job_history, jobs

#: A launch this close to the moment is the one that is missed.
_CLOSE = timedelta(minutes=1)
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
#: how a job ends that was admitted, if it has no run
_WITHOUT_RUN = (JobState.CANCELED, JobState.DISCARDED, JobState.FAILED)
#: lines of history that are read
_MOST = 10_000


def why_not(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    at: datetime,
    now: datetime,
) -> WhyNot:
    """Answers why a schedule did not launch at a moment; writes nothing.

    Errors:
        InvalidInput: the moment has not passed.
        NotFound: the location has no schedule of the name and never had one.
    """
    if at > now:
        raise InvalidInput("at", iso(at), f"a moment that has passed; it is {format_moment(now)}")
    if at < _FIRST:
        raise InvalidInput("at", iso(at), "a moment since 1970")
    lines = history_of(tx, location, name, limit=_MOST)
    row = schedule_if_there(tx, location, name)
    if row is None and not lines:
        schedule_by_name(tx, location, name)
    stored = store.by_ids(tx, [row.id]).get(row.id) if row is not None else None
    question = _Question(tx, location, name, at, lines, stored)
    launched = question.launched()
    if launched is not None:
        return launched
    if row is None or row.created_at > at:
        return question.of_another_time()
    if stored is None:
        reason = "this version of the package cannot read the schedule"
        return question.answer("unknown", reason, Source.UNKNOWN)
    return (
        question.suspended(row.status, row.created_at)
        or question.waited()
        or question.nothing_waited()
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Standing:
    """The state of a job at the moment, since when, and why."""

    state: str
    at: datetime
    reason: str


@dataclass
class _Question:
    tx: sa.Connection
    location: Location
    name: str
    at: datetime
    lines: Sequence[Mapping[str, Any]]
    stored: StoredSchedule | None

    def __post_init__(self) -> None:
        #: changes since then: the definition may have been another one
        self._evidence = [
            Evidence(at=line["at"], text=_changed(line))
            for line in self.lines
            if line["at"] > self.at and line["action"] in (Action.UPDATED, Action.DELETED)
        ]

    def answer(
        self, cause: str, text: str, source: Source = Source.HISTORY, job_id: str | None = None
    ) -> WhyNot:
        """Returns an answer with the evidence so far."""
        evidence = sorted(self._evidence, key=lambda one: one.at)
        return WhyNot(
            schedule=self.name, at=self.at, cause=cause, answer=text, source=source,
            job=job_id, evidence=tuple(evidence),
        )  # fmt: skip

    def _note(self, at: datetime, text: str) -> None:
        self._evidence.append(Evidence(at=at, text=text))

    def launched(self) -> WhyNot | None:
        """Returns the answer that it did launch, about then, or why its admitted job has no run."""
        if self.stored is None:
            return None
        moves = job_history.c
        query = (
            sa.select(jobs.c.id, jobs.c.run_id, jobs.c.state, jobs.c.reason, moves.at)
            .join(jobs, jobs.c.id == moves.job_id)
            .where(jobs.c.schedule_id == self.stored.id, moves.state == JobState.LAUNCHING.value)
            .where(moves.from_state == JobState.WAITING_CONSTRAINTS.value)
            .where(moves.at >= self.at - _CLOSE, moves.at <= self.at + _CLOSE)
            .order_by(jobs.c.run_id.is_(None), moves.at)
            .limit(1)
        )
        row = self.tx.execute(query).first()
        if row is None:
            return None
        if row.run_id is None and row.state in _WITHOUT_RUN:
            # In shadow, by its request hook, or because it could not be requested.
            admitted = f"job {row.id} was admitted at {format_moment(row.at)}"
            text = f"{admitted}, and {row.state} without a run: {row.reason}"
            return self.answer(row.state, text, job_id=row.id)
        run = f" as run {row.run_id}" if row.run_id else ""
        text = f"it did launch: job {row.id} was admitted at {format_moment(row.at)}{run}"
        return self.answer("launched", text, job_id=row.id)

    def of_another_time(self) -> WhyNot:
        """Returns the answer for a schedule that was not there, or was another one."""
        past = [line for line in self.lines if line["at"] <= self.at]
        if not past:
            first = self.lines[0]
            return self.answer("not_created", f"it was not there yet: {_changed(first)}")
        if past[-1]["action"] == Action.DELETED:
            return self.answer("deleted", f"it was not there any more: {_changed(past[-1])}")
        status = [line for line in past if line["action"] in (Action.ENABLED, Action.SUSPENDED)]
        if status and status[-1]["action"] == Action.SUSPENDED:
            return self.answer("suspended", _changed(status[-1]))
        text = "it was deleted since, and the history of its jobs with it"
        return self.answer("unknown", text, Source.UNKNOWN)

    def suspended(self, now: ScheduleStatus, since: datetime) -> WhyNot | None:
        """Returns the answer that it was suspended and launched nothing."""
        assert self.stored is not None
        words = {Action.ENABLED.value: False, Action.SUSPENDED.value: True}
        # One of the same name may have been deleted before.
        own = [line for line in self.lines if line["at"] >= since]
        changes = [line for line in own if line["action"] in words]
        before = [line for line in changes if line["at"] <= self.at]
        after = [line for line in changes if line["at"] > self.at]
        if before:
            was = words[before[-1]["action"]]
        elif after:
            was = not words[after[0]["action"]]
        else:
            was = now is ScheduleStatus.SUSPENDED
        mode = self.stored.schedule.suspend_mode
        if not was or mode == "drain":
            return None
        why = _changed(before[-1]) if before else "it was created as suspended"
        if after:
            self._note(after[0]["at"], _changed(after[0]))
        return self.answer("suspended", f"{why} (suspend_mode {mode})")

    def waited(self) -> WhyNot | None:
        """Returns the answer of the job that waited then; None: none did."""
        assert self.stored is not None
        query = (
            sa.select(jobs)
            .where(jobs.c.schedule_id == self.stored.id, IS_FIRING)
            .where(jobs.c.created_at <= self.at)
            .where(jobs.c.ended_at.is_(None) | (jobs.c.ended_at > self.at))
            .order_by(jobs.c.created_at)
        )
        for job in self.tx.execute(query).all():
            move = self._last_move(job)
            if move.state == JobState.LAUNCHED:
                self._note(job.created_at, f"job {job.id} was made")
                continue
            since = f"job {job.id} was {move.state} since {format_moment(move.at)}"
            self._note(move.at, f"{since}: {move.reason}")
            if move.state == JobState.WAITING_TRIGGER:
                return self.answer("trigger", self._trigger_reason(job, move), job_id=job.id)
            if move.state == JobState.WAITING_CONSTRAINTS:
                return self._held(job)
            text = f"job {job.id} was launching: {move.reason}"
            return self.answer("launch", text, job_id=job.id)
        return None

    def _last_move(self, job: Any) -> _Standing:
        col = job_history.c
        query = sa.select(job_history).where(col.job_id == job.id)
        before = query.where(col.at <= self.at).order_by(col.id.desc()).limit(1)
        row = self.tx.execute(before).first()
        if row is not None:
            return _Standing(state=row.state, at=row.at, reason=row.reason)
        # A job has no line of history for its creation.
        following = self.tx.execute(query.order_by(col.id).limit(1)).first()
        state = following.from_state if following is not None else job.state
        reason = following.reason if following is not None else job.reason
        return _Standing(state=state, at=job.created_at, reason=reason)

    def _trigger_reason(self, job: Any, move: _Standing) -> str:
        """Returns what was missing, by the events that had been read."""
        assert self.stored is not None
        reason = f"its trigger was not satisfied: {move.reason}"
        if job.schedule_version != self.stored.version:
            return reason
        query = (
            sa.select(job_events.c.leaf, events.c.taken_at, events.c.details)
            .join(events, event_of_job)
            .where(job_events.c.job_id == job.id, events.c.taken_at <= self.at)
            .order_by(job_events.c.number)
        )
        known = Job.from_row(job._mapping).arrivals
        if len(known) != len(self.stored.leaves):
            return reason
        arrivals: list[Arrivals] = [NOTHING] * len(known)
        partitions: set[tuple[int, str]] = set()
        for row in self.tx.execute(query):
            event = Event.parse(row.details)
            key = (row.leaf, partition_of(event))
            arrivals[row.leaf] = arrivals[row.leaf].with_event(
                event,
                new_partition=not key[1] or key not in partitions,
                at=row.taken_at,
                late=known[row.leaf].late,
            )
            partitions.add(key)
        arrivals = list(map(_with_missing, arrivals, known))
        try:
            firing = self.stored.schedule.trigger.evaluate(arrivals, self.at)
        except Exception:
            return reason
        return reason if firing.satisfied else f"its trigger was not satisfied: {firing.reason}"

    def _held(self, job: Any) -> WhyNot:
        assert self.stored is not None
        full = self._full_group(job)
        if full is not None:
            return full
        try:
            decisions = replay(self.tx, self.location, self.stored, job, self.at)
        except Exception as error:
            # Neither a broken rule nor an odd event may hide what history says.
            decisions = []
            self._note(self.at, f"the span could not be simulated: {error}")
        for decision in decisions:
            if decision.decision == "deployed":
                continue
            text = f"simulated: {decision.decision}: {decision.reason}"
            self._note(decision.at, text)
        last = decisions[-1] if decisions else None
        if last is not None and last.decision == "held":
            text = f"its constraints held it: {last.reason}"
            return self.answer(last.cause or "held", text, Source.SIMULATION, job.id)
        if job.state == JobState.WAITING_CONSTRAINTS:
            text = f"its constraints hold it since, as of its last check: {job.reason}"
            return self.answer(job.cause or "held", text, job_id=job.id)
        text = f"its constraints held it; later it was {job.state}: {job.reason}"
        return self.answer("held", text, Source.UNKNOWN, job.id)

    def _full_group(self, job: Any) -> WhyNot | None:
        """Returns the answer of a limit on a group, which other schedules may have filled."""
        assert self.stored is not None
        for constraint in self.stored.schedule.constraints:
            if not isinstance(constraint, Concurrency) or constraint.group is None:
                continue
            spans = held_spans(self.tx, constraint.resources(()), self.at)
            active = [id for id, (_, end, _) in spans.items() if end is None or end > self.at]
            if len(active) < constraint.limit:
                continue
            for holder in active:
                self._note(spans[holder][0], f"{holder} was launched in group {constraint.group}")
            text = f"{len(active)} of {constraint.limit} runs of group {constraint.group}"
            cause = ":".join([constraint.kind, *constraint.resources(())])
            return self.answer(cause, f"its constraints held it: {text} were active", job_id=job.id)
        return None

    def nothing_waited(self) -> WhyNot:
        """Returns the answer if there was no job: something arrived late, or nothing did."""
        assert self.stored is not None
        late = self._late_event()
        if late is not None:
            return late
        kept = deferred_arrivals.c
        query = sa.select(kept.at, kept.reason, kept.waits_for).where(
            kept.schedule_id == self.stored.id, kept.at <= self.at
        )
        deferred = self.tx.execute(query.order_by(kept.id.desc()).limit(1)).first()
        if deferred is not None:
            self._note(deferred.at, f"an arrival waits for {deferred.waits_for}: {deferred.reason}")
            return self.answer("deferred", f"what arrived fits no job: {deferred.reason}")
        if not is_alive(self.location.ticked_at, self.at):
            ticked = self.location.ticked_at
            since = f"since {format_moment(ticked)}" if ticked else "yet"
            return self.answer("dispatcher", f"no dispatcher ticks {since}")
        return self._nothing_arrived()

    def _late_event(self) -> WhyNot | None:
        """Returns the answer that an event had happened, and was read later."""
        assert self.stored is not None
        query = (
            sa.select(events.c.subject, events.c.partition, events.c.kind, events.c.at)
            .add_columns(events.c.taken_at, jobs.c.id)
            .join(job_events, event_of_job)
            .join(jobs, jobs.c.id == job_events.c.job_id)
            .where(jobs.c.schedule_id == self.stored.id)
            .where(events.c.at <= self.at, events.c.taken_at > self.at)
            .order_by(events.c.number)
            .limit(1)
        )
        row = self.tx.execute(query).first()
        if row is None:
            return None
        what = " ".join(filter(None, [row.kind, row.subject, row.partition]))
        text = f"{what} of {format_moment(row.at)} was read at {format_moment(row.taken_at)} only"
        return self.answer("read_late", text, job_id=row.id)

    def _nothing_arrived(self) -> WhyNot:
        assert self.stored is not None
        query = (
            sa.select(jobs.c.id, jobs.c.state, jobs.c.reason, jobs.c.ended_at)
            .where(jobs.c.schedule_id == self.stored.id, jobs.c.ended_at <= self.at)
            .order_by(jobs.c.ended_at.desc(), jobs.c.id.desc())
            .limit(1)
        )
        last = self.tx.execute(query).first()
        ticks = previous_ticks(self.stored, self.at - _CLOSE, self.at, 1)
        if ticks and (last is None or last.ended_at < ticks[0]):
            text = f"no dispatcher delivered its tick of {format_moment(ticks[0])} in time"
            return self.answer("dispatcher", text)
        for leaf in self.stored.leaves:
            if not leaf.restarts_at_launch:
                tick_at = leaf.next_tick(self.at, self.name)
                if tick_at is not None:
                    self._note(tick_at, f"its next tick: {json.dumps(leaf.to_form())}")
        if last is None:
            return self.answer("nothing_arrived", "nothing had arrived yet")
        ended = f"which was {last.state} at {format_moment(last.ended_at)}: {last.reason}"
        cause = "discarded" if last.state == JobState.DISCARDED else "nothing_arrived"
        text = f"nothing had arrived since its last job {last.id}, {ended}"
        return self.answer(cause, text, job_id=last.id)


def _with_missing(then: Arrivals, now: Arrivals) -> Arrivals:
    """Returns what had arrived, with how many partitions of those that belong together lacked."""
    later = now.partitions - then.partitions
    if now.required is None:
        return then
    return replace(
        then,
        required=now.required,
        lacking=min(now.lacking + later, now.required),
        missing=() if later else now.missing,
    )


def _changed(line: Mapping[str, Any]) -> str:
    """Returns a line of a schedule's history as a sentence."""
    by = f" by {line['actor']}" if line["actor"] else ""
    because = f": {line['reason']}" if line["reason"] else ""
    return f"it was {line['action']} at {format_moment(line['at'])}{by}{because}"
