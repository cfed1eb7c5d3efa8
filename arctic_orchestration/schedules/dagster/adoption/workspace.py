"""The code locations of a workspace, loaded into this process, and their instigators."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import dagster as dg
from click import UsageError
from yaml import YAMLError

from arctic_orchestration.console.dagster_errors import dagster_message
from arctic_orchestration.dagster_internals import (
    CodeLocationOrigin,
    RemoteRepositoryOrigin,
    WorkspaceOpts,
    loaded_repositories,
    workspace_opts_to_load_target,
)
from arctic_orchestration.errors import ConfigurationError, InvalidInput, TransitionRefused
from arctic_orchestration.schedules.dagster.adoption.drafts import Drafted, drafts_of
from arctic_orchestration.schedules.dagster.adoption.instigators import (
    ScheduleInstigator,
    SensorInstigator,
    asset_cursor,
    run_status_cursor,
)
from arctic_orchestration.schedules.dagster.dispatcher import DispatcherSensor


@dataclass(frozen=True, kw_only=True)
class LoadedRepository:
    """A repository of a code location."""

    origin: CodeLocationOrigin
    repository: dg.RepositoryDefinition
    now: datetime

    @property
    def location(self) -> str:
        """Dagster's name of the code location."""
        return self.origin.location_name

    @property
    def owner(self) -> str:
        """What the state database calls the code location and repository."""
        return f"{self.location}/{self.repository.name}"

    @cached_property
    def drafts(self) -> Sequence[Drafted]:
        return drafts_of(self.repository, self.now)

    @property
    def hooked(self) -> frozenset[str]:
        """The names of the declared schedules that have a request hook."""
        return frozenset(
            name
            for sensor in self.repository.sensor_defs
            if isinstance(sensor, DispatcherSensor)
            for name in sensor.hooks
        )

    def instigator(
        self, instance: dg.DagsterInstance, drafted: Drafted
    ) -> ScheduleInstigator | SensorInstigator:
        """Returns Dagster's side of an object that can be adopted.

        Errors:
            TransitionRefused: it is not of a kind that can be stopped at a known place.
        """
        origin = RemoteRepositoryOrigin(self.origin, self.repository.name)
        definition = drafted.definition
        by_default = getattr(definition, "default_status", None) in (
            dg.DefaultScheduleStatus.RUNNING,
            dg.DefaultSensorStatus.RUNNING,
        )
        instigator = origin.get_instigator_origin(drafted.name)
        if isinstance(definition, dg.ScheduleDefinition):
            return ScheduleInstigator(
                instance=instance,
                origin=instigator,
                runs_by_default=by_default,
                definition=definition,
                retries=getattr(instance.scheduler, "max_tick_retries", 0),
            )
        if isinstance(definition, dg.RunStatusSensorDefinition):
            read, write = run_status_cursor()
        elif isinstance(definition, dg.AssetSensorDefinition):
            read, write = asset_cursor(instance, definition.asset_key)
        else:
            reasons = "; ".join([*drafted.draft.reasons, *drafted.draft.notes])
            if drafted.kind == "automation_condition":
                reasons = "remove the condition, and enable the schedule, in one change of the code"
            raise TransitionRefused(f"{drafted.name} cannot be cut over: {reasons}")
        return SensorInstigator(
            instance=instance,
            origin=instigator,
            runs_by_default=by_default,
            read_cursor=read,
            write_cursor=write,
            one_by_one=isinstance(definition, dg.RunStatusSensorDefinition),
        )


def load_workspace(
    files: Iterable[Path], modules: Iterable[str], now: datetime
) -> list[LoadedRepository]:
    """Loads the code of a workspace; without files and modules, that of the present folder.

    Errors:
        InvalidInput: the name of a module is empty.
        ConfigurationError: there is no workspace, or its code cannot be loaded.
    """
    modules = list(modules)
    if "" in modules:
        raise InvalidInput("--module-name", "", "the name of a module")
    given = WorkspaceOpts(workspace=[str(file) for file in files], module_name=modules)
    try:
        target = workspace_opts_to_load_target(given)
        origins = target.create_origins()
        return [
            LoadedRepository(origin=origin, repository=repository, now=now)
            for origin in origins
            for repository in loaded_repositories(origin).values()
        ]
    except ConfigurationError:
        raise
    except UsageError as error:
        raise ConfigurationError(
            "There is no workspace: expected --workspace, --module-name, or a workspace.yaml or "
            "[tool.dagster] of pyproject.toml in this folder"
        ) from error
    except (dg.DagsterError, YAMLError, OSError, ImportError) as error:
        text = dagster_message(error)
        raise ConfigurationError(f"The workspace cannot be loaded: {text}") from error
