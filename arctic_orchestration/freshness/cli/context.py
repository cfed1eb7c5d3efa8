"""Opens the state for the task commands, and reads all tasks at one moment."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Annotated

import sqlalchemy as sa
import typer

from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.state import opened_state
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.definitions import Definition
from arctic_orchestration.freshness.graph import TaskGraph
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.freshness.views.tasks import EdgeView, TaskView, task_views
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="Its name: an asset's key with slashes, or a job's.")
]

#: the states of tasks and submissions, and their colors
COLORS = {
    "fresh": "green",
    "succeeded": "green",
    "stale": "yellow",
    "never": "yellow",
    "submitted": "cyan",
    "waiting": "cyan",
    "sharing": "cyan",
    "retrying": "yellow",
    "acquired": "blue",
    "running": "blue",
    "skipped": "magenta",
    "canceled": "magenta",
    "failed": "red",
    "lost": "red",
}


@dataclass
class PlainAssets:
    """What the Dagster instance of ``DAGSTER_HOME`` knows of assets that are no tasks."""

    #: whether no instance was available
    unknown: bool = field(default=False, init=False)

    def known(self, assets: Sequence[str]) -> frozenset[str]:
        """Returns all of them: the assets of locations are unknown here.

        One without a materialization may not exist, which :meth:`TaskOverview.may_be_none` returns.
        """
        return frozenset(assets)

    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:
        """Returns their last materializations, by the instance's event log."""
        if not os.environ.get("DAGSTER_HOME"):
            self.unknown = True
            return {}
        # Dagster takes seconds to import, and is not needed if all parents are tasks.
        import dagster as dg

        from arctic_orchestration.event_log.dagster_log import DagsterLog

        try:
            with dg.DagsterInstance.get() as instance:
                log = DagsterLog(instance)
                try:
                    return log.materialized_at(assets)
                finally:
                    log.close()
        except (ArcticError, dg.DagsterError):
            self.unknown = True
            return {}


@dataclass(frozen=True, kw_only=True)
class TaskOverview:
    """All tasks of all clusters, and their freshness at one moment."""

    now: datetime
    #: by name, sorted
    views: Mapping[str, TaskView]
    #: the places that declare each
    places: Mapping[str, Sequence[Definition]]
    assets: PlainAssets

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


@dataclass(frozen=True, kw_only=True)
class OpenedTasks:
    """The state database, and the author of changes."""

    settings: Settings
    database: Database
    assets: PlainAssets = field(default_factory=PlainAssets)

    @property
    def actor(self) -> Actor:
        """The author, for readers of the history."""
        return actor(self.settings.cluster)

    def known(self, tx: sa.Connection) -> TaskOverview:
        """Returns the present overview of all tasks of all clusters."""
        now = database_time(tx)
        places: dict[str, list[Definition]] = {}
        for one in definitions.definitions(tx):
            places.setdefault(one.spec.name, []).append(one)
        views = task_views(tx, now, assets=self.assets)
        return TaskOverview(
            now=now,
            views={view.name: view for view in views},
            places=places,
            assets=self.assets,
        )


@contextmanager
def opened_tasks() -> Iterator[OpenedTasks]:
    """Opens the state database in the environment's settings.

    Errors:
        ConfigurationError: there is no database yet, or it has another schema.
        InvalidInput: a setting is invalid.
    """
    with opened_state(made_by="the sensor arctic_tasks") as (settings, database):
        yield OpenedTasks(settings=settings, database=database)


def colored(state: str) -> str:
    """Formats a state as markup."""
    return f"[{COLORS[state]}]{state}[/]" if state in COLORS else state


def mark(known: TaskOverview, edge: EdgeView) -> str:
    """Returns a mark for whether the parent of an edge is fresh enough."""
    if not known.is_known(edge):
        return "[dim]?[/]"
    return "[green]✓[/]" if edge.fresh else "[red]✗[/]"


def age_of(known: TaskOverview, edge: EdgeView) -> str:
    """Returns the age of the parent of an edge, in words."""
    if known.may_be_none(edge):
        return edge.age_if_it_exists
    return edge.age if known.is_known(edge) else "not known here, without DAGSTER_HOME"
