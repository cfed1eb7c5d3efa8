"""The graph of tasks as trees, in which each task stands above what it needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from arctic_orchestration.freshness.views.documents import EdgeOfGraph, GraphDocument, NodeDocument
from arctic_orchestration.freshness.views.task_tree import TaskNode, roots_of, task_trees


@dataclass(frozen=True, kw_only=True)
class _GraphTask:
    """A task with its parents."""

    node: NodeDocument
    parents: Sequence[EdgeOfGraph]


def trees_of(found: GraphDocument, task: str | None) -> list[TaskNode]:
    """Returns the tree of a task, or those of all tasks that no other one needs."""
    parents: dict[str, list[EdgeOfGraph]] = {}
    for edge in found.edges:
        parents.setdefault(edge.child, []).append(edge)
    tasks = {
        node.task: _GraphTask(node=node, parents=parents.get(node.task, ())) for node in found.tasks
    }
    return task_trees(tasks, roots_of(tasks) if task is None else [task])
