"""Prepares a code server for the instances of Dagster that it creates: each tick has its own."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import yaml

from arctic_orchestration import migration_scripts, postgres_connections
from arctic_orchestration.errors import InvalidInput

if TYPE_CHECKING:
    from dagster import SensorEvaluationContext

_LAUNCHERS = "arctic_orchestration.run_launcher"


def storage_of(context: "SensorEvaluationContext") -> str:
    """Returns the configuration of Dagster's event log, after the code server is prepared.

    Errors:
        InvalidInput: the configuration of this package's launcher is wrong. Runs that the tick
            requests would fail before they start, and use up the attempts of their jobs.
    """
    # The instance is created on first use, and costs more than an idle tick.
    reference = context.instance_ref or context.instance.get_ref()
    launcher = reference.run_launcher_data
    # Others cannot be checked here, where no runs are launched: what they need may be missing.
    if launcher is not None and launcher.module_name == _LAUNCHERS:
        _check_launcher(launcher.class_name, launcher.config_yaml)
    storage = str(reference.event_storage_data)
    prepare(storage)
    return storage


@cache
def prepare(storage: str) -> None:
    """Lets the instances of ticks share what can be shared; a second call does nothing.

    Args:
        storage: the configuration of Dagster's event log, which names its module. For others than
            Postgres, Postgres's modules are not imported.
    """
    migration_scripts.remember()
    if "dagster_postgres" in storage:
        postgres_connections.reuse_from_now_on()


@cache
def _check_launcher(name: str, config: str) -> None:
    launcher = getattr(import_module(_LAUNCHERS), name, None)
    if launcher is None:
        raise InvalidInput("run_launcher.class", name, f"a class of {_LAUNCHERS}")
    launcher.check_config(yaml.safe_load(config) or {})
