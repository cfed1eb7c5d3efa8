"""Opens what the task commands work on, and reads what is known of all tasks at one moment."""

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
from arctic_orchestration.console.state import state_database
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

#: how a task or a submission stands, and the color in which that is shown
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

    #: whether there was nobody to ask
    unknown: bool = field(default=False, init=False)

    def known(self, assets: Sequence[str]) -> frozenset[str]:
        """All of them: which assets locations define is not known here.

        One that was never materialized may be none, which :meth:`TaskOverview.may_be_none` says.
        """
        return frozenset(assets)

    def materialized_at(self, assets: Sequence[str]) -> Mapping[str, datetime]:
        """When they were materialized last, by the instance's event log."""
        if not os.environ.get("DAGSTER_HOME"):
            self.unknown = True
            return {}
        # Dagster takes seconds to import, and where all parents are tasks it is not needed.
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
    """All tasks of all clusters, and how fresh they are at one moment."""

    now: datetime
    #: by name, sorted
    views: Mapping[str, TaskView]
    #: who declares each
    places: Mapping[str, Sequence[Definition]]
    assets: PlainAssets

    @cached_property
    def graph(self) -> TaskGraph:
        """The tasks and their parents, with the needs of all who declare them."""
        return TaskGraph(one.spec for found in self.places.values() for one in found)

    @cached_property
    def _below(self) -> Mapping[str, Sequence[EdgeView]]:
        found: dict[str, list[EdgeView]] = {}
        for view in self.views.values():
            for edge in view.parents:
                found.setdefault(edge.parent, []).append(edge)
        return found

    def parents(self, name: str) -> Sequence[EdgeView]:
        """What a task needs; nothing for a plain asset."""
        view = self.views.get(name)
        return view.parents if view is not None else ()

    def children(self, name: str) -> Sequence[EdgeView]:
        """Who needs a task or an asset."""
        return self._below.get(name, ())

    def can_tell(self, edge: EdgeView) -> bool:
        """Whether it is known how fresh the parent is: not of assets without an instance."""
        return edge.kind == "task" or not self.assets.unknown

    def exists(self, edge: EdgeView) -> bool | None:
        """Whether the parent of an edge exists; none: its child's location knows."""
        return True if edge.kind == "task" or edge.last_success_at is not None else None

    def may_be_none(self, edge: EdgeView) -> bool:
        """Whether the parent of an edge may not exist: it is no task, and was never made.

        The child's location knows; where it has no such asset, it waits until one declares it.
        """
        return self.can_tell(edge) and self.exists(edge) is None

    def successes(self) -> dict[str, datetime | None]:
        """The last success of everything; what is not known here is taken for fresh."""
        found: dict[str, datetime | None] = {
            name: view.row.last_success_at for name, view in self.views.items()
        }
        for view in self.views.values():
            for edge in view.parents:
                if edge.parent not in found:
                    found[edge.parent] = edge.last_success_at if self.can_tell(edge) else self.now
        return found

    def skipped(self) -> frozenset[str]:
        """The tasks that are not to be made for now; what runs already goes on."""
        return frozenset(
            name
            for name, view in self.views.items()
            if view.skipped is not None and view.holder is None
        )

    def made_anyway(self, task: str) -> frozenset[str]:
        """A task and those above it that are made however fresh they are by themselves.

        The task, if somebody asked for it to be made again or to be fresher than that; and what
        was submitted together with it and has work, which is made first.
        """
        groups = {one.group_id for one in self._at_work(task)}
        above = self.graph.above([task]) if groups else ()
        return frozenset(
            name
            for name in (task, *above)
            if any(one.group_id in groups for one in self._at_work(name))
        )

    def _at_work(self, name: str) -> list[Submission]:
        """The live submissions of a task that come to something."""
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
    """The state database, and who asks."""

    settings: Settings
    database: Database
    assets: PlainAssets = field(default_factory=PlainAssets)

    @property
    def actor(self) -> Actor:
        """Who asks, for others who read the history."""
        return actor(self.settings.cluster)

    def known(self, tx: sa.Connection) -> TaskOverview:
        """What is known now, of all tasks of all clusters."""
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
    """The state that the environment's settings name.

    Errors:
        ConfigurationError: there is no database yet, or its schema is another.
        InvalidInput: a setting cannot be used.
    """
    settings = Settings.from_environment()
    database = state_database(settings, made_by="the sensor arctic_tasks")
    try:
        yield OpenedTasks(settings=settings, database=database)
    finally:
        database.close()


def colored(state: str) -> str:
    """A state as markup."""
    return f"[{COLORS[state]}]{state}[/]" if state in COLORS else state


def mark(known: TaskOverview, edge: EdgeView) -> str:
    """Whether the parent of an edge is fresh enough, as a sign."""
    if not known.can_tell(edge):
        return "[dim]?[/]"
    return "[green]✓[/]" if edge.fresh else "[red]✗[/]"


def age_of(known: TaskOverview, edge: EdgeView) -> str:
    """How old the parent of an edge is, in words."""
    if known.may_be_none(edge):
        return edge.age_if_it_exists
    return edge.age if known.can_tell(edge) else "not known here, without DAGSTER_HOME"
