"""Who receives which notices, how often, and what a failing channel does."""

import itertools
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.channel_worker import Outlet
from arctic_orchestration.notifications.messages import Message
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.schedules.notifications.post import Post, Postbox, news
from arctic_orchestration_tests.schedules.simulated import at


def test_each_channel_receives_what_it_subscribed_to(
    post: Post, write: Callable[..., None]
) -> None:
    """By the kind of the event, and by the tags of the schedule, all of which must match."""
    post.channels(
        {"url": "json://everything"},
        {"url": "json://timeouts", "events": ["job_timed_out", "skipped"]},
        {"url": "json://ops", "tags": {"team": "ops", "level": "high"}},
    )
    write(
        news(1, Notice.JOB_TIMED_OUT),
        news(2, Notice.RUN_FAILED, tags={"team": "ops", "level": "high", "more": "x"}),
        news(3, Notice.QUARANTINED, tags={"team": "ops"}),
    )
    assert post.send(1) == 3
    assert post.boxes["everything"].names == ["s1", "s2", "s3"]
    assert post.boxes["timeouts"].names == ["s1"]
    assert post.boxes["ops"].names == ["s2"]
    assert post.send(1_000) == 0
    assert post.boxes["everything"].names == ["s1", "s2", "s3"]


@pytest.mark.parametrize("failing", [1, 2])
def test_channels_are_read_again_if_the_database_did_not_answer(
    post: Post, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """At whichever of them it fails: each gets the notice."""
    post.channels({"url": "json://one"}, {"url": "json://two"})
    write(news())
    read, calls = outbox.messages_since, itertools.count(1)

    def messages_since(*arguments: Any) -> Any:
        if next(calls) == failing:
            raise DatabaseUnavailable("the server restarts")
        return read(*arguments)

    monkeypatch.setattr(outbox, "messages_since", messages_since)
    with pytest.raises(DatabaseUnavailable):
        post.send(1)
    assert post.send(2) == 1
    assert [post.boxes[name].names for name in ("one", "two")] == [["s1"], ["s1"]]


def test_a_notice_without_subscriber_is_done(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """It does not wait for a channel that might come."""
    post.channels({"url": "json://timeouts", "events": ["job_timed_out"]})
    write(news(1, Notice.SKIPPED))
    assert post.send(1) == 1
    assert rows() == [(0, None, None)]


def test_a_failing_channel_is_retried_and_the_others_are_not(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """After 1 minute, 5, 30, 2 hours; the good channel gets one message."""
    post.channels({"url": "json://good"}, {"url": "json://bad"})
    write(news())
    post.boxes["bad"] = Postbox()
    post.boxes["bad"].refusal = "no such host"
    moment = 0
    for attempt, wait in enumerate((60, 300, 1_800, 7_200), start=1):
        assert post.send(moment) == 0
        ((attempts, send_at, problem),) = rows()
        assert (attempts, send_at) == (attempt, at(moment + wait))
        assert problem.endswith(": no such host")
        assert post.send(moment + wait - 1) == 0, "too early"
        moment += wait
    assert post.send(moment) == 0
    ((attempts, send_at, problem),) = rows()
    assert (attempts, send_at) == (5, None), "given up"
    assert post.boxes["good"].names == ["s1"]


def test_a_channel_that_recovers_receives_what_it_missed(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """And the problem it had is forgotten."""
    post.channels({"url": "json://a"})
    post.boxes["a"] = Postbox()
    post.boxes["a"].refusal = "down"
    write(news())
    post.send(0)
    post.boxes["a"].refusal = None
    assert post.send(60) == 1
    assert post.boxes["a"].names == ["s1"]
    assert rows() == [(1, None, None)]


def test_a_channel_that_hangs_delays_no_other(
    database: Database,
    tmp_path: Path,
    write: Callable[..., None],
    rows: Callable[[], list[Any]],
) -> None:
    """The others get their messages; it gets the next one after it has answered."""
    post = Post(database, tmp_path, patience=timedelta(milliseconds=50))
    post.channels({"url": "json://hangs"}, {"url": "json://good"})
    hangs = post.boxes["hangs"] = Postbox()
    hangs.answer.clear()
    write(news(1))
    assert post.send(0) == 0
    assert post.boxes["good"].names == ["s1"]
    ((attempts, send_at, problem),) = rows()
    assert (attempts, send_at) == (1, at(60))
    assert problem.endswith("no answer within 50ms")
    write(news(2), second=1)
    assert post.send(1) == 0
    assert post.boxes["good"].names == ["s1", "s2"]
    assert rows()[1][2].endswith("it has not answered to an earlier message yet")
    hangs.answer.set()
    for thread in threading.enumerate():
        if thread.name.startswith("arctic-notices-json"):
            thread.join(PATIENCE_SECONDS)
    assert post.send(61) == 2
    assert hangs.names == ["s1", "s1", "s2"], "at least once: the first was late, not lost"


def test_a_message_that_never_ends_does_not_stop_its_channel_for_good(
    database: Database, tmp_path: Path, write: Callable[..., None]
) -> None:
    """Such as one to a service that sends a byte of its answer every second."""
    post = Post(database, tmp_path, patience=timedelta(milliseconds=50))
    post.channels({"url": "json://hangs"})
    hangs = post.boxes["hangs"] = Postbox()
    hangs.answer.clear()
    write(news(1))
    assert post.send(0) == 0
    never, hangs.answer = hangs.answer, threading.Event()
    hangs.answer.set()
    assert post.send(60) == 0, "it may still answer"
    assert post.send(3_600) == 1
    assert hangs.names == ["s1"]
    never.set()


def test_a_channel_that_has_just_answered_gets_the_next_message(
    post: Post, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its thread takes to end after that."""
    end = threading.Event()
    send = Outlet._send

    def slow_to_end(*arguments: Any) -> None:
        send(*arguments)
        assert end.wait(600)

    monkeypatch.setattr(Outlet, "_send", slow_to_end)
    post.channels({"url": "json://a"})
    write(news(1))
    assert post.send(0) == 1
    write(news(2), second=1)
    assert post.send(1) == 1
    assert post.boxes["a"].names == ["s1", "s2"]
    end.set()


def test_a_flood_is_sent_in_as_many_messages_as_the_limit_allows(
    post: Post, write: Callable[..., None]
) -> None:
    """Forty-seven notices and ten messages: the tenth counts the other thirty-seven."""
    post.channels({"url": "json://a"})
    write(*(news(n, Notice.RUN_FAILED if n <= 30 else Notice.SKIPPED) for n in range(1, 48)))
    assert post.send(0) == 47
    messages = post.boxes["a"].messages
    assert post.boxes["a"].names == [f"s{n}" for n in range(1, 11)]
    # Of 30 failures ten are sent, and of 17 that were skipped none.
    line = "and 37 more were held back (run_failed 20, skipped 17)"
    assert messages[9].body("default/here").endswith(line)
    assert "held back" not in messages[8].body("default/here")


def test_news_after_a_flood_waits_for_one_opening_of_the_limit(
    post: Post, write: Callable[..., None]
) -> None:
    """Ten messages stand for all 2,500 failures, and the next hour is for what comes later."""
    post.channels({"url": "json://a"})
    write(*map(news, range(1, 2_501)))
    assert post.send(0) == 2_500
    last = post.boxes["a"].messages[-1].body("default/here")
    assert last.endswith("and 2490 more were held back (run_failed 2490)")
    write(news(9_999, Notice.QUARANTINED), second=1)
    assert post.send(1) == 0
    assert post.send(3_600) == 1
    assert post.boxes["a"].names[-1] == "s9999"


def test_a_message_that_failed_takes_no_place_of_the_limit(
    post: Post, write: Callable[..., None]
) -> None:
    """It is tried again after a minute, and not when the limit's hour is over."""
    post.channels({"url": "json://a", "limit": {"count": 1, "per": "1h"}})
    write(news(1))
    post.boxes["a"] = Postbox()
    post.boxes["a"].refusal = "no such host"
    assert post.send(0) == 0
    post.boxes["a"].refusal = None
    assert post.send(61) == 1
    write(news(2))
    assert post.send(3_600) == 0
    assert post.send(3_662) == 1
    assert post.boxes["a"].names == ["s1", "s2"]


def test_what_comes_past_the_limit_waits_until_there_is_room(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """No attempt is counted, and the first message that may be sent has all of it."""
    post.channels({"url": "json://a", "limit": {"count": 2, "per": "1h"}})
    write(news(1))
    post.send(0)
    write(news(2), second=600)
    post.send(600)
    write(news(3), news(4), news(5), second=700)
    assert post.send(700) == 0
    assert rows()[2:] == [(0, at(3_600), None)] * 3
    assert post.send(3_599) == 0
    assert post.send(3_600) == 3
    assert post.boxes["a"].names == ["s1", "s2", "s3"]
    assert "and 2 more were held back" in post.boxes["a"].messages[-1].body("x")


def test_messages_from_while_the_clock_was_ahead_do_not_silence_a_channel(
    post: Post, write: Callable[..., None]
) -> None:
    """It was set back by a day, and the limit is one of hours."""
    post.channels({"url": "json://a", "limit": {"count": 1, "per": "1h"}})
    write(news(1), second=86_400)
    assert post.send(86_400) == 1
    write(news(2), second=10)
    assert post.send(10) == 1
    write(news(3), second=20)
    assert post.send(20) == 0


def test_news_of_more_than_a_day_ago_is_not_sent(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """A channel that is configured today does not begin with last week."""
    post.channels({"url": "json://a"})
    write(news(1))
    write(news(2), second=1)
    assert post.send(86_401) == 1
    assert post.boxes["a"].names == ["s2"]
    assert rows()[0] == (0, None, "not sent within 1 day")


def test_a_message_says_what_happened_where_and_why() -> None:
    """With the job, the moment and the tags."""
    stored = outbox.StoredNotice(
        id=1,
        at=datetime(2026, 3, 1, 4, 5, 6, tzinfo=UTC),
        event=Notice.JOB_TIMED_OUT,
        schedule="orders",
        reason="timed out: 1 of 1 slots is taken",
        job_id="01J",
        tags={"team": "ops", "a": "b"},
        attempts=0,
        sent_to={},
    )
    message = Message(notice=stored)
    assert message.title() == "orders: job timed out"
    assert message.body("north/lake") == (
        "timed out: 1 of 1 slots is taken\n"
        "\n"
        "at 2026-03-01 04:05:06 UTC in north/lake\n"
        "job 01J\n"
        "tags a=b, team=ops"
    )
    assert not message.is_failure


def test_a_broken_file_stops_nothing_and_is_read_again_when_it_changes(
    post: Post, write: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Notices wait meanwhile."""
    write(news())
    with caplog.at_level(logging.WARNING):
        assert post.send(1) == 0
        assert post.send(1) == 0
    assert len(caplog.records) == 1, "once a file, not once a round"
    assert post.notifier.problem is not None
    assert "No such file" in post.notifier.problem
    post.path.write_text("channels: 5")
    assert post.send(2) == 0
    assert "channels: got 5, expected a list" in post.notifier.problem
    post.channels({"url": "json://a"})
    assert post.send(3) == 1
    assert post.notifier.problem is None


def test_a_file_of_the_same_size_and_age_is_another_one(
    post: Post, write: Callable[..., None], tmp_path: Path
) -> None:
    """As by rsync -t and a link that is switched."""
    write(news())
    wrong = tmp_path / "wrong.yaml"
    post.channels({"url": "json://a"})
    wrong.write_text("x" * post.path.stat().st_size)
    right = post.path.rename(tmp_path / "right.yaml")
    for file in (wrong, right):
        os.utime(file, (1, 1))
    post.path.symlink_to(wrong)
    assert post.send(1) == 0
    assert post.notifier.problem is not None
    post.path.unlink()
    post.path.symlink_to(right)
    assert post.send(2) == 1
    assert post.notifier.problem is None


def test_a_channel_that_stays_keeps_its_limit_when_the_file_changes(
    post: Post, write: Callable[..., None]
) -> None:
    """An edit elsewhere in the file is no new allowance."""
    narrow = {"url": "json://a", "limit": {"count": 1, "per": "1h"}}
    post.channels(narrow)
    write(news(1))
    post.send(0)
    post.channels(narrow, {"url": "json://b"})
    write(news(2), second=1)
    post.send(1)
    assert (post.boxes["a"].names, post.boxes["b"].names) == (["s1"], ["s2"])


def test_a_limit_outlives_the_process(
    post: Post, write: Callable[..., None], database: Database, tmp_path: Path
) -> None:
    """Dagster may start code servers again each minute; that is no new allowance."""
    post.channels({"url": "json://a", "limit": {"count": 2, "per": "1h"}})
    write(news(1))
    post.send(0)
    write(news(2), news(3), news(4), second=600)
    post.send(600)
    assert post.boxes["a"].names == ["s1", "s2"]
    write(news(5), second=700)
    next_process = Post(database, tmp_path, patience=timedelta(seconds=30))
    assert next_process.send(700) == 0
    assert next_process.send(3_600) == 1, "the first message was an hour ago"
    assert next_process.boxes["a"].names == ["s5"]


def test_sensors_that_tick_at_once_start_one_thread(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would send at once, and each would find the channel busy with the other's message."""
    both, started = threading.Barrier(2), []

    class Slow(threading.Thread):
        is_started = False

        def is_alive(self) -> bool:
            return self.is_started

        def start(self) -> None:
            started.append(self)
            with suppress(threading.BrokenBarrierError):
                both.wait(0.5)
            self.is_started = True

    sensors = [threading.Thread(target=post.notifier.wake) for _ in range(2)]
    monkeypatch.setattr(threading, "Thread", Slow)
    for sensor in sensors:
        sensor.start()
    for sensor in sensors:
        sensor.join()
    assert len(started) == 1
