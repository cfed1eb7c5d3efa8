"""Opens Dagster's instance for a command or a request."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from arctic_orchestration.console.dagster_errors import dagster_message
from arctic_orchestration.errors import ConfigurationError

if TYPE_CHECKING:
    from dagster import DagsterInstance


@contextmanager
def opened_instance() -> "Iterator[DagsterInstance]":
    """Opens the instance of ``DAGSTER_HOME``.

    Errors:
        ConfigurationError: the variable is not set, or the instance cannot be opened.
    """
    # Dagster takes seconds to import.
    from dagster import DagsterInstance

    if not os.environ.get("DAGSTER_HOME"):
        raise ConfigurationError(
            "DAGSTER_HOME is not set: set it to the folder that holds dagster.yaml"
        )
    try:
        instance = DagsterInstance.get()
    except Exception as error:
        raise ConfigurationError(f"Dagster's instance: {dagster_message(error)}") from error
    with instance:
        yield instance
