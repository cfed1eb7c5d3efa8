"""What becomes of a notice if one of its channels is invalid, fails or waits."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.messages import Message
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.notifications.post import HOUR, Post, Postbox, news
from arctic_orchestration_tests.schedules.simulated import at


class Dead(Postbox):
    """Refuses each message, and keeps the names of their notices."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal = "no such host"
        self.asked: list[str] = []

    def send(self, message: Message, place: str) -> None:
        self.asked += [notice.schedule for notice in message.notices]
        super().send(message, place)


@pytest.fixture
def dead(post: Post) -> Dead:
    box = post.boxes["dead"] = Dead()
    return box


def _beside_a_dead_one(post: Post, per: str) -> None:
    post.channels({"url": "json://dead"}, {"url": "json://good", "limit": {"count": 1, "per": per}})


def _send_for_six_hours(post: Post, write: Callable[..., None]) -> None:
    """Two notices; the good channel has sent the first one, and its limit opens again after it."""
    _beside_a_dead_one(post, "6h")
    write(news(1), second=1)
    post.send(1)
    write(news(2), second=2)
    for second in range(2, 21_601, 60):
        post.send(second)


def test_a_notice_that_waits_for_a_limit_outlives_the_attempts_of_another_channel(
    post: Post, dead: Dead, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """The dead channel is given up alone, after as many attempts as ever."""
    _send_for_six_hours(post, write)
    ((_, _, _), (attempts, send_at, problem)) = rows()
    assert (attempts, send_at) == (5, at(21_601)), "it waits for the good channel"
    assert problem.endswith(": no such host")
    assert post.boxes["good"].names == ["s1"]
    post.send(21_601)
    assert post.boxes["good"].names == ["s1", "s2"]
    assert dead.asked.count("s2") == 5, "not asked again"
    assert [row[:2] for row in rows()] == [(5, None), (5, None)]
    assert rows()[1][2] == problem, "of the channel that does not have it"


def test_a_limit_opens_when_it_should_and_a_dead_channel_keeps_its_waits(
    post: Post, dead: Dead, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """Whichever of the two moments is earlier, the other channel is not asked at it."""
    _beside_a_dead_one(post, "5m")
    write(news(1), second=1)
    post.send(1)
    write(news(2), second=2)
    post.send(2)
    assert rows()[1][:2] == (1, at(62)), "the retry, before the limit opens"
    post.send(62)
    assert rows()[1][:2] == (2, at(301)), "the limit, before the retry"
    post.send(301)
    assert post.boxes["good"].names == ["s1", "s2"]
    assert dead.asked.count("s2") == 2
    assert rows()[1][:2] == (2, at(362))
    dead.refusal = None
    assert post.send(362) == 2
    assert post.boxes["good"].names == ["s1", "s2"], "once"


def test_each_channel_has_attempts_of_its_own(
    post: Post, dead: Dead, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """One that fails once is tried again, although the other one was given up."""
    _send_for_six_hours(post, write)
    post.boxes["good"].refusal = "busy"
    post.send(21_601)
    assert rows()[1][:2] == (5, at(21_661))
    post.boxes["good"].refusal = None
    post.send(21_661)
    assert post.boxes["good"].names == ["s1", "s2"]
    assert (rows()[1][1], dead.asked.count("s2")) == (None, 5)


def test_a_retry_that_meets_the_limit_waits_for_it(
    post: Post, dead: Dead, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """It is not due again at once, at the moment of the retry that has passed."""
    post.channels({"url": "json://dead", "limit": {"count": 1, "per": "1h"}})
    write(news(1))
    post.send(0)
    dead.refusal = None
    write(news(2), second=30)
    assert post.send(30) == 1
    assert post.send(60) == 0
    assert rows()[0][:2] == (1, at(3_630))
    assert post.send(3_630) == 1
    assert dead.names == ["s2", "s1"]


def test_no_notice_waits_for_a_channel_that_was_removed(
    post: Post, dead: Dead, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    _beside_a_dead_one(post, "1h")
    write(news(1))
    assert post.send(0) == 0
    post.channels({"url": "json://good"})
    assert post.send(60) == 1
    assert rows() == [(1, None, None)]


def test_a_channel_that_is_edited_keeps_what_it_was_sent(
    post: Post, dead: Dead, write: Callable[..., None]
) -> None:
    """While a notice waits for another one, it is not sent again; and the limit goes on."""
    limit = {"count": 3, "per": "1h"}
    good = {"url": "json://good", "limit": limit}
    post.channels({"url": "json://dead"}, good)
    write(news(1), news(2))
    assert post.send(1) == 0
    edited = {**good, "events": ["run_failed"]}
    other = {**good, "events": ["skipped"]}
    post.channels({"url": "json://dead"}, edited, other)
    write(news(3), news(4), news(5, Notice.SKIPPED), second=60)
    assert post.send(61) == 0
    assert sorted(post.boxes["good"].names) == ["s1", "s2", "s3", "s5"]
    (last,) = (one for one in post.boxes["good"].messages if one.notice.schedule == "s3")
    assert [notice.schedule for notice in last.held_back] == ["s4"]


def test_failures_are_no_messages(
    post: Post, dead: Dead, database: Database, location_id: int, write: Callable[..., None]
) -> None:
    """They stand beside the channels that have a notice, and take no place of a limit."""
    _beside_a_dead_one(post, "1h")
    write(news())
    post.send(0)
    with database.read() as tx:
        ((_, moments),) = outbox.messages_since(tx, location_id, at(0) - HOUR).items()
    assert moments == [at(0)]


def test_an_invalid_channel_mutes_no_other(
    post: Post, write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once a file, with its field; notices only wait if no channel is valid."""
    wrong = {"url": "json://later:${NOT_SET_ANYWHERE}@h"}
    refusal = ".url: got '${NOT_SET_ANYWHERE}', expected an environment variable that is set"
    none, some = (
        f"notifications are off: channels[0]{refusal}",
        f"some channels are off: channels[1]{refusal}",
    )
    with caplog.at_level(logging.WARNING):
        post.channels(wrong)
        write(news(1))
        assert post.send(0) == 0
        assert post.notifier.problem == none
        post.channels({"url": "json://good"}, wrong)
        assert post.send(1) == 1
        write(news(2), second=2)
        assert post.send(2) == 1
        assert post.notifier.problem == some
    assert post.boxes["good"].names == ["s1", "s2"]
    assert [record.getMessage() for record in caplog.records] == [none, some]
    post.channels({"url": "json://good"})
    write(news(3), second=3)
    assert post.send(3) == 1
    assert post.notifier.problem is None
