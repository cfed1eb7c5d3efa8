"""The texts that people read, and their sending with apprise."""

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from arctic_orchestration.notifications.outbox import Notice, StoredNotice

_TITLES = {
    Notice.JOB_DISCARDED: "job discarded",
    Notice.JOB_TIMED_OUT: "job timed out",
    Notice.LAUNCH_FAILED: "launch failed",
    Notice.RUN_FAILED: "run failed",
    Notice.RUN_CANCELED: "run canceled",
    Notice.PARENTS_STALE: "parents not fresh",
    Notice.QUARANTINED: "quarantined",
    Notice.SKIPPED: "skipped",
}
_FAILURES = {
    Notice.LAUNCH_FAILED,
    Notice.RUN_FAILED,
    Notice.PARENTS_STALE,
    Notice.QUARANTINED,
}


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message to one channel: the notice in it, and the notices that it only counts."""

    notice: StoredNotice
    held_back: tuple[StoredNotice, ...] = ()

    @property
    def notices(self) -> tuple[StoredNotice, ...]:
        """All notices that are done once it is sent."""
        return self.notice, *self.held_back

    @property
    def is_failure(self) -> bool:
        """Whether it reports a failure rather than something left out."""
        return any(notice.event in _FAILURES for notice in self.notices)

    def title(self) -> str:
        """Returns the title, one line."""
        return f"{self.notice.schedule}: {_TITLES[self.notice.event]}"

    def body(self, place: str) -> str:
        """Returns the rest of the text; ``place`` is the cluster and code location it is about."""
        notice = self.notice
        lines = [notice.reason, "", f"at {notice.at:%Y-%m-%d %H:%M:%S} UTC in {place}"]
        if notice.job_id:
            lines.append(f"job {notice.job_id}")
        if notice.tags:
            pairs = sorted(notice.tags.items())
            lines.append("tags " + ", ".join(f"{key}={value}" for key, value in pairs))
        if self.held_back:
            kinds = Counter(notice.event.value for notice in self.held_back)
            parts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
            lines += ["", f"and {len(self.held_back)} more were held back ({parts})"]
        return "\n".join(lines)


def messages_of(wanted: Sequence[StoredNotice], allowed: int) -> list[Message]:
    """At most ``allowed`` messages for all of ``wanted``; none if ``allowed`` is 0."""
    if allowed <= 0:
        return []
    messages = [Message(notice=notice) for notice in wanted[:allowed]]
    if len(wanted) > allowed:
        messages[-1] = Message(notice=wanted[allowed - 1], held_back=tuple(wanted[allowed:]))
    return messages


class SendFailed(Exception):
    """A channel did not accept a message; the text says why."""


class Sender(Protocol):
    """Sends messages."""

    def send(self, message: Message, place: str) -> None:
        """Sends, and returns when the channel has the message.

        Errors:
            Exception: any; the message was not sent.
        """
        ...


class AppriseSender:
    """A channel that apprise supports."""

    def __init__(self, address: str) -> None:
        import apprise

        # Followed, most redirects turn the message into a GET without content, which is accepted.
        # The parameter redirect=yes of a URL follows them.
        asset = apprise.AppriseAsset()
        asset.http_redirects = False
        self._service = apprise.Apprise.instantiate(address, asset=asset)
        self._failure = apprise.NotifyType.FAILURE
        self._warning = apprise.NotifyType.WARNING

    def send(self, message: Message, place: str) -> None:
        if self._service is None:
            raise SendFailed("apprise does not know its URL")
        remarks = _Remarks()
        log = logging.getLogger("apprise")
        log.addHandler(remarks)
        try:
            taken = _notify(
                self._service,
                body=message.body(place),
                title=message.title(),
                notify_type=self._failure if message.is_failure else self._warning,
                is_retry=message.notice.attempts > 0,
            )
        finally:
            log.removeHandler(remarks)
        if not taken:
            raise SendFailed("; ".join(remarks.texts) or "apprise could not send it")


def _notify(service: Any, *, body: str, title: str, is_retry: bool, **kind: Any) -> bool:
    """Sends a plain text in the format of the service, which converts nothing itself."""
    from apprise import NotifyFormat, OverflowMode, conversion

    text = NotifyFormat.TEXT
    convert: Any = conversion.convert_between
    # Earlier versions of apprise have one format for each service.
    resolve = getattr(service, "resolve_format", None)
    chosen = resolve(text) if resolve is not None else service.notify_format
    if service.title_maxlen <= 0:
        # The service puts it into the body.
        title = convert(text, chosen, content=title)
    body = convert(text, chosen, content=body)
    # Many services take more than apprise says; of those that refused it, it is cut.
    if is_retry and service.overflow_mode == OverflowMode.UPSTREAM:
        kind["overflow"] = OverflowMode.TRUNCATE
    return bool(service.notify(body=body, title=title, body_format=chosen, **kind))


class _Remarks(logging.Handler):
    """Collects apprise's log records in this thread: its result is only yes or no."""

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self._thread = threading.get_ident()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and len(self.texts) < 3:
            self.texts.append(record.getMessage()[:300])
