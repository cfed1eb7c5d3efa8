"""A small model of how Postgres hands out ids, shows rows and holds locks.

A script is a list of steps of other transactions and of answers to the reader's questions, in
any order; so a failing interleaving is a short list that can be read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from arctic_orchestration.event_log import settled
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.event_log.settled import Holders, SettledState

STEPS = (
    "lock",
    "insert",
    "other",
    "show",
    "unlock",
    "rollback",
    "savepoint",
    "prepare",
    "crash",
    "restart",
    "answer",
)


@dataclass
class Transaction:
    """One writer: the name that ``pg_locks`` shows, and the ids it was given."""

    name: str
    ids: list[int] = field(default_factory=list)
    visible: bool = False
    locks: bool = True

    @property
    def prepared(self) -> bool:
        return self.name.startswith("-1/")


class SimulatedPostgres:
    """The server, its writers, and one reader that polls for ever."""

    def __init__(
        self,
        *,
        limit: int = 3,
        poll: Callable[[SettledState, int], settled.Dialogue] = settled.poll,
        state: SettledState | None = None,
    ) -> None:
        self._limit = limit
        self._poll = poll
        self._sequence = 0
        self._names = 0
        self._boot = 1
        self._writers: list[Transaction] = []
        self._rows: dict[int, bool] = {}
        self.state = state or SettledState()
        self.delivered: list[int] = []
        self._dialogue: Iterator[object] | None = None
        self._question: object = None

    @property
    def committed(self) -> list[int]:
        """The ids of committed rows of the wanted types."""
        return sorted(number for number, wanted in self._rows.items() if wanted)

    def do(self, step: str, which: int = 0) -> None:
        """One step, by the writer with this number among those that can take it."""
        match step:
            case "lock":
                self._names += 1
                self._writers.append(Transaction(name=f"3/{self._names}"))
            case "insert" | "other":
                for writer in self._one(which, lambda w: not w.visible and not w.prepared):
                    self._sequence += 1
                    writer.locks = True
                    writer.ids.append(self._sequence if step == "insert" else -self._sequence)
            case "show":
                for writer in self._one(which, lambda w: not w.visible):
                    writer.visible = True
                    self._rows |= {abs(number): number > 0 for number in writer.ids}
            case "unlock":
                for writer in self._one(which, lambda w: w.visible):
                    self._writers.remove(writer)
            case "rollback":
                for writer in self._one(which, lambda w: not w.visible):
                    self._writers.remove(writer)
            case "savepoint":
                # Rolled back to a savepoint before the first insert: rows and locks are gone,
                # the transaction and its name are not.
                for writer in self._one(which, lambda w: not w.visible and not w.prepared):
                    writer.ids.clear()
                    writer.locks = False
            case "prepare":
                for writer in self._one(which, lambda w: not w.visible and not w.prepared):
                    self._names += 1
                    writer.name = f"-1/{1000 + self._names}"
            case "crash" | "restart":
                # Names begin again; only a restart of the whole server changes its start time.
                self._writers = [writer for writer in self._writers if writer.prepared]
                self._names = 0
                self._boot += step == "restart"
                self._dialogue = None
            case "answer":
                self._answer()

    def finish(self) -> None:
        """Everyone commits, and the reader reads until there is nothing more."""
        for writer in list(self._writers):
            writer.visible = True
            self._rows |= {abs(number): number > 0 for number in writer.ids}
        self._writers = []
        for _ in range(20 + 4 * self._sequence):
            self._dialogue = None
            self._answer()
            while self._dialogue is not None:
                self._answer()

    def _one(self, which: int, able: Callable[[Transaction], bool]) -> list[Transaction]:
        able_ones = [writer for writer in self._writers if able(writer)]
        return [able_ones[which % len(able_ones)]] if able_ones else []

    def _answer(self) -> None:
        if self._dialogue is None:
            # The position goes through its stored form between any two polls.
            self.state = SettledState.from_json(self.state.to_json())
            self._dialogue = self._poll(self.state, self._limit)
            self._question = next(self._dialogue)
            return
        try:
            self._question = self._dialogue.send(self._reply(self._question))  # type: ignore[attr-defined]
        except StopIteration as end:
            self._dialogue = None
            self.state = end.value.state
            self.delivered += [row[0] for row in end.value.rows]

    def _reply(self, question: object) -> object:
        match question:
            case settled.AskHead():
                return max(self._rows, default=0)
            case settled.AskHolders():
                names = frozenset(writer.name for writer in self._writers if writer.locks)
                return Holders(basis=str(self._boot), present=names)
            case settled.AskLastIssued():
                return self._sequence
            case settled.AskVisible(after, upto, limit):
                ids = sorted(n for n in self._rows if after < n <= upto)[:limit]
                return IdRanges((n, n) for n in ids)
            case settled.AskRows(ranges, limit):
                ids = sorted(n for n, wanted in self._rows.items() if wanted and n in ranges)
                return [(n,) for n in ids[:limit]]
        return None
