"""``arctic tasks graph``: tasks and parents as a tree, with the freshness of each edge."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.tree import Tree

from arctic_orchestration.console.display import console, counted, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.freshness.cli.context import (
    age_of,
    colored,
    mark,
    opened_tasks,
)
from arctic_orchestration.freshness.views.documents import graph_document
from arctic_orchestration.freshness.views.overview import TaskOverview
from arctic_orchestration.freshness.views.tasks import EdgeView
from arctic_orchestration.waits import command

#: Deeper lines would begin too far to the right.
_DEPTH = 12


def graph(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="The root; default: tasks without children."),
    ] = None,
    children: Annotated[
        bool, typer.Option("--children", help="Draw children instead of parents.")
    ] = False,
    depth: Annotated[int, typer.Option(min=1, help="So many levels at most.")] = _DEPTH,
    as_json: JsonOption = False,
) -> None:
    """Draw tasks with their parents and their freshness.

    A task that is drawn already is drawn again without what is below it.
    """
    with opened_tasks() as opened, opened.database.read() as tx:
        known = opened.known(tx)
        if task is not None:
            known.require(tx, task)
    if as_json:
        print_json(graph_document(known, task))
        return
    if not known.views:
        console().print("no location has declared a task yet")
        return
    out = console()
    drawn: set[str] = set()
    for root in [task] if task is not None else _roots(known, children):
        out.print(_tree(known, root, children, depth, drawn))
    edges = [edge for view in known.views.values() for edge in view.parents]
    stale = sum(1 for edge in edges if known.is_known(edge) and not edge.fresh)
    out.print(
        f"[dim]{counted(len(known.views), 'task')}, {counted(len(edges), 'edge')}, {stale} stale[/]"
    )


def _roots(known: TaskOverview, children: bool) -> list[str]:
    """Returns tasks without children; in the other direction, without parents that are tasks."""
    if children:
        return [
            name
            for name, view in known.views.items()
            if not any(edge.parent in known.views for edge in view.parents)
        ]
    return [name for name in known.views if not known.children(name)]


def _tree(known: TaskOverview, root: str, children: bool, depth: int, drawn: set[str]) -> Tree:
    tree = Tree(_node(known, root))
    edges_of = known.children if children else known.parents
    left: list[tuple[Tree, str, int]] = [(tree, root, 1)]
    # Depth first, like a reader: the first occurrence of a task shows what is below it.
    while left:
        branch, name, level = left.pop()
        edges = edges_of(name)
        if not edges:
            continue
        if name in drawn:
            branch.add(f"[dim]{_many(edges, children)}, drawn above[/]")
            continue
        if level > depth:
            branch.add(
                f"[dim]{_many(edges, children)}: {escape(command('tasks', 'graph', name))}[/]"
            )
            continue
        drawn.add(name)
        below = []
        for edge in edges:
            other = edge.child if children else edge.parent
            below.append((branch.add(_line(known, edge, other)), other, level + 1))
        left += reversed(below)
    return tree


def _many(edges: Sequence[EdgeView], children: bool) -> str:
    if children:
        return f"{len(edges)} {'child' if len(edges) == 1 else 'children'}"
    return counted(len(edges), "parent")


def _node(known: TaskOverview, name: str) -> str:
    view = known.views[name]
    state = "" if view.state == "never" else f"{colored(view.state)}, "
    return f"[bold]{escape(name)}[/] {state}{escape(view.age)}"


def _line(known: TaskOverview, edge: EdgeView, other: str) -> str:
    """Formats an edge: whether it is fresh, the other end, and the required freshness."""
    view = known.views.get(other)
    state = ""
    if view is None:
        state = " [dim](asset)[/]"
    elif view.state in ("running", "waiting", "skipped"):
        state = f" {colored(view.state)}"
    need = f"{age_of(known, edge)}, to be {edge.need}"
    return f"{mark(known, edge)} {escape(other)}{state} [dim]{escape(need)}[/]"
