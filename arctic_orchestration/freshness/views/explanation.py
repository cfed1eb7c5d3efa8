"""Why a task does or does not run: its parents with their ages, its waits, the next decision."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.criteria import required_since
from arctic_orchestration.freshness.decision import Decision, decide
from arctic_orchestration.freshness.definitions import Definition, RegisteredLocation
from arctic_orchestration.freshness.status import StatusEvent, Step, events_of
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.freshness.submission_facts import NO_ASSETS, Assets, facts_of
from arctic_orchestration.freshness.views.tasks import EdgeView, TaskView, task_views
from arctic_orchestration.quantities import format_moment


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskExplanation:
    """One task, with all reasons why it does or does not run.

    Attributes:
        task: its view, with all parents.
        locations: the locations that declare it, with their last ticks and errors.
        would: what a submission would do now, in each place whose declaration can be read.
        latest: its last submissions, newest first.
        events: its last steps, in their order.
        now: the moment of the explanation.
    """

    task: TaskView
    locations: tuple[RegisteredLocation, ...]
    would: tuple[tuple[str, Decision], ...]
    latest: tuple[Submission, ...]
    events: tuple[StatusEvent, ...]
    now: datetime

    def lines(self) -> list[str]:
        """Returns the same as sentences, the most important ones first."""
        view = self.task
        texts = [f"{view.name} is to be {view.need}, and was {_was(view)}."]
        if view.holder is not None:
            texts.append(f"It is being made by {view.holder}, under token {view.row.token}.")
        if view.skipped is not None:
            texts.append(f"It is skipped: {view.skipped}.")
        texts += [edge_line(edge) for edge in view.parents]
        for one in view.live:
            texts.append(f"Submission {one.id} is {one.state.value}: {one.reason}.")
            texts[-1] += _next_check(one)
            if one.id in view.roots:
                texts.append(f"Now it {view.roots[one.id].text}.")
        if not view.live:
            texts += [f"Submitted in {place}, it {_would(one)}." for place, one in self.would]
        for place in self.locations:
            if place.trouble is not None:
                texts.append(f"{place.cluster}/{place.location}: {place.trouble}.")
            silence = place.silence(self.now)
            if silence is not None:
                texts.append(f"{silence}.")
        return texts


def explain(
    tx: sa.Connection,
    task: str,
    now: datetime,
    *,
    assets: Assets = NO_ASSETS,
    last: int = 20,
) -> TaskExplanation:
    """Explains one task; writes nothing.

    Args:
        tx: the transaction.
        task: its name.
        now: the database's time.
        assets: what is known of assets that are no tasks.
        last: the maximum number of submissions and steps.

    Errors:
        NotFound: no location of any cluster declares it.
    """
    (view,) = task_views(tx, now, names=[task], assets=assets)
    places = definitions.declared(tx, [task])[task]
    found = [definitions.location_of(tx, cluster, location) for cluster, location in places]
    return TaskExplanation(
        task=view,
        locations=tuple(one for one in found if one is not None),
        would=tuple(
            (f"{one.cluster}/{one.location}", _decision(tx, one, now, assets))
            for one in definitions.definitions(tx, [task])
        ),
        latest=tuple(submissions.latest_of(tx, task, limit=last)),
        events=tuple(event for _, event in events_of(tx, task=task, limit=last)),
        now=now,
    )


def edge_line(edge: EdgeView) -> str:
    """Returns one parent and its freshness, as a sentence."""
    verdict = "fresh" if edge.fresh else "not fresh"
    age = edge.age_if_it_exists if edge.kind == "missing" else edge.age
    text = f"Parent {edge.parent} is to be {edge.need}: {age}, {verdict}"
    if edge.fresh and edge.fresh_until is not None:
        text += f" until {format_moment(edge.fresh_until)}"
    if edge.holder is not None:
        text += f"; {edge.holder} makes it"
    if edge.skipped is not None:
        text += f"; skipped: {edge.skipped}"
    where = ", ".join(edge.places)
    return f"{text} ({where})." if where else f"{text} (no task)."


def _decision(tx: sa.Connection, one: Definition, now: datetime, assets: Assets) -> Decision:
    spec = one.spec
    imagined = Submission(
        id="", task=spec.name, cluster=one.cluster, location=one.location, batch=spec.batch,
        group_id="", by="", state=SubmissionState.SUBMITTED, reason="", state_at=now,
        required_since=required_since(spec.freshness_hours, spec.timezone, now),
        submitted_at=now,
    )  # fmt: skip
    return decide(facts_of(tx, imagined, assets, now, only_look=True), now)


def _was(view: TaskView) -> str:
    if view.row.last_success_at is None:
        return view.age
    made = f"{view.age} by run {view.row.last_success_run} of cluster "
    made += f"{view.row.last_success_cluster}"
    if view.fresh and view.fresh_until is not None:
        return f"{made}: fresh until {format_moment(view.fresh_until)}"
    return f"{made}: not fresh"


def _next_check(one: Submission) -> str:
    if one.next_check_at is None or one.state.owns:
        return ""
    return f" The next check is at {format_moment(one.next_check_at)}."


def _would(decision: Decision) -> str:
    return f"{_WOULD.get(decision.step, 'would wait')} ({decision.reason})"


_WOULD = {
    Step.FRESH: "would not run",
    Step.SKIPPED: "would be skipped",
    Step.NOT_STARTED: "would fail",
    Step.STALE_PARENTS: "would fail",
    Step.ACQUIRED: "would run",
    Step.SHARES: "would share the run that makes it",
}
