"""What a run queue says in a test, and the time that it is given."""

import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import DagsterEventType

from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue

#: ten seconds before the window opens that tests have for the night
EVENING = datetime(2026, 3, 2, 21, 59, 50, tzinfo=UTC)


class Clock:
    """The time that the coordinator reads."""

    now = EVENING

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **span: float) -> None:
        self.now += timedelta(**span)


@contextlib.contextmanager
def listening() -> Iterator[list[logging.LogRecord]]:
    """What the coordinator logs meanwhile."""
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, handler = logging.getLogger("dagster.run_coordinator.arctic"), Kept()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield records
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def reported_waits(queue: RunQueue, run: Any) -> list[str]:
    """The reported waits of a run."""
    records = queue.instance.get_records_for_run(
        run.run_id, of_type=DagsterEventType.ENGINE_EVENT
    ).records
    messages = [present(record.event_log_entry.dagster_event).message or "" for record in records]
    start = "Waits in the queue: "
    return [text.removeprefix(start) for text in messages if text.startswith(start)]


def logged(log: list[logging.LogRecord]) -> list[tuple[str, str]]:
    """Level and first words of what was logged."""
    return [(record.levelname, record.getMessage().split(":")[0]) for record in log]


BEGIN_AND_END = [
    ("ERROR", "Trouble with the run queue"),
    ("INFO", "The run queue has recovered"),
]
