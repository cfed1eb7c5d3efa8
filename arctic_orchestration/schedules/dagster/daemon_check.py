"""Detects two Dagster daemons on one instance.

Dagster supports one. Two of them evaluate the same ticks and work the same queue; Dagster only logs
it. A daemon has an id, and each of its threads overwrites the stored heartbeat every 30 seconds. A
daemon that was replaced never writes again. So two daemons run if a heartbeat has the id of a
daemon that was replaced before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import dagster as dg

from arctic_orchestration.dagster_internals import DaemonHeartbeat

#: Reading them opens Dagster's run storage, which costs about 50 ms.
_LOOK_EVERY = timedelta(seconds=20)
#: after some more heartbeats a detection no longer counts
_FORGOTTEN = timedelta(minutes=2)


@dataclass
class DaemonWatch:
    """Follows the heartbeats, in memory."""

    #: by thread, the id of the last heartbeat and the ids before it
    _last: dict[str, str] = field(default_factory=dict)
    _replaced: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _looked_at: datetime | None = None
    _noticed_at: datetime | None = None
    _noticed: tuple[str, ...] = ()

    def look(self, now: datetime, instance: Callable[[], dg.DagsterInstance]) -> None:
        """Reads the heartbeats, unless they were read recently."""
        # After a clock was set back, do not wait for the old moment.
        if self._looked_at and timedelta(0) <= now - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = now
        self.note(instance().get_daemon_heartbeats().values(), now)

    def note(self, beats: Iterable[DaemonHeartbeat], now: datetime) -> None:
        """Records the stored heartbeats."""
        for beat in beats:
            id, before = beat.daemon_id, self._last.get(beat.daemon_type)
            if id is None or id == before:
                continue
            if before is not None:
                self._replaced[beat.daemon_type].add(before)
                if id in self._replaced[beat.daemon_type]:
                    self._noticed_at, self._noticed = now, tuple(sorted((id, before)))
            self._last[beat.daemon_type] = id

    def together(self, now: datetime) -> tuple[str, ...]:
        """Returns the ids of two daemons that ran at the same time lately; empty if one runs."""
        if self._noticed_at is None or now - self._noticed_at >= _FORGOTTEN:
            return ()
        return self._noticed
