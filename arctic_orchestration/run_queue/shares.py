"""Slots in proportion to shares: weighted max-min fairness, one slot at a time.

Among the queues with runs that could start, the next free slot goes to the one with the least for
its share: the smallest (slots in use + slots given) / share. So each queue gets its share of the
slots. Slots that a queue does not use go to the others in proportion to their shares, and come back
as runs end. No run is ended for this: a queue that gets its first run while all slots are lent has
the next slot that becomes free.

The algorithm is progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2),
in whole slots.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The slots that one queue has and could use."""

    share: float
    #: of two queues with equally little, the one with the higher level goes first
    level: int
    #: active runs
    in_use: int
    #: runs that could start now
    wanted: int


def divide(slots: int, claims: Mapping[str, Claim]) -> dict[str, int]:
    """Returns how many of the free slots each queue gets; together at most ``slots``."""
    given = dict.fromkeys(claims, 0)
    waiting = [_place(name, claim, claim.in_use) for name, claim in claims.items() if claim.wanted]
    heapq.heapify(waiting)
    while slots > 0 and waiting:
        _, _, name = waiting[0]
        claim = claims[name]
        given[name] += 1
        slots -= 1
        if given[name] < claim.wanted:
            heapq.heapreplace(waiting, _place(name, claim, claim.in_use + given[name]))
        else:
            heapq.heappop(waiting)
    return given


def _place(name: str, claim: Claim, has: int) -> tuple[float, int, str]:
    # Counts the slot that it would get: of two queues without slots, the larger share is first.
    return ((has + 1) / claim.share, -claim.level, name)
