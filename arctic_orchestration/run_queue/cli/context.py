"""Opens the run queue for a command."""

from collections.abc import Iterator
from contextlib import contextmanager

from arctic_orchestration.console.dagster_instance import opened_instance
from arctic_orchestration.console.state import opened_state
from arctic_orchestration.run_queue.dagster.open_queue import Opened, queue_of


@contextmanager
def opened_queue() -> Iterator[Opened]:
    """Opens the run queue of the Dagster instance in ``DAGSTER_HOME``.

    Errors:
        ConfigurationError: there is no instance, its run coordinator has no rules, or there is
            no state database yet.
        InvalidInput: a setting, or a rule of ``dagster.yaml``, is invalid.
    """
    with (
        opened_instance() as instance,
        opened_state(made_by="Dagster's daemon") as (settings, database),
        queue_of(instance, database, settings.cluster) as queue,
    ):
        yield queue
