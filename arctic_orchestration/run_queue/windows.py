"""Computes which windows are open, and caches it until the moment at which it changes."""

from dataclasses import dataclass
from datetime import datetime

from arctic_orchestration.run_queue.rules import TimeWindow


@dataclass(frozen=True, slots=True)
class WindowState:
    """The state of one window at one moment."""

    is_open: bool
    #: when its rule closes or opens it next
    until: datetime
    #: whether it is closed only because it is held closed
    is_held: bool = False


class OpenWindows:
    """The state of windows from pass to pass.

    Computing an opening costs much more than comparing two moments, and a window changes twice a
    day.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[datetime, WindowState]] = {}
        self._held: frozenset[str] = frozenset()

    def state(self, name: str, rule: TimeWindow, now: datetime) -> WindowState:
        """Returns the state of a window at a moment."""
        known = self._known.get(name)
        if known is None or not known[0] <= now < known[1].until:
            closes_at = rule.closes_at(now)
            is_open = closes_at is not None
            state = WindowState(is_open, rule.opens_at(now) if closes_at is None else closes_at)
            known = self._known[name] = (now, state)
        state = known[1]
        if state.is_open and name in self._held:
            return WindowState(False, state.until, is_held=True)
        return state

    def is_open(self, name: str, rule: TimeWindow, now: datetime) -> bool:
        """Returns whether runs may start; false while :meth:`hold` keeps it closed."""
        return self.state(name, rule, now).is_open

    def was_closed(self, name: str) -> bool:
        """Returns whether it was closed at the last evaluation; true without one."""
        known = self._known.get(name)
        return name in self._held or known is None or not known[1].is_open

    def hold(self, names: frozenset[str]) -> None:
        """Keeps windows closed that would open, until :meth:`release`."""
        self._held |= names

    def release(self) -> None:
        """Returns all windows to the state of their rules."""
        self._held = frozenset()
