"""All tasks, or some of them, and their freshness at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol

import sqlalchemy as sa

from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.definitions import Definition
from arctic_orchestration.freshness.graph import TaskGraph
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.freshness.submission_facts import Assets
from arctic_orchestration.freshness.views.tasks import EdgeView, TaskView, task_views
from arctic_orchestration.state.dialect import database_time


class InstanceAssets(Assets, Protocol):
    """What is known of assets that are no tasks, if there is an instance."""

    @property
    def unknown(self) -> bool:
        """Whether no instance was available."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskOverview:
    """All tasks of all clusters, and their freshness at one moment."""

    now: datetime
    #: by name, sorted
    views: Mapping[str, TaskView]
    #: the places that declare each
    places: Mapping[str, Sequence[Definition]]
    assets: InstanceAssets

    @cached_property
    def graph(self) -> TaskGraph:
        """The tasks and their parents, with the requirements of all declarations."""
        return TaskGraph(one.spec for found in self.places.values() for one in found)

    @cached_property
    def _below(self) -> Mapping[str, Sequence[EdgeView]]:
        found: dict[str, list[EdgeView]] = {}
        for view in self.views.values():
            for edge in view.parents:
                found.setdefault(edge.parent, []).append(edge)
        return found

    def parents(self, name: str) -> Sequence[EdgeView]:
        """Returns the parents of a task; none for a plain asset."""
        view = self.views.get(name)
        return view.parents if view is not None else ()

    def children(self, name: str) -> Sequence[EdgeView]:
        """Returns the children of a task or an asset."""
        return self._below.get(name, ())

    def is_known(self, edge: EdgeView) -> bool:
        """Returns whether the parent's freshness is known: not of assets without an instance."""
        return edge.kind == "task" or not self.assets.unknown

    def exists(self, edge: EdgeView) -> bool | None:
        """Returns whether the parent of an edge exists; none: only its child's location knows."""
        return True if edge.kind == "task" or edge.last_success_at is not None else None

    def may_be_none(self, edge: EdgeView) -> bool:
        """Returns whether a parent may not exist: it is no task, and has no materialization.

        The child's location knows; without such an asset, it waits until a location declares it.
        """
        return self.is_known(edge) and self.exists(edge) is None

    def successes(self) -> dict[str, datetime | None]:
        """Returns the last success of everything; unknown parents count as fresh."""
        found: dict[str, datetime | None] = {
            name: view.row.last_success_at for name, view in self.views.items()
        }
        for view in self.views.values():
            for edge in view.parents:
                if edge.parent not in found:
                    found[edge.parent] = edge.last_success_at if self.is_known(edge) else self.now
        return found

    def skipped(self) -> frozenset[str]:
        """Returns the skipped tasks; a present run goes on."""
        return frozenset(
            name
            for name, view in self.views.items()
            if view.skipped is not None and view.holder is None
        )

    def made_anyway(self, task: str) -> frozenset[str]:
        """Returns a task and its ancestors that run however fresh they are by themselves.

        The task, if a submission forces it or requires it to be fresher; and tasks that were
        submitted together with it and have work, which run first.
        """
        groups = {one.group_id for one in self._at_work(task)}
        ancestors = self.graph.ancestors([task]) if groups else ()
        return frozenset(
            name
            for name in (task, *ancestors)
            if any(one.group_id in groups for one in self._at_work(name))
        )

    def _at_work(self, name: str) -> list[Submission]:
        """Returns the live submissions of a task that have work."""
        view = self.views[name]
        return [
            one
            for one in view.live
            if submissions.has_work(one, view.row) and (view.skipped is None or one.state.owns)
        ]

    def require(self, tx: sa.Connection, name: str) -> None:
        """Refuses a name that no location declares.

        Errors:
            NotFound: names similar ones.
        """
        if name not in self.views:
            raise definitions.unknown(tx, "TASK", name)


def task_overview(
    tx: sa.Connection, assets: InstanceAssets, names: Sequence[str] | None = None
) -> TaskOverview:
    """Returns the present overview of all tasks of all clusters, or of some.

    Errors:
        NotFound: a name is no task's.
    """
    now = database_time(tx)
    places = definitions.by_task(definitions.definitions(tx, names))
    views = task_views(tx, now, names=names, assets=assets)
    return TaskOverview(
        now=now, views={view.name: view for view in views}, places=places, assets=assets
    )
