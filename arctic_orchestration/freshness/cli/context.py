"""Opens the state for the task commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import sqlalchemy as sa
import typer

from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.state import opened_state
from arctic_orchestration.freshness.dagster.plain_assets import PlainAssets
from arctic_orchestration.freshness.views.overview import TaskOverview, task_overview
from arctic_orchestration.freshness.views.tasks import EdgeView
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database

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
        return task_overview(tx, self.assets)


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
