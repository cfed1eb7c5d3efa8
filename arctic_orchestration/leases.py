"""Leases: exclusive rights that expire, and their renewal while the owner works.

A *lease* is an exclusive right that expires when its owner falls silent. Its *token* is one higher
than the previous owner's: each write under the lease checks the token in the same transaction, so a
paused owner that resumes writes nothing once another one has taken over. The database's time
decides when a lease has expired. The owner's machine keeps only ``trusted_until``: a moment of its
own steady clock, counted from *before* the request was sent, until which the lease is certainly
valid, whatever the clocks show and even without answers.

Only the token in a transaction is a guarantee. This module makes the owner stop early.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from arctic_orchestration.errors import InvalidInput, LeaseLost

_log = logging.getLogger("arctic.leases")

#: How often a lease is renewed in its life.
RENEWALS = 3
#: After a renewal without an answer, the next one comes this much sooner.
_SOONER = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A right that its owner may trust until a moment of its own steady clock.

    Attributes:
        owner: the owner.
        token: one higher than that of the previous owner.
        trusted_until: a moment of ``time.monotonic`` in the owner's process.
    """

    owner: str
    token: int
    trusted_until: float

    @classmethod
    def taken(cls, *, owner: str, token: int, requested_at: float, life: timedelta) -> "Lease":
        """Returns the lease that the database granted.

        Args:
            owner: the owner.
            token: the token that the database returned.
            requested_at: ``time.monotonic()`` from before the statement was sent.
            life: the duration that the database granted.
        """
        return cls(owner=owner, token=token, trusted_until=requested_at + life.total_seconds())

    def renewed(self, *, requested_at: float, life: timedelta) -> "Lease":
        """Returns the same lease after a renewal that was sent at ``requested_at``."""
        return replace(self, trusted_until=requested_at + life.total_seconds())

    @property
    def trusted(self) -> bool:
        """Whether it is certainly valid."""
        return time.monotonic() < self.trusted_until


class Renewal:
    """Renews a lease from a thread of its own, at a third of its life, while a block runs.

    ::

        with Renewal(lease, lambda: renew(database, lease), life=life) as renewal:
            for part in work:
                renewal.check()     # LeaseLost, if another one has taken over
                ...

    ``renew`` is called in that thread, with a connection of its own. It returns whether the owner
    still has the lease; ``False`` ends it. When it raises, as for an unavailable database, it is
    retried, sooner, until the lease cannot be trusted any more.

    Leaving the block only ends the thread: the owner releases the lease itself.
    """

    def __init__(
        self, lease: Lease, renew: Callable[[], bool], *, life: timedelta, what: str = "the lease"
    ) -> None:
        """Prepares it; the block starts the thread.

        Args:
            lease: the lease to renew.
            renew: renews it in the database; returns whether it did.
            life: the duration of a renewal.
            what: its name in messages.

        Errors:
            InvalidInput: ``life`` is not positive.
        """
        if life <= timedelta(0):
            raise InvalidInput("life", life, "more than no time")
        #: set when the lease was taken over, or no renewal succeeded for the whole of its life
        self.lost = threading.Event()
        self._lease = lease
        self._renew = renew
        self._life = life
        self._what = what
        self._reason = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"renews {what}", daemon=True)

    @property
    def lease(self) -> Lease:
        """The lease after its last renewal."""
        return self._lease

    def check(self) -> None:
        """Returns while the lease may be trusted.

        Errors:
            LeaseLost: it was taken over, or no renewal succeeded for the whole of its life.
        """
        if not self.lost.is_set() and not self._lease.trusted:
            # This thread may have been paused for longer than the other one has noticed.
            self._lose(self._silence())
        if self.lost.is_set():
            raise LeaseLost(f"{self._what}: {self._reason}")

    def __enter__(self) -> "Renewal":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        # Does not wait longer for a renewal in progress: after the release it changes nothing.
        self._thread.join(self._life.total_seconds())

    def _run(self) -> None:
        third = self._life.total_seconds() / RENEWALS
        pause = third
        while not self._end.wait(pause):
            requested_at = time.monotonic()
            try:
                still = self._renew()
            except Exception as error:
                left = self._lease.trusted_until - time.monotonic()
                if left <= 0:
                    self._lose(f"{self._silence()}: {error}")
                    return
                _log.warning("%s is renewed again in a moment: %s", self._what, error)
                pause = min(third / _SOONER, left)
                continue
            if not still:
                self._lose("another owner has taken over, or it was ended")
                return
            self._lease = self._lease.renewed(requested_at=requested_at, life=self._life)
            pause = third

    def _silence(self) -> str:
        seconds = self._life.total_seconds()
        return f"it could not be renewed for the {seconds:g} s of its life"

    def _lose(self, reason: str) -> None:
        if self._end.is_set():
            return
        if not self.lost.is_set():
            self._reason = reason
            self.lost.set()
