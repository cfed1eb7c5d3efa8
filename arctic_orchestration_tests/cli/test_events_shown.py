"""``arctic events tail`` on events of checks and freshness policies."""

from datetime import UTC, datetime

import pytest

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.cli.events import print_events
from arctic_orchestration.schedules.views.listing import ListedEvent

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("event", "details"),
    [
        (Event(kind=EventKind.CHECK, subject="a", at=AT, check="c", passed=True), "c passed"),
        (
            Event(
                kind=EventKind.CHECK, subject="a", at=AT, check="c", passed=False, severity="warn"
            ),
            "c failed (warn)",
        ),
        (Event(kind=EventKind.CHECK, subject="a", at=AT, check="c"), "c without a result"),
        (
            Event(
                kind=EventKind.FRESHNESS, subject="a", at=AT, previous_state="pass", state="fail"
            ),
            "pass to fail",
        ),
    ],
)
def test_the_details_say_the_result(
    event: Event, details: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kind, subject and result in one row."""
    print_events([ListedEvent(number=1, taken_at=AT, event=event)], None)
    shown = capsys.readouterr().out
    assert event.kind.value in shown
    assert details in shown
