"""A consumer takes, or sets aside, whatever stands in the log, and goes on."""

from collections.abc import Callable
from dataclasses import replace

import dagster as dg
import pytest

from arctic_orchestration.consumers import working_set
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.code_location.odd_events import KINDS, OTHERS, REFUSED, arrive
from arctic_orchestration_tests.consumers.dagster_assets import MakeConsumer


def test_every_odd_event_is_read_and_what_follows_is_delivered(
    consumer: MakeConsumer, instance: dg.DagsterInstance, backend: str
) -> None:
    """All kinds in one log; the metadata of each arrival that is delivered can be read."""
    made = consumer("raw/a")
    made.register()
    stored = [kind for kind in KINDS if kind not in REFUSED[backend]]
    for kind in stored:
        KINDS[kind](instance)
    arrive(instance, partition="last")
    with made.consume() as partitions:
        keys = [partition.key for partition in partitions]
    assert keys[-1] == "last"
    assert "odd" in keys
    assert len([kind for kind in stored if kind not in OTHERS]) > 15


def test_an_arrival_that_cannot_be_stored_is_set_aside(
    consumer: MakeConsumer,
    instance: dg.DagsterInstance,
    state: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of twenty fails whatever is done: the others are delivered, and it is listed."""
    made = consumer("raw/a")
    made.register()
    for number in range(20):
        arrive(instance, partition=str(number))

    def broken(details: Callable[[Event], str]) -> Callable[[Event], str]:
        return lambda event: details(
            replace(event, metadata={"x": object()}) if event.partition == "7" else event
        )

    monkeypatch.setattr(working_set, "_details", broken(working_set._details))
    with made.consume() as partitions:
        assert {p.key for p in partitions} == {str(n) for n in range(20)} - {"7"}
    with state.read() as tx:
        (aside,) = unreadable_events.listed(tx, "default", limit=10)
    assert (aside.reader, aside.event) == ("consumer totals", "partition raw/a 7")
