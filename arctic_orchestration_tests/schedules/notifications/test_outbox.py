"""The outbox: what is written with its cause, claimed, sent and deleted."""

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import Schedule, on
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.schedules import job_notices
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.state import dialect, tables
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.notifications.post import DAY, Post, news
from arctic_orchestration_tests.schedules.simulated import World, at


def test_a_notice_is_there_with_its_cause_or_not_at_all(
    database: Database, location_id: int, rows: Callable[[], list[Any]]
) -> None:
    """It is written in the transaction of its cause, and goes when that is rolled back."""

    class Crash(Exception): ...

    with pytest.raises(Crash), database.begin() as tx:
        outbox.write(tx, location_id, [news()], at(0))
        raise Crash
    assert rows() == []


def test_moves_become_news_with_the_name_and_tags_of_their_schedule(
    database: Database, world: Callable[..., World]
) -> None:
    """Channels choose by the tags of the schedule, which a job does not have."""
    made = world(
        [
            Schedule(
                name="orders",
                target={"job": "work"},
                trigger=on.partitions("raw/a", count=2),
                timeout="1m",
                tags={"team": "ops"},
                enabled=True,
            )
        ]
    )
    made.feed.arrive("raw/a", "1")
    made.engine.tick(at(1))
    moves = made.engine.tick(at(62)).moves
    with database.read() as tx:
        (one,) = job_notices.of_moves(tx, [(moves[-1], Notice.JOB_TIMED_OUT)])
    assert (one.event, one.schedule, one.tags) == ("job_timed_out", "orders", {"team": "ops"})
    assert (one.job_id, one.reason) == (moves[-1].job.id, moves[-1].reason)


def test_a_run_that_fails_is_sent_to_its_subscribers(
    world: Callable[..., World], post: Post
) -> None:
    """From the event log to the message, and nothing of the run that succeeded."""
    common: dict[str, Any] = {"trigger": on.partitions("raw/a"), "enabled": True}
    made = world(
        [
            Schedule(name="good", target={"job": "good"}, tags={"team": "ops"}, **common),
            Schedule(name="bad", target={"job": "bad"}, tags={"team": "ops"}, **common),
        ]
    )
    post.channels({"url": "json://ops", "events": ["run_failed"], "tags": {"team": "ops"}})
    made.feed.arrive("raw/a", "1")
    runs = made.tick(1)
    jobs = {made.dagster.runs[run].job: run for run in runs}
    made.dagster.end(jobs["good"], RunStatus.SUCCESS)
    made.dagster.end(jobs["bad"], RunStatus.FAILURE)
    made.tick(2)
    assert post.send(2) == 1
    (message,) = post.boxes["ops"].messages
    assert message.title() == "bad: run failed"
    assert jobs["bad"] in message.body("x")


def test_a_claimed_notice_has_one_owner_until_its_lease_ends(
    database: Database, location_id: int, write: Callable[..., None]
) -> None:
    """Two dispatchers do not send it twice; when the first one died, the second one does."""
    write(news(1), news(2))
    with database.begin() as tx:
        first = outbox.claim(tx, location_id, at(1), 1)
    with database.begin() as tx:
        second = outbox.claim(tx, location_id, at(1), 10)
    assert [n.schedule for n in first] == ["s1"]
    assert [n.schedule for n in second] == ["s2"]
    with database.read() as tx:
        assert not outbox.due(tx, location_id, at(300))
        assert outbox.due(tx, location_id, at(301))
    with database.begin() as tx:
        assert len(outbox.claim(tx, location_id, at(301), 10)) == 2


def test_claims_at_the_same_time_share_no_notice(
    database: Database, location_id: int, write: Callable[..., None]
) -> None:
    """Four claim two hundred notices in tens; each notice is one's, and none is left."""
    write(*(news(number) for number in range(200)))
    taken: list[list[int]] = [[] for _ in range(4)]
    begin = threading.Barrier(4)

    def take(mine: list[int]) -> None:
        begin.wait()
        while True:
            with database.begin() as tx:
                claimed = outbox.claim(tx, location_id, at(1), 10)
            if not claimed:
                return
            mine += [notice.id for notice in claimed]

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_taken = [id for mine in taken for id in mine]
    assert (len(all_taken), len(set(all_taken))) == (200, 200)


def test_other_locations_notices_are_theirs(
    database: Database, location_id: int, write: Callable[..., None]
) -> None:
    """Each location's process tells of its own jobs."""
    write(news())
    with database.begin() as tx:
        other = locations.locked(tx, "default", "there").id
        assert outbox.claim(tx, other, at(1), 10) == []


def test_a_kind_of_a_later_version_waits_and_stops_no_other_notice(
    database: Database, location_id: int, post: Post, rows: Callable[[], list[Any]]
) -> None:
    """As after a downgrade to a version with the same tables."""
    post.channels({"url": "json://a"})
    with database.begin() as tx:
        outbox.write(tx, location_id, [news(1), news(2)], at(0))
        tx.execute(
            sa.update(tables.notices)
            .where(tables.notices.c.schedule == "s1")
            .values(event="of_later")
        )
    assert post.send(0) == 1
    assert post.boxes["a"].names == ["s2"]
    assert rows() == [(0, at(0), None), (0, None, None)]


def test_a_notice_that_a_limit_of_a_day_holds_back_is_not_too_old(
    post: Post,
    write: Callable[..., None],
    rows: Callable[[], list[Any]],
    database: Database,
    tmp_path: Path,
) -> None:
    """The tick after the opening may be late, and what is sent then counts for the limit."""
    post.channels({"url": "json://a", "limit": {"count": 1, "per": "1d"}})
    write(news(1))
    post.send(0)
    write(news(2), news(3), second=2)
    assert post.send(5) == 0
    assert post.send(87_100) == 2, "the limit opened at 86,400"
    (_, message) = post.boxes["a"].messages
    assert [notice.schedule for notice in message.notices] == ["s2", "s3"]
    write(news(4), second=173_400)
    next_process = Post(database, tmp_path, patience=timedelta(seconds=30))
    assert next_process.send(173_400) == 0
    assert rows()[3] == (0, at(173_500), None)


def test_a_notice_that_is_held_back_after_an_outage_gets_too_old(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """Two days after its cause, although its limit opened later than a day ago."""
    post.channels({"url": "json://a", "limit": {"count": 1, "per": "1d"}})
    write(news(1), second=72_000)
    post.send(72_000)
    write(news(2), second=1)
    write(news(3), second=72_001)
    assert post.send(72_001) == 0
    assert [row[1] for row in rows()[1:]] == [at(158_400)] * 2
    assert post.send(172_802) == 1
    assert post.boxes["a"].names == ["s1", "s3"]
    assert rows()[1] == (0, None, "not sent within 1 day")


def test_two_days_ahead_no_notice_is_too_old(
    post: Post, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the database's time it was written a minute ago."""
    monkeypatch.setattr(dialect, "database_time", lambda tx: at(60))
    post.channels({"url": "json://a"})
    write(news(1))
    assert post.send(172_800) == 1
    assert post.boxes["a"].names == ["s1"]


def test_old_notices_are_deleted_whether_they_were_sent_or_not(
    database: Database, location_id: int, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """They are kept for thirty days."""
    write(news(1))
    write(news(2), second=60)
    month = at(0) + 30 * DAY
    with database.begin() as tx:
        assert outbox.prune(tx, location_id, month) == 0
        assert outbox.prune(tx, location_id, month + timedelta(seconds=1)) == 1
    assert len(rows()) == 1
