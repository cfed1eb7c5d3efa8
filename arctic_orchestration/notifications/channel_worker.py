"""Sends the messages of a channel in a thread of its own, within its limit."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from arctic_orchestration.notifications.channels import Channel, Limit
from arctic_orchestration.notifications.messages import Message, Sender, messages_of
from arctic_orchestration.notifications.outbox import Failure, StoredNotice
from arctic_orchestration.quantities import format_duration

#: the clocks of hosts differ by less
_AHEAD = timedelta(minutes=1)
#: how long a message that does not end keeps the channel; its thread cannot be stopped, so each
#: time it costs a thread more
_ABANDONED_AFTER = timedelta(hours=1)


class SentMessages:
    """The times of a channel's sent messages, as far back as its limit needs."""

    def __init__(self, limit: Limit, before: Sequence[datetime] = ()) -> None:
        self._limit = limit
        self._at: deque[datetime] = deque(before)

    def allowed(self, now: datetime) -> int:
        """Returns how many messages may be sent now."""
        while self._at and self._at[0] <= now - self._limit.per:
            self._at.popleft()
        # Sent while the clock was ahead: the channel is not silent until then.
        while self._at and self._at[-1] > now + _AHEAD:
            self._at.pop()
        return max(self._limit.count - len(self._at), 0)

    def note(self, now: datetime) -> None:
        """Records a sent message."""
        self._at.append(now)

    def opens_at(self, now: datetime) -> datetime:
        """Returns when there is room for another message."""
        return now if self.allowed(now) else self._at[0] + self._limit.per


@dataclass(kw_only=True)
class SendResult:
    """The results of the notices for one channel."""

    sent: list[StoredNotice] = field(default_factory=list)
    #: also sent, but only counted in the message of another notice
    counted: list[StoredNotice] = field(default_factory=list)
    #: with the error
    failed: list[tuple[StoredNotice, str]] = field(default_factory=list)
    #: with the time of the next attempt
    postponed: list[tuple[StoredNotice, datetime]] = field(default_factory=list)


class Delivery:
    """The messages of one channel in one round, while they are sent."""

    def __init__(self, messages: Sequence[Message], begun_at: datetime) -> None:
        self.messages = messages
        self.begun_at = begun_at
        #: the error of each finished message; None: it was sent
        self.answers: list[str | None] = []
        self.begun = 0
        self.stopped = threading.Event()
        self.done = threading.Event()

    def outcome(self, give_up_at: float, patience: timedelta, now: datetime) -> SendResult:
        """Returns the results at ``give_up_at``, a moment of the monotonic clock."""
        self.done.wait(max(give_up_at - time.monotonic(), 0))
        self.stopped.set()
        answers, begun = list(self.answers), self.begun
        outcome = SendResult()
        for index, message in enumerate(self.messages):
            if index < len(answers):
                problem = answers[index]
            elif index < begun:
                problem = f"no answer within {format_duration(patience)}"
            else:
                outcome.postponed += [(notice, now) for notice in message.notices]
                continue
            if problem is None:
                outcome.sent.append(message.notice)
                outcome.counted += message.held_back
            else:
                outcome.failed += [(notice, problem) for notice in message.notices]
        return outcome


class Outlet:
    """A channel, its sent messages, and the thread that sends."""

    def __init__(self, channel: Channel, sender: Sender, before: Sequence[datetime] = ()) -> None:
        """``before`` are the times of messages sent by earlier processes."""
        self.channel = channel
        self._sender = sender
        self._sent = SentMessages(channel.limit, before)
        self._last: Delivery | None = None

    def wanted(self, notices: Sequence[StoredNotice], now: datetime) -> list[StoredNotice]:
        """Returns the notices that the channel wants, has not sent, and may try now."""
        name = self.channel.name
        return [
            notice
            for notice in notices
            if self.channel.wants(notice)
            and name not in notice.sent_to
            and self._may_try(notice.failures.get(name), now)
        ]

    @staticmethod
    def _may_try(failure: Failure | None, now: datetime) -> bool:
        # Another channel's moment may be earlier than the retry of this one.
        return failure is None or (failure.retry_at is not None and failure.retry_at <= now)

    def begin(
        self, wanted: Sequence[StoredNotice], place: str, now: datetime
    ) -> Delivery | SendResult:
        """Begins to send, in the background, or returns why it does not."""
        last = self._last
        # Not of the thread, which lives a moment longer than its delivery.
        if last and not last.done.is_set() and now - last.begun_at < _ABANDONED_AFTER:
            problem = "it has not answered to an earlier message yet"
            return SendResult(failed=[(notice, problem) for notice in wanted])
        messages = messages_of(wanted, self._sent.allowed(now))
        if not messages:
            opens_at = self._sent.opens_at(now)
            return SendResult(postponed=[(notice, opens_at) for notice in wanted])
        delivery = Delivery(messages, now)
        threading.Thread(
            target=self._send,
            args=(delivery, place, now),
            name=f"arctic-notices-{self.channel.name}",
            daemon=True,
        ).start()
        self._last = delivery
        return delivery

    def _send(self, delivery: Delivery, place: str, now: datetime) -> None:
        try:
            for message in delivery.messages:
                if delivery.stopped.is_set():
                    break
                delivery.begun += 1
                try:
                    self._sender.send(message, place)
                    self._sent.note(now)
                    delivery.answers.append(None)
                except Exception as error:
                    delivery.answers.append(str(error) or repr(error))
        finally:
            delivery.done.set()
