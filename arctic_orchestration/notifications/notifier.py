"""The notifier: sends the notices in the outbox, in the background and never in a tick.

A daemon thread of the process wakes after each tick. It claims due notices in one short
transaction. Then each channel sends in a thread of its own, so that a hanging channel delays
neither the engine nor the others. Another transaction records the results. A channel that failed
or waits for its limit gets its notices again, the others do not.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.channel_worker import Delivery, Outlet, SendResult
from arctic_orchestration.notifications.channels import Channel, valid_channels
from arctic_orchestration.notifications.messages import AppriseSender, Sender
from arctic_orchestration.notifications.outbox import StoredNotice
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations

_log = logging.getLogger(__name__)
#: enough to combine a flood into the messages of one limit; what is left, and all later notices,
#: would wait until the limit opens again
_CLAIMED_AT_ONCE = 10_000
#: how long one round waits for its channels; well within the lease of their notices
_PATIENCE = timedelta(minutes=2)


_notifiers: dict[tuple[object, ...], "Notifier"] = {}
_notifiers_lock = threading.Lock()


def reach(channel: Channel) -> Sender:
    """Returns the sender of a channel: apprise."""
    return AppriseSender(channel.address)


def notifier_of(database: Database, *, cluster: str, location: str, path: Path) -> "Notifier":
    """Returns the process's notifier of a location.

    Its sensors share it: with one for each, they would exceed the limits of channels together.
    """
    key = (database.engine.url, cluster, location, path)
    with _notifiers_lock:
        if key not in _notifiers:
            _notifiers[key] = Notifier(
                database, cluster=cluster, location=location, path=path, clock=utc_now
            )
        return _notifiers[key]


class Notifier:
    """Sends the notices of one code location.

    Args:
        path: the YAML file of channels; read again when it changes. An invalid channel is left
            out, and stops nothing: :attr:`problem` has its errors. Notices wait for a valid one.
        clock: gives the time at which the background thread sends.
        reach: makes the sender of a channel.
        patience: how long a round waits for a channel that does not answer.
    """

    def __init__(
        self,
        database: Database,
        *,
        cluster: str,
        location: str,
        path: Path,
        clock: Callable[[], datetime],
        reach: Callable[[Channel], Sender] = reach,
        patience: timedelta = _PATIENCE,
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._location = location
        self._path = path
        self._clock = clock
        self._reach = reach
        self._patience = patience
        self._outlets: list[Outlet] = []
        self._read: tuple[int, ...] | str | None = None
        self._work = threading.Event()
        self._thread: threading.Thread | None = None
        self._starts = threading.Lock()
        self._closed = False
        #: why no notices are sent, or not by all channels, if the file has a problem
        self.problem: str | None = None

    def wake(self) -> None:
        """Makes the background thread send due notices; returns at once."""
        # Sensors tick in different threads: one round at a time.
        with self._starts:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="arctic-notices", daemon=True
                )
                self._thread.start()
        self._work.set()

    def close(self) -> None:
        """Stops the background thread after its round, without waiting for it."""
        self._closed = True
        self._work.set()

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            if self._closed:
                return
            try:
                self.send_due(self._clock())
            except Exception as error:
                # The next tick wakes it again; claimed notices are due after their lease.
                _log.warning("notices could not be sent: %s", error)

    def send_due(self, now: datetime) -> int:
        """Sends due notices; returns how many are done for all channels.

        Returns once each channel has answered, or its patience is over.

        Errors:
            DatabaseUnavailable: notices that were sent meanwhile are sent again.
        """
        with self._database.read() as tx:
            location_id = self._location_id(tx)
            if location_id is None:
                return 0
            self._configure(tx, location_id, now)
            if not self._outlets or not outbox.due(tx, location_id, now):
                return 0
        with self._database.begin() as tx:
            claimed = outbox.claim(tx, location_id, now, _CLAIMED_AT_ONCE)
        return self._note(claimed, self._send(claimed, now), now)

    def _send(self, claimed: Sequence[StoredNotice], now: datetime) -> dict[str, SendResult]:
        """Returns the results of the notices, by the name of the channel."""
        place = f"{self._cluster}/{self._location}"
        begun: dict[str, Delivery | SendResult] = {}
        for outlet in self._outlets:
            wanted = outlet.wanted(claimed, now)
            if wanted:
                begun[outlet.channel.name] = outlet.begin(wanted, place, now)
        give_up_at = time.monotonic() + self._patience.total_seconds()
        return {
            name: found.outcome(give_up_at, self._patience, now)
            if isinstance(found, Delivery)
            else found
            for name, found in begun.items()
        }

    def _note(
        self, claimed: Sequence[StoredNotice], outcomes: dict[str, SendResult], now: datetime
    ) -> int:
        sent_to = {notice.id: dict(notice.sent_to) for notice in claimed}
        failures = {notice.id: dict(notice.failures) for notice in claimed}
        problems: dict[int, list[str]] = defaultdict(list)
        postponed_until: dict[int, datetime] = {}
        for name, outcome in outcomes.items():
            for notice in outcome.sent:
                sent_to[notice.id][name] = now
            for notice in outcome.counted:
                sent_to[notice.id][name] = None
            for notice, problem in outcome.failed:
                failure = failures[notice.id][name] = notice.after_failure(name, now)
                problems[notice.id].append(f"{name}: {problem}")
                if failure.retry_at is None:
                    _log.warning("notice %s is given up: %s: %s", notice.id, name, problem)
            for notice, at in outcome.postponed:
                postponed_until[notice.id] = min(at, postponed_until.get(notice.id, at))
        names = {outlet.channel.name for outlet in self._outlets}
        done = {}
        with self._database.begin() as tx:
            for notice in claimed:
                channels = sent_to[notice.id]
                left = {
                    name: failure
                    for name, failure in failures[notice.id].items()
                    if name not in channels
                }
                # No notice waits for a channel that was removed from the file.
                waiting = [failure for name, failure in left.items() if name in names]
                # A retry that was due and met the channel's limit waits for that.
                moments = [one.retry_at for one in waiting if one.retry_at and one.retry_at > now]
                if notice.id in postponed_until:
                    moments.append(postponed_until[notice.id])
                if not waiting and not moments:
                    done[notice.id] = channels
                    continue
                errors = "; ".join(problems[notice.id]) or None
                outbox.unsent(tx, notice, channels, left, min(moments, default=None), errors)
            outbox.sent(tx, done)
        return len(done)

    def _configure(self, tx: sa.Connection, location_id: int, now: datetime) -> None:
        """Reads the channels if the file has changed."""
        try:
            status = self._path.stat()
            # Another file may have the size and age of this one, and this one other permissions.
            found: tuple[int, ...] | str = (
                *(status.st_dev, status.st_ino, status.st_size),
                *(status.st_mtime_ns, status.st_ctime_ns),
            )
        except OSError as error:
            found = str(error)
        if found == self._read:
            return
        try:
            channels, refused = valid_channels(self._path)
            if refused and not channels:
                raise InvalidDefinition(refused)
        except InvalidInput as error:
            self._read, self._outlets = found, []
            self.problem = f"notifications are off: {error}"
            _log.warning(self.problem)
            return
        outlets = []
        for channel in channels:
            # An unchanged channel keeps its sent messages for its limit.
            kept = next((outlet for outlet in self._outlets if outlet.channel == channel), None)
            if kept is None:
                # Code servers come and go; the messages of the previous one count.
                sent = outbox.messages_since(tx, location_id, now - channel.limit.per)
                before = sent.get(channel.name, ())
                kept = Outlet(channel, self._reach(channel), before)
            outlets.append(kept)
        # Last: if the database has not answered, the next round reads the file again.
        self._read, self._outlets, self.problem = found, outlets, None
        if refused:
            self.problem = f"some channels are off: {InvalidDefinition(refused)}"
            _log.warning(self.problem)

    def _location_id(self, tx: sa.Connection) -> int | None:
        query = sa.select(locations.c.id).where(
            locations.c.cluster == self._cluster, locations.c.name == self._location
        )
        return tx.execute(query).scalar()
