"""Rounds of compaction beside a sensor's ticks.

A round may outlast a tick: Dagster abandons a tick after 60 s, and meanwhile its daemon evaluates
no other sensor. So a round has its own thread; a tick waits for it for a few seconds, and a later
tick reports what is not ready then.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from arctic_orchestration.compaction.service import CompactionCounts


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """The result of a round."""

    counts: "CompactionCounts | None" = None
    #: by table
    observations: Mapping[str, dg.AssetObservation] = field(default_factory=dict)
    #: errors, for people
    troubles: Sequence[str] = ()
    #: why the round ended early; none: it did not
    error: Exception | None = None


class Rounds:
    """Runs one round at a time, in a thread that ends with the process.

    A round that dies with its process is harmless: every step may be killed anywhere.

    Args:
        work: the round; called with the moment and what to report.
    """

    def __init__(self, work: Callable[[datetime, Sequence[str]], RoundResult]) -> None:
        self._work = work
        self._thread: threading.Thread | None = None
        self._outcome: RoundResult | None = None
        self.began_at: datetime | None = None

    @property
    def underway(self) -> bool:
        """Whether a round was begun and its result was not taken yet."""
        return self._thread is not None

    def begin(self, now: datetime, reports: Sequence[str]) -> None:
        """Begins a round; none may be in progress."""
        assert self._thread is None, "one round at a time"

        def work() -> None:
            try:
                self._outcome = self._work(now, reports)
            except Exception as error:
                self._outcome = RoundResult(error=error)

        self.began_at = now
        self._outcome = None
        self._thread = threading.Thread(target=work, name="compaction", daemon=True)
        self._thread.start()

    def take(self, seconds: float) -> RoundResult | None:
        """Returns the round's result, after this wait at most; none: in progress, or taken."""
        if self._thread is None:
            return None
        self._thread.join(seconds)
        if self._thread.is_alive():
            return None
        self._thread = None
        return self._outcome


def counts_text(counts: "CompactionCounts") -> Mapping[str, int]:
    """Returns the non-zero counts of the round, with names for people."""
    committed, planned = counts.committed, counts.planned
    named = {
        "attempts lost": counts.lost,
        "snapshots": committed.snapshots,
        "tasks committed": committed.committed,
        "tasks in conflict": committed.conflicts,
        "tasks with wrong outputs": committed.wrong,
        "tables not committed to": committed.troubled,
        "tables planned": planned.planned,
        "tasks not offered, as tables are only observed": planned.wanted,
        "tasks offered": planned.offered,
        "tasks superseded": planned.superseded,
        "tasks without room": planned.blocked,
        "tables refused": planned.refused,
        "tables not planned": planned.troubled,
        "tables postponed": planned.postponed,
        "tables with upkeep": counts.upkeep.done,
        "tables whose upkeep failed": counts.upkeep.failed,
    }
    return {name: value for name, value in named.items() if value}
