"""Dagster's instance, for the few requests that need it."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from arctic_orchestration.console.dagster_instance import opened_instance
from arctic_orchestration.errors import ArcticError, ConfigurationError, RequestRefused
from arctic_orchestration.service.problems import RETRY_SECONDS

if TYPE_CHECKING:
    from dagster import DagsterInstance

_log = logging.getLogger(__name__)

#: Requests that use Dagster's storage at once. If it hangs, they occupy so many of the threads, and
#: the rest answers those that need the state database alone.
AT_ONCE = 40
THREADS = 2 * AT_ONCE
_places = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def instance_of_service() -> "Iterator[DagsterInstance]":
    """Opens the instance of ``DAGSTER_HOME``, as it is at the moment of the request.

    Errors:
        RequestRefused: 409, the service has none; 503, it cannot be opened, or too many use it.
    """
    check_home()
    # It imports Dagster, which takes seconds.
    from arctic_orchestration import migration_scripts, postgres_connections

    migration_scripts.remember()
    postgres_connections.reuse_from_now_on()
    with ExitStack() as opened:
        if not _places.acquire(blocking=False):
            raise RequestRefused(
                503,
                f"{AT_ONCE} requests wait for Dagster's storage. Nothing was changed",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        opened.callback(_places.release)
        try:
            instance = opened.enter_context(opened_instance())
        except ConfigurationError as error:
            raise unusable(error) from error
        yield instance


def check_home() -> None:
    """Refuses a request that needs Dagster's instance if the service has none.

    Errors:
        RequestRefused: 409.
    """
    if not os.environ.get("DAGSTER_HOME"):
        raise RequestRefused(
            409,
            "This service has no instance of Dagster: arctic serve needs DAGSTER_HOME, the folder "
            "that holds dagster.yaml. Nothing was changed",
        )


def unusable(error: ArcticError) -> RequestRefused:
    """Logs why Dagster's instance cannot be used; returns the answer, which gives no details."""
    _log.warning("Dagster's instance: %s", error)
    return RequestRefused(
        503,
        "Dagster's instance cannot be used as dagster.yaml describes it; the log of the service "
        "has the reason. Nothing was changed",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )
