"""Which windows are open, remembered until the moment at which that changes."""

from datetime import datetime

from arctic_orchestration.run_queue.rules import TimeWindow


class OpenWindows:
    """The state of windows from pass to pass.

    To work out an opening costs much more than to compare two moments, and a window changes
    twice a day.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[datetime, datetime, bool]] = {}
        self._held: frozenset[str] = frozenset()

    def is_open(self, name: str, rule: TimeWindow, now: datetime) -> bool:
        """Whether runs may start; not, while :meth:`hold` keeps it closed."""
        if name in self._held:
            return False
        known = self._known.get(name)
        if known is None or not known[0] <= now < known[1]:
            closes_at = rule.closes_at(now)
            until = rule.opens_at(now) if closes_at is None else closes_at
            known = self._known[name] = (now, until, closes_at is not None)
        return known[2]

    def was_closed(self, name: str) -> bool:
        """Whether it was closed when it was looked at last; one that never was, is."""
        known = self._known.get(name)
        return name in self._held or known is None or not known[2]

    def hold(self, names: frozenset[str]) -> None:
        """Keeps windows closed that would open, until :meth:`release`."""
        self._held |= names

    def release(self) -> None:
        """Lets all windows be as their rules say."""
        self._held = frozenset()
