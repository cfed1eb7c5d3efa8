"""The pages of compaction queues."""

from datetime import timedelta

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue.queues import update_queue
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.service.conftest import MakeApi
from arctic_orchestration_tests.service.test_pages import browser, shown
from arctic_orchestration_tests.waiting.planted import plant


def test_a_queue_shows_its_hours_and_why_nothing_is_claimed(
    api: MakeApi, database: Database
) -> None:
    """Alone and in the list; without a budget it says so."""
    plant(database)
    pages = browser(api())
    assert "any number of tasks at once" in shown(pages, "/compaction/queues/big").text
    day = (utc_now() - timedelta(days=2)).strftime("%a").lower()
    hours = f"00:00-24:00 UTC {day}"
    with database.begin() as tx:
        update_queue(tx, "big", hours=hours, budget=0.5)
    for path in ("/compaction/queues", "/compaction/queues/big"):
        assert "its hours begin at 20" in shown(pages, path).text
    text = shown(pages, "/compaction/queues/big").text
    assert hours in text
    assert "0.5 tasks at once, on average" in text
