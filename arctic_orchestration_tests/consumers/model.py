"""A small model of consumers: what is in the working set, computed manually in plain Python.

It knows of arrivals, one by one: each is unread, waits, is leased, or has ended: acknowledged,
discarded, or gone with its partition. It never ends twice, and never is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from arctic_orchestration.event_log.event import Event
from arctic_orchestration_tests.consumers.arrivals import ASSET, Log, Partitions
from arctic_orchestration_tests.standing_clock import Clock

LIFE = timedelta(seconds=60)
REST = timedelta(seconds=20)
HELD_FOR = timedelta(seconds=100)
ATTEMPTS = 2
#: events of the log that are read at once
AT_ONCE = 2

#: whether a key is wanted
Wanted = Callable[[str], bool]


@dataclass
class ModelPartition:
    """What the model knows of a partition that was read."""

    place: int
    #: arrivals that are not ended and not leased
    pending: list[int]
    #: arrivals that are held
    held: list[int] = field(default_factory=list)
    #: arrivals that were given up last
    discarded: list[int] = field(default_factory=list)
    state: str = "waiting"
    token: int = 0
    attempts: int = 0
    rests_until: datetime | None = None
    existed: bool = False
    #: since when it is held until Dagster has it
    absent: datetime | None = None


@dataclass
class ModelLease:
    """What the model knows of a lease."""

    token: int
    expires: datetime
    live: bool = True
    #: a reset has taken its partitions while its owner had it locked
    emptied: bool = False


@dataclass
class Model:
    """A consumer, its log, and what became of each arrival."""

    log: Log
    clock: Clock
    there: Partitions
    working_set: int
    until: datetime | None
    one_by_one: bool = True
    since: datetime | None = None
    begin: int = 0
    read: int = 0
    places: int = 0
    has_storage: bool = True
    partitions: dict[str, ModelPartition] = field(default_factory=dict)
    leases: dict[int, ModelLease] = field(default_factory=dict)
    #: of each arrival, how it ended
    ended: dict[int, str] = field(default_factory=dict)
    #: of each arrival that was read, its number among all that the consumer took
    numbers: dict[int, int] = field(default_factory=dict)
    #: counts down for what is delivered again manually
    retried: int = 0

    def is_own(self, event: Event) -> bool:
        """Whether an event is an arrival that the consumer takes."""
        return (
            event.subject == ASSET
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at < self.until)
        )

    def end(self, arrivals: list[int], how: str) -> None:
        """Each ends once."""
        for arrival in arrivals:
            assert arrival not in self.ended
            self.ended[arrival] = how

    def take(self, limit: int | None, wanted: Wanted | None) -> list[str]:
        """Reads on until there is room for no more, and further where nothing can be taken."""
        more = self._read_on()
        found, seen = self._look(limit, wanted, 0)
        while not found and more:
            if wanted is None:
                more, seen = self._read_on(), 0
            else:
                more = self._read_once()
            found, seen = self._look(limit, wanted, seen)
        return found

    def is_due(self, known: ModelPartition) -> bool:
        """Whether it waits, and rests no more."""
        rested = known.rests_until is None or known.rests_until <= self.clock.now
        return known.state == "waiting" and rested

    def lose(
        self, known: ModelPartition, *, counts: bool, rests: bool, shared: bool = False
    ) -> None:
        """Its holder has it no more, and has not done it; of several, none is to blame."""
        known.state, known.token = "waiting", 0
        if known.pending:
            self.begin_again(known)
        elif counts:
            known.attempts += 1
            known.rests_until = self.clock.now + REST if rests else None
            if known.attempts >= ATTEMPTS and not shared:
                known.state, known.rests_until = "discarded", None
                self.end(known.held, "discarded")
                known.held, known.discarded = [], known.held
        known.pending, known.held = known.held + known.pending, []

    def acknowledge(self, known: ModelPartition) -> None:
        """It is done; what has arrived meanwhile is another delivery."""
        self.end(known.held, "acknowledged")
        known.held, known.attempts, known.rests_until, known.token = [], 0, None, 0
        known.state = "waiting" if known.pending else "acknowledged"
        if known.pending:
            self.begin_again(known)
            known.place = self.numbers[known.pending[-1]]

    def begin_again(self, known: ModelPartition) -> None:
        """What arrived has all its attempts, and may be announced before its key is added."""
        known.attempts, known.rests_until, known.existed = 0, None, False
        if known.absent is not None:
            known.absent = self.clock.now

    def retry(self, known: ModelPartition) -> None:
        """Manually: what is discarded or done comes again."""
        if known.state == "acknowledged":
            # As if it had arrived once more; such arrivals have numbers of their own.
            self.places += 1
            self.retried -= 1
            known.place = self.places
            known.pending.append(self.retried)
        elif known.state == "discarded":
            for arrival in known.discarded:
                del self.ended[arrival]
            known.pending, known.discarded = known.discarded, []
        known.state, known.attempts, known.rests_until = "waiting", 0, None
        known.absent = None

    def reset(self, *, from_now: bool, locked: int | None) -> None:
        """Everything is forgotten, and leases are over but for one that is locked."""
        for lease in self.leases.values():
            if lease.live and lease.token == locked:
                lease.emptied = True
            elif lease.live:
                lease.live = False
        self.partitions.clear()
        self.ended.clear()
        self.numbers.clear()
        self.since, self.begin = None, 0
        if from_now and self.has_storage:
            self.begin = len(self.log.events)
        elif from_now:
            self.since = self.clock.now
        self.has_storage = from_now and self.has_storage
        self.read = self.begin

    def _read_on(self) -> bool:
        while True:
            self.has_storage = True
            can_be_taken = [
                known
                for known in self.partitions.values()
                if self.is_due(known) and known.absent is None
            ]
            if len(can_be_taken) >= self.working_set:
                return True
            if not self._read_once():
                return False

    def _read_once(self) -> bool:
        upto = min(self.read + AT_ONCE, len(self.log.events))
        for number in range(self.read, upto):
            event = self.log.events[number]
            if self.is_own(event):
                self._arrives(str(event.partition), number)
        self.read = upto
        return upto < len(self.log.events)

    def _arrives(self, key: str, number: int) -> None:
        self.places += 1
        self.numbers[number] = self.places
        known = self.partitions.get(key)
        if known is None:
            known = self.partitions[key] = ModelPartition(self.places, [])
        elif known.state in ("discarded", "acknowledged"):
            known.state, known.place, known.absent = "waiting", self.places, None
        if known.state == "waiting":
            self.begin_again(known)
        known.pending.append(number)

    def _look(self, limit: int | None, wanted: Wanted | None, after: int) -> tuple[list[str], int]:
        seen = self.places
        behind = {key: known for key, known in self.partitions.items() if known.place > after}
        over = any(one.live and one.expires <= self.clock.now for one in self.leases.values())
        if over or any(self.is_due(known) for known in behind.values()):
            self._expire()
            for key, known in behind.items():
                self._keep(key, known)
        found = [
            key
            for key, known in self.partitions.items()
            if known.place > after
            and self.is_due(known)
            and known.absent is None
            and (wanted is None or wanted(key))
        ]
        found.sort(key=lambda key: self.partitions[key].place)
        if self.one_by_one and found:
            if self.partitions[found[0]].attempts:
                return found[:1], seen
            found = [key for key in found if not self.partitions[key].attempts]
        return found[:limit], seen

    def _expire(self) -> None:
        for lease in self.leases.values():
            if lease.live and lease.expires <= self.clock.now:
                lease.live = False
                lost = [one for one in self.partitions.values() if one.token == lease.token]
                shared = self.one_by_one and len(lost) > 1
                for known in lost:
                    self.lose(known, counts=True, rests=False, shared=shared)

    def _keep(self, key: str, known: ModelPartition) -> None:
        given_up = known.state == "discarded" and known.absent is not None
        if known.state not in ("waiting", "discarded") or given_up:
            return
        now = self.clock.now
        if key in self.there.keys:
            known.existed, known.absent = True, None
        elif known.existed:
            self.end(known.pending, "gone")
            del self.partitions[key]
        elif known.absent is None:
            known.absent = now
        elif now - known.absent >= HELD_FOR:
            known.state = "discarded"
            self.end(known.pending, "discarded")
            known.pending, known.discarded = [], known.pending
