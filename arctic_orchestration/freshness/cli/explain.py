"""``arctic tasks explain``: why a task runs or not, along the steps of its life."""

from collections.abc import Sequence
from typing import Any

from rich.tree import Tree

from arctic_orchestration.console.display import console, counted, moment, print_json, short_id
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.freshness.cli.context import (
    TaskArgument,
    age_of,
    colored,
    mark,
    opened_tasks,
)
from arctic_orchestration.freshness.definitions import Definition
from arctic_orchestration.freshness.graph import Resolution
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.freshness.submission_facts import is_near
from arctic_orchestration.freshness.views.documents import SubmissionDocument, task_document
from arctic_orchestration.freshness.views.explanation import TaskExplanation
from arctic_orchestration.freshness.views.explanation import explain as explained
from arctic_orchestration.freshness.views.overview import TaskOverview
from arctic_orchestration.freshness.views.tasks import EdgeView, TaskView
from arctic_orchestration.quantities import format_duration, format_moment, iso

_YES, _NO, _WAITS = "[green]✓[/]", "[red]✗[/]", "[yellow]…[/]"
#: the maximum number of named tasks that would run
_SHOWN = 20
#: the result of a submission now, by the step that would be decided
_WOULD = {
    Step.FRESH: f"{_YES} submitted now, it would not run:",
    Step.ACQUIRED: f"{_YES} submitted now, it would run:",
    Step.SHARES: f"{_YES} submitted now, it would share the run that makes it:",
    Step.SKIPPED: f"{_NO} submitted now, it would be",
    Step.NOT_STARTED: f"{_NO} submitted now, it would fail:",
    Step.STALE_PARENTS: f"{_NO} submitted now, it would fail:",
}


def explain(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Explain why a task runs or not, and what would run."""
    with opened_tasks() as opened, opened.database.read() as tx:
        known = opened.known(tx)
        known.require(tx, task)
        found = explained(tx, task, known.now, assets=opened.assets)
    plan = known.graph.resolve(
        known.successes(),
        known.now,
        wanted=[task],
        skipped=known.skipped(),
        anyway=known.made_anyway(task),
    )
    if as_json:
        print_json(_document(known, found, plan))
    else:
        console().print(_tree(known, found, plan))


def _tree(known: TaskOverview, found: TaskExplanation, plan: Resolution) -> Tree:
    view = found.task
    tree = Tree(f"[bold]{escape(view.name)}[/]: {colored(view.state)}")
    for place in found.locations:
        if place.trouble is not None:
            where = f"{place.cluster}/{place.location}"
            tree.add(f"{_NO} {escape(where)}: {escape(place.trouble)}")
        silence = place.silence(known.now)
        if silence is not None:
            tree.add(f"{_NO} {escape(silence)}")
    _add_freshness(tree, view)
    if view.skipped is not None:
        tree.add(f"{_NO} on the skip list: {escape(view.skipped)}")
    else:
        tree.add(f"{_YES} not on the skip list")
    _add_parents(tree, known, view)
    if view.holder is not None:
        tree.add(
            f"{_WAITS} {escape(view.holder)} makes it, under token {view.row.token}; its lease "
            f"holds until {moment(view.row.expires_at)}, and is renewed"
        )
    else:
        tree.add(f"{_YES} no run makes it")
    for submission in view.live:
        branch = tree.add(f"{_WAITS} {escape(_live_text(submission))}")
        if submission.id in view.roots:
            branch.add(escape(view.roots[submission.id].text))
    last = next((one for one in found.latest if one.state.ended), None)
    if not view.live and last is not None:
        text = f"the last submission, by {last.by} at {format_moment(last.submitted_at)}, "
        tree.add(f"[dim]{escape(text + _ended_as(last))}[/]")
    _add_would(tree, known, found)
    _add_plan(tree, known, plan)
    return tree


def _add_freshness(tree: Tree, view: TaskView) -> None:
    text = f"{view.age}, to be {view.need}"
    if view.fresh and view.fresh_until is not None:
        text += f": fresh until {format_moment(view.fresh_until)}"
    tree.add(f"{_YES if view.fresh else _NO} {escape(text)}")


def _add_parents(tree: Tree, known: TaskOverview, view: TaskView) -> None:
    if not view.parents:
        tree.add(f"{_YES} it has no parents")
        return
    all_fresh = all(known.is_known(edge) and edge.fresh for edge in view.parents)
    branch = tree.add(f"{_YES if all_fresh else _WAITS} {counted(len(view.parents), 'parent')}")
    for edge in view.parents:
        text = f"{age_of(known, edge)}, to be {edge.need}{_what_is_done(known, edge)}"
        branch.add(f"{mark(known, edge)} {escape(edge.parent)}: {escape(text)}")


def _what_is_done(known: TaskOverview, edge: EdgeView) -> str:
    """Describes what a submission would do about a stale parent."""
    if not known.is_known(edge) or edge.fresh:
        return ""
    children = _deciding(known, edge.child) or known.places[edge.child]
    patience = format_duration(min(one.spec.patience for one in children))
    if edge.kind != "task":
        return f"; it is no task, and is waited for {patience}"
    if edge.holder is not None:
        return f"; {edge.holder} makes it"
    parent = known.views.get(edge.parent)
    if edge.skipped is not None or (parent is not None and parent.skipped is not None):
        return "; it is skipped, so the task will fail"
    if parent is None:
        # Only another version of the package can read its declaration.
        return f"; it is of {', '.join(edge.places)}, and is waited for {patience}"
    submitting = _submitting(known, edge.parent, edge.child)
    if submitting:
        only = f" by {_where(submitting)}" if len(submitting) < len(children) else ""
        return f"; it is submitted first{only}"
    where = _where(known.places[edge.parent])
    return f"; it is of location {where}, and is waited for {patience}"


def _deciding(known: TaskOverview, task: str) -> Sequence[Definition]:
    """Returns the definitions by which parents are submitted: of the live submissions, or all."""
    live = known.views[task].live
    places = {(one.cluster, one.location) for one in live if one.submits_parents}
    return [one for one in known.places[task] if not live or (one.cluster, one.location) in places]


def _submitting(known: TaskOverview, parent: str, child: str) -> Sequence[Definition]:
    """Returns the definitions of a child that submit a stale parent, of their location or batch."""
    return [
        one
        for one in _deciding(known, child)
        if any(
            is_near(other, (one.cluster, one.location), one.spec.batch)
            for other in known.places[parent]
        )
    ]


def _where(places: Sequence[Definition]) -> str:
    return ", ".join(f"{one.location} of cluster {one.cluster}" for one in places)


def _live_text(one: Submission) -> str:
    text = f"submission {short_id(one.id)} by {one.by} at {format_moment(one.submitted_at)} is "
    text += f"{one.state.value}: {one.reason}"
    if one.next_check_at is not None and not one.state.owns:
        text += f"; next check at {format_moment(one.next_check_at)}"
    if one.deadline_at is not None:
        text += f", and given up at {format_moment(one.deadline_at)}"
    return text


def _ended_as(one: Submission) -> str:
    words = {"fresh": "found it fresh", "succeeded": "made it"}
    return f"{words.get(one.state.value, one.state.value)}: {one.reason}"


def _add_would(tree: Tree, known: TaskOverview, found: TaskExplanation) -> None:
    """Adds the decision by the rules of a submission; a guess without the instance."""
    if found.task.live or any(not known.is_known(edge) for edge in found.task.parents):
        return
    for place, decision in found.would:
        where = f" ({place})" if len(found.would) > 1 else ""
        outcome = _WOULD.get(decision.step, f"{_WAITS} submitted now, it would wait:")
        tree.add(f"{outcome} {escape(decision.reason)}{escape(where)}")


def _add_plan(tree: Tree, known: TaskOverview, plan: Resolution) -> None:
    """Adds what a submission now would run, in order, and what it would not."""
    never, waited = _never(known, plan), _waited_for(known, plan)
    runs = [name for name in plan.runs if name not in never and name not in waited]
    if not plan.runs:
        tree.add("[dim]nothing has to run[/]")
    if runs:
        branch = tree.add(f"{counted(len(runs), 'run')} until it is fresh, in this order")
        _add_some(branch, [_run_text(known, plan, name) for name in runs])
    if waited:
        branch = tree.add(f"[yellow]{counted(len(waited), 'task')} that no submission here runs[/]")
        _add_some(branch, [f"{escape(name)}: {escape(why)}" for name, why in waited.items()])
    if never:
        branch = tree.add(f"[red]{counted(len(never), 'task')} will not run[/]")
        _add_some(branch, [f"{escape(name)}: {escape(why)}" for name, why in never.items()])


def _add_some(branch: Tree, texts: Sequence[str]) -> None:
    for text in texts[:_SHOWN]:
        branch.add(text)
    if len(texts) > _SHOWN:
        branch.add(f"[dim]and {len(texts) - _SHOWN} more[/]")


def _run_text(known: TaskOverview, plan: Resolution, name: str) -> str:
    waits = ", ".join(edge.parent for edge in plan.stale.get(name, ()))
    text = escape(name) + (f" [dim]after {escape(waits)}[/]" if waits else "")
    if known.views[name].holder is not None:
        text += " [dim](runs already)[/]"
    no_tasks = {edge.parent for edge in known.parents(name) if edge.kind != "task"}
    for edge in plan.stuck.get(name, ()):
        if edge.parent in no_tasks:
            text += f" [yellow]{escape(edge.parent)} is made by no task[/]"
    return text


def _never(known: TaskOverview, plan: Resolution) -> dict[str, str]:
    """Returns the tasks that a submission now would not run, parents first, with reasons.

    A parent that is no task may succeed in time; a skipped one does not.
    """
    never = {name: f"skipped: {known.views[name].skipped}" for name in plan.skipped}
    for name in plan.runs:
        lost = [edge.parent for edge in plan.stale.get(name, ()) if edge.parent in never]
        if lost and known.views[name].holder is None:
            what = "is skipped" if lost[0] in plan.skipped else "will not run"
            never[name] = f"{lost[0]} {what}"
    return never


def _waited_for(known: TaskOverview, plan: Resolution) -> dict[str, str]:
    """Returns the tasks that others run: outside of a child's location and batch."""
    submitted = {name for name in plan.runs if known.views[name].live}
    needed = {edge.parent for edges in plan.stale.values() for edge in edges}
    submitted |= set(plan.runs) - needed
    for name in reversed(plan.runs):
        if name in submitted:
            parents = [edge.parent for edge in plan.stale.get(name, ())]
            submitted |= {
                parent
                for parent in parents
                if parent in known.views and _submitting(known, parent, name)
            }
    return {
        name: f"of location {_where(known.places[name])}, and waited for"
        for name in plan.runs
        if name not in submitted and known.views[name].holder is None
    }


def _document(known: TaskOverview, found: TaskExplanation, plan: Resolution) -> dict[str, Any]:
    never, waited = _never(known, plan), _waited_for(known, plan)
    return {
        **task_document(known, found.task).to_json(),
        "would": [
            {"place": place, "step": one.step.value, "reason": one.reason}
            for place, one in found.would
        ],
        "locations": [
            {
                "cluster": place.cluster,
                "location": place.location,
                "ticked_at": iso(place.ticked_at),
                "trouble": place.trouble,
            }
            for place in found.locations
        ],
        "submissions": SubmissionDocument.from_records(found.latest),
        "runs": [name for name in plan.runs if name not in never and name not in waited],
        "waited_for": waited,
        "will_not_run": never,
        "waits": {name: [edge.parent for edge in edges] for name, edges in plan.stale.items()},
        "nothing_renews": {
            name: [edge.parent for edge in edges] for name, edges in plan.stuck.items()
        },
    }
