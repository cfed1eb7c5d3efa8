"""A consumer stops where Dagster's log went back, and goes on where a person says."""

import dagster as dg
import pytest

from arctic_orchestration.errors import LogWentBack
from arctic_orchestration_tests.code_location.odd_events import arrive, execute
from arctic_orchestration_tests.consumers.dagster_assets import MakeConsumer


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_it_says_which_command_decides(
    consumer: MakeConsumer, instance: dg.DagsterInstance
) -> None:
    """Ten are read, five are lost, seven come under ids that were used: nothing is delivered."""
    made = consumer("raw/a")
    made.register()
    for number in range(10):
        arrive(instance, partition=str(number))
    with made.consume() as partitions:
        assert len(partitions) == 10
    execute(instance, "event_logs", "delete from event_logs where id > 5")
    execute(instance, "event_logs", "select setval(pg_get_serial_sequence('event_logs', 'id'), 5)")
    for number in range(7):
        arrive(instance, partition=f"new {number}")
    for _ in range(2):
        with pytest.raises(LogWentBack, match="arctic consumers reset totals --start from_now"):
            made.consume().__enter__()
