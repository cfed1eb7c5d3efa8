"""Tasks, their parents and submissions as JSON values, whose keys are stable."""

from typing import Any

from arctic_orchestration.freshness.status import StatusEvent
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.freshness.views.overview import TaskOverview
from arctic_orchestration.freshness.views.tasks import EdgeView, TaskView
from arctic_orchestration.quantities import iso


def task_json(known: TaskOverview, view: TaskView) -> dict[str, Any]:
    """Returns a task for programs; its keys are stable."""
    row = view.row
    return {
        "task": view.name,
        "state": view.state,
        "fresh": view.fresh,
        "fresh_until": iso(view.fresh_until),
        "last_success_at": iso(row.last_success_at),
        "last_success_run": row.last_success_run,
        "last_success_cluster": row.last_success_cluster,
        "last_token": row.last_token,
        "skipped": view.skipped,
        "holder": None if view.holder is None else {
            "cluster": row.cluster,
            "location": row.location,
            "run_id": row.run_id,
            "submission": row.submission,
            "token": row.token,
            "expires_at": iso(row.expires_at),
        },
        "declared": [
            {"cluster": one.cluster, "location": one.location, **one.spec.to_form()}
            for one in known.places[view.name]
        ],
        "parents": [edge_json(known, edge) for edge in view.parents],
        "live_submissions": [submission_json(one) for one in view.live],
        "roots": [
            {
                "of": id,
                "submission": root.submission.id,
                "task": root.submission.task,
                "state": root.submission.state.value,
                "reason": root.submission.reason,
            }
            for id, root in view.roots.items()
        ],
        "failed_submission": None if view.failed is None else submission_json(view.failed),
    }  # fmt: skip


def edge_json(known: TaskOverview, edge: EdgeView) -> dict[str, Any]:
    """Returns a parent for programs; ``fresh`` and ``exists`` are null if unknown."""
    return {
        "parent": edge.parent,
        "kind": edge.kind,
        "exists": known.exists(edge),
        "hours": edge.hours,
        "need": edge.need,
        "last_success_at": iso(edge.last_success_at),
        "fresh": edge.fresh if known.is_known(edge) else None,
        "fresh_until": iso(edge.fresh_until),
    }


def submission_json(one: Submission) -> dict[str, Any]:
    """Returns a submission for programs; its keys are stable."""
    return {
        "submission": one.id,
        "task": one.task,
        "cluster": one.cluster,
        "location": one.location,
        "group": one.group_id,
        "by": one.by,
        "state": one.state.value,
        "reason": one.reason,
        "required_since": iso(one.required_since),
        "force": one.force,
        "submitted_at": iso(one.submitted_at),
        "next_check_at": iso(one.next_check_at),
        "deadline_at": iso(one.deadline_at),
        "attempt": one.attempt,
        "token": one.token,
        "run_id": one.run_id,
        "shares": one.shares,
        "ended_at": iso(one.ended_at),
    }


def child_json(edge: EdgeView) -> dict[str, Any]:
    """Returns a child for programs."""
    return {"child": edge.child, "hours": edge.hours, "need": edge.need, "fresh": edge.fresh}


def event_json(event: StatusEvent) -> dict[str, Any]:
    """Returns a step of a task or submission for programs."""
    return {
        "at": iso(event.at),
        "step": event.step.value,
        "reason": event.reason,
        "cluster": event.cluster,
        "location": event.location,
        "submission": event.submission,
        "details": dict(event.details),
    }


def graph_json(known: TaskOverview, task: str | None) -> dict[str, Any]:
    """Returns all tasks and edges, or those of a task and its ancestors, for programs."""
    names = list(known.views) if task is None else [*known.graph.ancestors([task]), task]
    views = [known.views[name] for name in names]
    return {
        "tasks": [
            {
                "task": view.name,
                "state": view.state,
                "fresh": view.fresh,
                "last_success_at": iso(view.row.last_success_at),
            }
            for view in views
        ],
        "edges": [
            {"child": view.name, **edge_json(known, edge)}
            for view in views
            for edge in view.parents
        ],
    }
