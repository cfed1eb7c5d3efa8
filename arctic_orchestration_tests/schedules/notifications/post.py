"""News to be sent, and channels in memory that can be made to refuse or to hang."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from arctic_orchestration.notifications.channels import Channel
from arctic_orchestration.notifications.messages import Message, Sender
from arctic_orchestration.notifications.notifier import Notifier
from arctic_orchestration.notifications.outbox import News, Notice
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import at

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def news(number: int = 1, event: Notice = Notice.RUN_FAILED, **fields: Any) -> News:
    return News(
        **{"event": event, "schedule": f"s{number}", "reason": f"reason {number}", **fields}
    )


class Postbox(Sender):
    """A channel in memory that can be made to refuse or to hang."""

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
    def names(self) -> list[str]:
        return [message.notice.schedule for message in self.messages]


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
