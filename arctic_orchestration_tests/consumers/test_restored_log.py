"""A consumer stops where Dagster's log went back, and goes on where a person says."""

import dagster as dg
import pytest

from arctic_orchestration.cli.doctor import feed_checks
from arctic_orchestration.consumers import control, store
from arctic_orchestration.errors import LogWentBack
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.code_location.odd_events import arrive, execute
from arctic_orchestration_tests.consumers.arrivals import NOON
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


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_doctor_names_the_consumer_until_it_is_reset(
    consumer: MakeConsumer,
    instance: dg.DagsterInstance,
    state: Database,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sensor would only skip its ticks, and no dispatcher may read the log."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    made = consumer("raw/a")
    made.register()
    arrive(instance, partition="1")
    with made.consume() as partitions:
        assert partitions.keys == ["1"]
    assert feed_checks.positions(instance) == []
    execute(instance, "event_logs", "delete from event_logs")
    execute(
        instance,
        "event_logs",
        "select setval(pg_get_serial_sequence('event_logs', 'id'), 1, false)",
    )
    (finding,) = feed_checks.positions(instance)
    assert (finding.check, finding.status) == ("consumer totals", "failed")
    assert "Dagster's event log went back" in finding.found
    assert finding.advice == "see: arctic consumers reset totals --help"
    with state.begin() as tx:
        known = store.find(tx, "default", "totals")
        assert known is not None
        control.reset(tx, known, "from_now", NOON)
    assert feed_checks.positions(instance) == []
