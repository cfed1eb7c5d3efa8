"""``arctic events unreadable`` and its line in ``arctic doctor``."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta

from arctic_orchestration.cli.doctor import feed_checks
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.simulated import World, at


def test_they_are_listed_with_id_and_reason_and_doctor_counts_them(
    arctic: Callable[..., Outcome],
    world: Callable[[Sequence[Schedule]], World],
    database_url: str,
) -> None:
    """Two of this cluster; the one of another is not shown. Nothing to say while there is none."""
    world([])
    assert arctic("events", "unreadable").out == "no unreadable events\n"
    assert feed_checks.unreadable() == []
    database = Database(database_url)
    with database.begin() as tx:
        for cluster, number in (("default", 7), ("default", 8), ("other", 9)):
            about = {number: (f"partition raw/a\x1b[2J {number}", "ValueError: on\npurpose")}
            moment = at(0) + timedelta(seconds=number)
            unreadable_events.set_aside(tx, cluster, "consumer loader", about, moment)
    database.close()
    document = json.loads(arctic("events", "unreadable", "--json").out)
    assert document["count"] == 2
    assert [event["event_id"] for event in document["events"]] == [8, 7]
    assert document["events"][0] == {
        "reader": "consumer loader",
        "event_id": 8,
        "event": "partition raw/a\x1b[2J 8",
        "found_at": "2026-01-01T00:00:08+00:00",
        "reason": "ValueError: on\npurpose",
    }
    shown = arctic("events", "unreadable", "--limit", "1").out
    assert "2026-01-01 00:00:08Z" in shown
    assert shown.endswith("1 of 2\n")
    (finding,) = feed_checks.unreadable()
    assert finding.found == "2 events set aside, the newest 8: ValueError: on\npurpose"
    assert (finding.status, finding.advice) == ("warning", "see: arctic events unreadable")
