"""The outbox, and who is told what is in it: over real HTTP where apprise is involved."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from arctic_orchestration import Schedule, on
from arctic_orchestration.database import tables
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.events.event import RunStatus
from arctic_orchestration.scheduling import location as locations
from arctic_orchestration.scheduling import notices
from arctic_orchestration.scheduling.notices import News, Notice
from arctic_orchestration.scheduling.notification.channels import Channel, read_channels
from arctic_orchestration.scheduling.notification.messages import Message, Sender
from arctic_orchestration.scheduling.notification.notifier import Notifier, reach
from arctic_orchestration_tests.scheduling.simulated import World, at

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def news(number: int = 1, event: Notice = Notice.RUN_FAILED, **fields: Any) -> News:
    return News(
        **{"event": event, "schedule": f"s{number}", "reason": f"reason {number}", **fields}
    )


@pytest.fixture
def location_id(database: Database) -> int:
    with database.begin() as tx:
        return locations.locked(tx, "default", "here").id


@pytest.fixture
def write(database: Database, location_id: int) -> Callable[..., None]:
    """Writes news at a second of the tests."""

    def write(*some: News, second: float = 0) -> None:
        with database.begin() as tx:
            notices.write(tx, location_id, some, at(second))

    return write


@pytest.fixture
def rows(database: Database) -> Callable[[], list[tuple[Any, ...]]]:
    """Attempts, next moment and problem of each notice, in the order they were written."""

    def rows() -> list[tuple[Any, ...]]:
        n = tables.notices.c
        with database.read() as tx:
            query = sa.select(n.attempts, n.send_at, n.problem).order_by(n.id)
            return [tuple(row) for row in tx.execute(query)]

    return rows


class Postbox(Sender):
    """A channel in memory that can be told to refuse or to hang."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.refusal: str | None = None
        self.answer = threading.Event()
        self.answer.set()

    def send(self, message: Message, place: str) -> None:
        assert self.answer.wait(30)
        if self.refusal:
            raise RuntimeError(self.refusal)
        self.messages.append(message)

    @property
    def told(self) -> list[str]:
        return [message.told.schedule for message in self.messages]


class Post:
    """A notifier over postboxes, one for each channel, by the host of its URL."""

    def __init__(self, database: Database, folder: Path, patience: timedelta) -> None:
        self.boxes: dict[str, Postbox] = {}
        self.path = folder / "notifications.yaml"
        self.notifier = Notifier(
            database,
            cluster="default",
            location="here",
            path=self.path,
            clock=lambda: at(0),
            reach=self._reach,
            patience=patience,
        )

    def channels(self, *channels: dict[str, Any]) -> None:
        self.path.write_text(yaml.safe_dump({"channels": list(channels)}))

    def _reach(self, channel: Channel) -> Sender:
        host = channel.url.removeprefix("json://")
        return self.boxes.setdefault(host, Postbox())

    def send(self, second: float) -> int:
        return self.notifier.send_due(at(second))


@pytest.fixture
def post(database: Database, tmp_path: Path) -> Post:
    return Post(database, tmp_path, patience=timedelta(seconds=30))


def test_a_notice_is_there_with_its_cause_or_not_at_all(
    database: Database, location_id: int, rows: Callable[[], list[Any]]
) -> None:
    """It is written in the transaction of its cause, and goes when that is rolled back."""

    class Crash(Exception): ...

    with pytest.raises(Crash), database.begin() as tx:
        notices.write(tx, location_id, [news()], at(0))
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
        (one,) = notices.of_moves(tx, [(moves[-1], Notice.JOB_TIMED_OUT)])
    assert (one.event, one.schedule, one.tags) == ("job_timed_out", "orders", {"team": "ops"})
    assert (one.job_id, one.reason) == (moves[-1].job.id, moves[-1].reason)


def test_a_run_that_fails_is_told_to_those_who_asked(
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


def test_a_claimed_notice_is_nobody_elses_until_its_lease_ends(
    database: Database, location_id: int, write: Callable[..., None]
) -> None:
    """Two dispatchers do not send it twice; when the first one died, the second one does."""
    write(news(1), news(2))
    with database.begin() as tx:
        first = notices.claim(tx, location_id, at(1), 1)
    with database.begin() as tx:
        second = notices.claim(tx, location_id, at(1), 10)
    assert [n.schedule for n in first] == ["s1"]
    assert [n.schedule for n in second] == ["s2"]
    with database.read() as tx:
        assert not notices.due(tx, location_id, at(300))
        assert notices.due(tx, location_id, at(301))
    with database.begin() as tx:
        assert len(notices.claim(tx, location_id, at(301), 10)) == 2


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
                claimed = notices.claim(tx, location_id, at(1), 10)
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
        assert notices.claim(tx, other, at(1), 10) == []


def test_old_notices_are_deleted_whether_they_were_sent_or_not(
    database: Database, location_id: int, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """They are kept for thirty days."""
    write(news(1))
    write(news(2), second=60)
    month = at(0) + 30 * DAY
    with database.begin() as tx:
        assert notices.prune(tx, location_id, month) == 0
        assert notices.prune(tx, location_id, month + timedelta(seconds=1)) == 1
    assert len(rows()) == 1


def test_each_channel_is_told_what_it_asked_for(post: Post, write: Callable[..., None]) -> None:
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
    assert post.boxes["everything"].told == ["s1", "s2", "s3"]
    assert post.boxes["timeouts"].told == ["s1"]
    assert post.boxes["ops"].told == ["s2"]
    assert post.send(1_000) == 0
    assert post.boxes["everything"].told == ["s1", "s2", "s3"]


def test_what_nobody_wants_to_know_is_done_with(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """It does not wait for a channel that might come."""
    post.channels({"url": "json://timeouts", "events": ["job_timed_out"]})
    write(news(1, Notice.SKIPPED))
    assert post.send(1) == 1
    assert rows() == [(0, None, None)]


def test_a_failing_channel_is_asked_again_and_the_others_are_not(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """After 1 minute, 5, 30, 2 hours; the good channel is told once."""
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
    assert post.boxes["good"].told == ["s1"]


def test_a_channel_that_recovers_is_told_what_it_missed(
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
    assert post.boxes["a"].told == ["s1"]
    assert rows() == [(1, None, None)]


def test_a_channel_that_hangs_holds_up_nobody_else(
    database: Database,
    tmp_path: Path,
    write: Callable[..., None],
    rows: Callable[[], list[Any]],
) -> None:
    """The others are told; it is left alone until it answers, and then told again."""
    post = Post(database, tmp_path, patience=timedelta(milliseconds=50))
    post.channels({"url": "json://hangs"}, {"url": "json://good"})
    hangs = post.boxes["hangs"] = Postbox()
    hangs.answer.clear()
    write(news(1))
    assert post.send(0) == 0
    assert post.boxes["good"].told == ["s1"]
    ((attempts, send_at, problem),) = rows()
    assert (attempts, send_at) == (1, at(60))
    assert problem.endswith("no answer within 50ms")
    write(news(2), second=1)
    assert post.send(1) == 0
    assert post.boxes["good"].told == ["s1", "s2"]
    assert rows()[1][2].endswith("it has not answered to an earlier message yet")
    hangs.answer.set()
    for thread in threading.enumerate():
        if thread.name.startswith("arctic-notices-json"):
            thread.join(30)
    assert post.send(61) == 2
    assert hangs.told == ["s1", "s1", "s2"], "at least once: the first was late, not lost"


def test_a_flood_is_told_in_as_many_messages_as_the_limit_allows(
    post: Post, write: Callable[..., None]
) -> None:
    """Forty-seven notices and ten messages: the tenth counts the other thirty-seven."""
    post.channels({"url": "json://a"})
    write(*(news(n, Notice.RUN_FAILED if n <= 30 else Notice.SKIPPED) for n in range(1, 48)))
    assert post.send(0) == 47
    messages = post.boxes["a"].messages
    assert post.boxes["a"].told == [f"s{n}" for n in range(1, 11)]
    # Of 30 failures ten are told, and of 17 that were skipped none.
    line = "and 37 more were held back (run_failed 20, skipped 17)"
    assert messages[9].body("default/here").endswith(line)
    assert "held back" not in messages[8].body("default/here")


def test_what_comes_past_the_limit_waits_until_there_is_room(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """No attempt is counted, and all of it is told in the first message that may be sent."""
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
    assert post.boxes["a"].told == ["s1", "s2", "s3"]
    assert "and 2 more were held back" in post.boxes["a"].messages[-1].body("x")


def test_news_of_more_than_a_day_ago_is_not_told(
    post: Post, write: Callable[..., None], rows: Callable[[], list[Any]]
) -> None:
    """A channel that is configured today does not begin with last week."""
    post.channels({"url": "json://a"})
    write(news(1))
    write(news(2), second=1)
    assert post.send(86_401) == 1
    assert post.boxes["a"].told == ["s2"]
    assert rows()[0] == (0, None, "not sent within 1 day")


def test_a_message_says_what_happened_where_and_why() -> None:
    """With the job, the moment and the tags."""
    stored = notices.StoredNotice(
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
    message = Message(told=stored)
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
    assert (post.boxes["a"].told, post.boxes["b"].told) == (["s1"], ["s2"])


def test_a_limit_outlives_the_process(
    post: Post, write: Callable[..., None], database: Database, tmp_path: Path
) -> None:
    """Dagster may start code servers anew each minute; that is no new allowance."""
    post.channels({"url": "json://a", "limit": {"count": 2, "per": "1h"}})
    write(news(1))
    post.send(0)
    write(news(2), news(3), news(4), second=600)
    post.send(600)
    assert post.boxes["a"].told == ["s1", "s2"]
    write(news(5), second=700)
    next_process = Post(database, tmp_path, patience=timedelta(seconds=30))
    assert next_process.send(700) == 0
    assert next_process.send(3_600) == 1, "the first message was an hour ago"
    assert next_process.boxes["a"].told == ["s5"]


class _Mailbox(ThreadingHTTPServer):
    """An HTTP server on loopback that keeps what is posted to it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Mailbox

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def mailbox() -> Iterator[_Mailbox]:
    with _Mailbox() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_apprise_delivers_over_http(
    database: Database,
    tmp_path: Path,
    write: Callable[..., None],
    rows: Callable[[], list[Any]],
    mailbox: _Mailbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A URL with a variable; a refusal is a failed attempt with apprise's reason."""
    monkeypatch.setenv("MAILBOX_FOR_TESTS", mailbox.address)
    path = tmp_path / "n.yaml"
    path.write_text(yaml.safe_dump({"channels": [{"url": "json://${MAILBOX_FOR_TESTS}/hook"}]}))
    notifier = Notifier(
        database, cluster="default", location="here", path=path, clock=lambda: at(0)
    )
    mailbox.status = 500
    write(news(1, Notice.LAUNCH_FAILED, reason="partition 'x' is unknown"))
    assert notifier.send_due(at(1)) == 0
    ((attempts, _, problem),) = rows()
    assert attempts == 1
    assert "500" in problem
    assert mailbox.address not in problem, "what the environment holds stays there"
    mailbox.status = 200
    assert notifier.send_due(at(61)) == 1
    path_posted, body = mailbox.posted[-1]
    assert path_posted == "/hook"
    assert (body["title"], body["type"]) == ("s1: launch failed", "failure")
    assert body["message"].startswith("partition 'x' is unknown\n")


def test_the_background_thread_sends_once_it_is_woken(
    database: Database, tmp_path: Path, write: Callable[..., None]
) -> None:
    """Waking returns at once; an error in a round does not end the thread."""
    sent = threading.Event()
    rounds: list[int] = []

    class Ringing(Postbox):
        def send(self, message: Message, place: str) -> None:
            sent.set()

    failed = threading.Event()

    def clock() -> datetime:
        rounds.append(1)
        if len(rounds) == 1:
            failed.set()
            raise RuntimeError("the first round goes wrong")
        return at(1)

    path = tmp_path / "n.yaml"
    path.write_text("channels: [{url: json://a}]")
    notifier = Notifier(
        database,
        cluster="default",
        location="here",
        path=path,
        clock=clock,
        reach=lambda channel: Ringing(),
    )
    write(news())
    notifier.wake()
    assert failed.wait(30)
    notifier.wake()
    assert sent.wait(30)
    notifier.close()
    assert notifier._thread is not None
    notifier._thread.join(30)
    assert not notifier._thread.is_alive()


@pytest.mark.parametrize(
    ("text", "field", "value", "expected"),
    [
        ("channels: 5", "channels", 5, "a list"),
        ("[]", "(definition)", "a list", "a mapping"),
        ("other: 1", "channels", None, "a value: the field is required"),
        ("channels: ['json://u:secret@h']", "channels[0]", "json://…", "a mapping"),
        ("channels: [{}]", "channels[0].url", None, "a value: the field is required"),
        ("channels: [{url: 'nope://secret'}]", "channels[0].url", "nope://…", "apprise knows"),
        ("channels: [{url: secret}]", "channels[0].url", "?://…", "a URL that apprise knows"),
        (
            "channels: [{url: 'json://${NOT_SET_ANYWHERE}'}]",
            "channels[0].url",
            "${NOT_SET_ANYWHERE}",
            "an environment variable that is set",
        ),
        (
            "channels: [{url: 'json://a', events: [job_lost]}]",
            "channels[0].events",
            "a list",
            "a list of job_discarded, job_timed_out, launch_failed, run_failed, "
            "quarantined, skipped",
        ),
        ("channels: [{url: 'json://a', tags: ops}]", "channels[0].tags", "ops", "a mapping"),
        (
            "channels: [{url: 'json://a', limit: {count: 0}}]",
            "channels[0].limit.count",
            0,
            "at least 1",
        ),
        (
            "channels: [{url: 'json://a', limit: {per: 60}}]",
            "channels[0].limit.per",
            60,
            "a duration such as",
        ),
        (
            "channels: [{url: 'json://a', limit: {per: 0s}}]",
            "channels[0].limit.per",
            "0s",
            "a duration above zero",
        ),
        ("channels: [{url: 'json://a', to: ops}]", "channels[0].to", "ops", "no such field"),
        (
            "channels: [{url: 'json://u:secret@h'}, {url: 'json://u:secret@h'}]",
            "channels[1].url",
            "json://…",
            "a channel that is not listed twice",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_field_and_shows_no_secret(
    text: str, field: str, value: object, expected: str, tmp_path: Path
) -> None:
    """What stands in a URL is not for logs."""
    path = tmp_path / "n.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refusal:
        read_channels(path, {})
    assert (refusal.value.field, refusal.value.value) == (field, value)
    assert expected in refusal.value.expected
    assert "secret" not in str(refusal.value)


def test_a_file_that_is_no_yaml_is_refused_by_line(tmp_path: Path) -> None:
    """And what stands there is not repeated."""
    path = tmp_path / "n.yaml"
    path.write_text("channels:\n- url: [json://u:secret@h\n")
    with pytest.raises(InvalidInput) as refusal:
        read_channels(path, {})
    assert refusal.value.field == "ARCTIC_NOTIFICATIONS"
    assert "it is no YAML (line 3)" in refusal.value.expected
    assert "secret" not in str(refusal.value)


def test_everything_about_a_channel_but_its_url_has_a_default(tmp_path: Path) -> None:
    """All events, any schedule, ten messages an hour."""
    path = tmp_path / "n.yaml"
    path.write_text("channels: [{url: 'json://${HOST}/x'}]")
    (channel,) = read_channels(path, {"HOST": "h"})
    assert channel.address == "json://h/x"
    assert channel.events == tuple(Notice)
    assert (channel.tags, channel.limit.count, channel.limit.per) == ({}, 10, HOUR)
    assert type(reach(channel)).__name__ == "AppriseSender"
