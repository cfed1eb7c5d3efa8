"""Tasks with their parents as a tree; a task stands there once with what is below it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: deeper branches have a page of their own
_DEPTH = 8


class Edge(Protocol):
    """A parent of a task."""

    @property
    def parent(self) -> str: ...


class Needing(Protocol):
    """A task with its parents."""

    @property
    def parents(self) -> Sequence[Edge]: ...


@dataclass(kw_only=True)
class TaskNode:
    """A task, or a parent that is none, at one place of the tree."""

    name: str
    #: none: it is an asset that is no task
    task: Needing | None
    #: what its child needs of it; none: it is a root
    edge: Edge | None = None
    parents: list["TaskNode"] = field(default_factory=list)
    #: how many parents are not shown here: they are above, or too deep
    left_out: int = 0


def roots_of(views: Mapping[str, Needing]) -> list[str]:
    """Returns the tasks that no other one needs; if all need each other, the first."""
    needed = {edge.parent for view in views.values() for edge in view.parents}
    return [name for name in views if name not in needed] or list(views)[:1]


def task_trees(views: Mapping[str, Needing], roots: Sequence[str]) -> list[TaskNode]:
    """Returns the trees of some tasks."""
    trees = [TaskNode(name=name, task=views.get(name)) for name in roots]
    left, drawn = [(tree, 1) for tree in reversed(trees)], set()
    while left:
        node, level = left.pop()
        if node.task is None:
            continue
        if node.name in drawn or level == _DEPTH:
            node.left_out = len(node.task.parents)
            continue
        drawn.add(node.name)
        node.parents = [
            TaskNode(name=edge.parent, task=views.get(edge.parent), edge=edge)
            for edge in node.task.parents
        ]
        left += [(parent, level + 1) for parent in reversed(node.parents)]
    return trees
