"""The daemon's log has what the sensors of this package did, not that they had nothing to do."""

import logging
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration import idle_ticks
from arctic_orchestration.idle_ticks import IdleTicks
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue

BEGIN = "Checking for new runs for sensor: arctic_dispatcher"
IDLE = "Sensor arctic_dispatcher skipped: nothing new and nothing due"
HELD = "Sensor arctic_dispatcher skipped: held 1: nightly (opens 22:00 UTC)"


def logged(*lines: tuple[float, str]) -> list[str]:
    """Those of the lines, each at a second, that pass."""
    ticks, passed = IdleTicks(), []
    for second, line in lines:
        record = logging.LogRecord("x", logging.INFO, __file__, 1, line, None, None)
        record.created = second
        if ticks.filter(record):
            passed.append(line)
    return passed


def test_a_tick_without_news_is_not_logged() -> None:
    """What a tick says is logged once, until ten minutes have passed."""
    lines = [(5.0 * number + part, line) for number in range(3)
             for part, line in enumerate((BEGIN, IDLE))]  # fmt: skip
    assert logged(*lines) == [IDLE]
    assert logged(*lines, (20, BEGIN), (21, HELD), (26, IDLE)) == [IDLE, HELD]
    assert logged((0, IDLE), (599, IDLE), (600, IDLE), (1199, IDLE)) == [IDLE, IDLE]


def test_a_consumers_sensor_is_recognized_by_its_text() -> None:
    """Its name is its user's; the first line that begins a tick comes too early."""
    begin = "Checking for new runs for sensor: handle_flights"
    idle = "Sensor handle_flights skipped: consumer my.flights-2: nothing new"
    again = "Sensor handle_flights skipped: the database is unavailable"
    lines = [(0.0, begin), (1.0, idle), (5.0, begin), (6.0, idle), (7.0, again), (8.0, again)]
    assert logged(*lines) == [begin, idle, again, again]


@pytest.mark.parametrize(
    "line",
    [
        "Creating new run for arctic_dispatcher",
        "Checking for new runs for sensor: mine",
        "Sensor mine skipped: nothing",
        "Sensor tick caught an error",
    ],
)
def test_all_other_lines_are_logged(line: str) -> None:
    """Each time."""
    assert logged((0, line), (1, line)) == [line, line]


def test_a_clock_that_was_set_back_keeps_nothing_out() -> None:
    """The old moment lies in the future, and is no reason to wait for it."""
    assert logged((1000, IDLE), (10, IDLE), (11, IDLE)) == [IDLE, IDLE]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_the_coordinator_brings_the_filter_into_the_daemon(
    backend: str, make_queue: Callable[..., RunQueue]
) -> None:
    """Once, however many instances a process makes."""
    logger = logging.getLogger("dagster.daemon.SensorDaemon")
    logger.removeFilter(idle_ticks._idle_ticks)
    for _ in range(2):
        assert make_queue(backend, OURS).instance.run_coordinator is not None
    assert logger.filters.count(idle_ticks._idle_ticks) == 1


def test_so_does_the_launcher(dagster_instance: Callable[[str], dg.DagsterInstance]) -> None:
    """An instance with Dagster's own run coordinator has the filter, too."""
    home = Path(dagster_instance("sqlite").root_directory)
    with (home / "dagster.yaml").open("a") as configuration:
        configuration.write(
            "run_launcher:\n"
            "  module: arctic_orchestration.run_launcher\n"
            "  class: ArcticRunLauncher\n"
        )
    logger = logging.getLogger("dagster.daemon.SensorDaemon")
    logger.removeFilter(idle_ticks._idle_ticks)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.run_launcher is not None
    assert logger.filters.count(idle_ticks._idle_ticks) == 1
