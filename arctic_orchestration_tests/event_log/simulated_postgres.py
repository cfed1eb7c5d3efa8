"""A small model of how Postgres hands out ids, shows rows and holds locks.

A script is a list of steps of other transactions and of results of the reader's queries, in
any order; so a failing interleaving is a short list that can be read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from arctic_orchestration.event_log import watermark
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.event_log.watermark import Holders, ReaderState

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
        poll: Callable[[ReaderState, int], watermark.Queries] = watermark.poll,
        state: ReaderState | None = None,
    ) -> None:
        self._limit = limit
        self._poll = poll
        self._sequence = 0
        self._names = 0
        self._boot = 1
        self._writers: list[Transaction] = []
        self._rows: dict[int, bool] = {}
        self.state = state or ReaderState()
        self.delivered: list[int] = []
        self._queries: Iterator[object] | None = None
        self._query: object = None

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
                self._queries = None
            case "answer":
                self._answer()

    def finish(self) -> None:
        """Everyone commits, and the reader reads until there is nothing more."""
        for writer in list(self._writers):
            writer.visible = True
            self._rows |= {abs(number): number > 0 for number in writer.ids}
        self._writers = []
        for _ in range(20 + 4 * self._sequence):
            self._queries = None
            self._answer()
            while self._queries is not None:
                self._answer()

    def _one(self, which: int, able: Callable[[Transaction], bool]) -> list[Transaction]:
        able_ones = [writer for writer in self._writers if able(writer)]
        return [able_ones[which % len(able_ones)]] if able_ones else []

    def _answer(self) -> None:
        if self._queries is None:
            # The position goes through its stored form between any two polls.
            self.state = ReaderState.from_json(self.state.to_json())
            self._queries = self._poll(self.state, self._limit)
            self._query = next(self._queries)
            return
        try:
            self._query = self._queries.send(self._reply(self._query))  # type: ignore[attr-defined]
        except StopIteration as end:
            self._queries = None
            self.state = end.value.state
            self.delivered += [row[0] for row in end.value.rows]

    def _reply(self, query: object) -> object:
        match query:
            case watermark.HeadQuery():
                return max(self._rows, default=0)
            case watermark.HoldersQuery():
                names = frozenset(writer.name for writer in self._writers if writer.locks)
                return Holders(basis=str(self._boot), present=names)
            case watermark.LastIssuedQuery():
                return self._sequence
            case watermark.VisibleQuery(after, upto, limit):
                ids = sorted(n for n in self._rows if after < n <= upto)[:limit]
                return IdRanges((n, n) for n in ids)
            case watermark.RowsQuery(ranges, limit):
                ids = sorted(n for n, wanted in self._rows.items() if wanted and n in ranges)
                return [(n,) for n in ids[:limit]]
        return None
