"""Rights that expire: what an owner holds, and what keeps it alive while the owner works.

A *lease* is an exclusive right that ends by itself when its owner falls silent. Its *token* is one
higher than the last owner's: whoever writes under the lease says the token in the same
transaction, so an owner that was stopped and goes on writes nothing once another one has taken
over. The database's time decides when a lease is over. The owner's machine keeps only
``trusted_until``: a moment of its own steady clock, counted from *before* the question was sent,
until which the lease holds for certain, whatever the clocks say and whoever does not answer.

Only the token in a transaction is a guarantee. What is here tells the owner in time that going on
is in vain.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType

from arctic_orchestration.errors import InvalidInput, LeaseLost

_log = logging.getLogger("arctic.leases")

#: A lease is renewed so many times in its life.
RENEWALS = 3
#: After a renewal that got no answer it is asked again so much sooner.
_SOONER = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A right that its owner may trust until a moment of its own steady clock.

    Attributes:
        owner: who holds it.
        token: one higher than that of the owner before.
        trusted_until: a moment of ``time.monotonic`` in the owner's process.
    """

    owner: str
    token: int
    trusted_until: float

    @classmethod
    def taken(cls, *, owner: str, token: int, asked: float, life: timedelta) -> "Lease":
        """The lease that the database gave.

        Args:
            owner: who asked.
            token: what the database answered.
            asked: ``time.monotonic()`` from before the statement was sent.
            life: for how long the database gave it.
        """
        return cls(owner=owner, token=token, trusted_until=asked + life.total_seconds())

    def renewed(self, *, asked: float, life: timedelta) -> "Lease":
        """The same right after a renewal that was sent at ``asked``."""
        return replace(self, trusted_until=asked + life.total_seconds())

    @property
    def trusted(self) -> bool:
        """Whether it holds for certain."""
        return time.monotonic() < self.trusted_until


class Renewal:
    """Renews a lease from a thread of its own, at a third of its life, while a block runs.

    ::

        with Renewal(lease, lambda: renew(database, lease), life=life) as renewal:
            for part in work:
                renewal.check()     # LeaseLost, if another one has taken over
                ...

    ``renew`` is called in that thread, with a connection of its own. It says whether the lease
    still is the owner's; ``False`` is the end of it. When it raises, as with the database away,
    it is asked again, sooner, until the lease cannot be trusted any more.

    Leaving the block ends the thread and nothing else: giving the right back is the owner's.
    """

    def __init__(
        self, lease: Lease, renew: Callable[[], bool], *, life: timedelta, what: str = "the lease"
    ) -> None:
        """Prepares it; the block starts the thread.

        Args:
            lease: what is renewed.
            renew: asks the database for another life; whether it was given.
            life: for how long a renewal holds.
            what: names it in messages.

        Errors:
            InvalidInput: a life that is not positive.
        """
        if life <= timedelta(0):
            raise InvalidInput("life", life, "more than no time")
        #: set when the lease is another one's, or nobody has answered for the whole of its life
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
        """The lease as it was renewed last."""
        return self._lease

    @property
    def reason(self) -> str:
        """Why it is lost, as a sentence for people; empty: it is not."""
        return self._reason

    def check(self) -> None:
        """Returns while the lease may be trusted.

        Errors:
            LeaseLost: it is another one's, or nobody has answered for the whole of its life.
        """
        if not self.lost.is_set() and not self._lease.trusted:
            # This thread may have been stopped for longer than the other one has noticed.
            self._lose(self._silence())
        if self.lost.is_set():
            raise LeaseLost(f"{self._what}: {self._reason}")

    def __enter__(self) -> "Renewal":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        # One under way is not waited for longer: after the right was given back it changes nothing.
        self._thread.join(self._life.total_seconds())

    def _run(self) -> None:
        third = self._life.total_seconds() / RENEWALS
        pause = third
        while not self._end.wait(pause):
            asked = time.monotonic()
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
            self._lease = self._lease.renewed(asked=asked, life=self._life)
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
