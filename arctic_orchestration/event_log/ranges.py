"""Sets of ids that are mostly contiguous, stored as ranges."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence


class IdRanges:
    """An immutable set of positive ids, as ascending ranges that neither overlap nor touch.

    Its size is the number of gaps, not of ids: a million consecutive ids are one range.
    """

    __slots__ = ("_high", "_low")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """Takes ``pairs`` of first and last ids, both inclusive, in any order."""
        low: list[int] = []
        high: list[int] = []
        for first, last in sorted(pairs):
            if last < first:
                continue
            if high and first <= high[-1] + 1:
                high[-1] = max(high[-1], last)
            else:
                low.append(first)
                high.append(last)
        self._low = low
        self._high = high

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges as ``(first, last)``, ascending."""
        return zip(self._low, self._high, strict=True)

    def __len__(self) -> int:
        """The number of ranges; ``count`` is the number of ids."""
        return len(self._low)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._high, number)
        return at < len(self._low) and self._low[at] <= number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdRanges):
            return NotImplemented
        return self._low == other._low and self._high == other._high

    def __hash__(self) -> int:
        return hash((tuple(self._low), tuple(self._high)))

    def __repr__(self) -> str:
        return f"IdRanges({list(self)!r})"

    @property
    def count(self) -> int:
        """How many ids the set has."""
        return sum(self._high) - sum(self._low) + len(self._low)

    def last_up_to(self, limit: int) -> int | None:
        """Returns the largest id of the set that is at most ``limit``."""
        at = bisect_left(self._low, limit + 1) - 1
        return min(self._high[at], limit) if at >= 0 else None

    def within(self, after: int, upto: int) -> "IdRanges":
        """Returns the ids in ``(after, upto]``."""
        return IdRanges((max(low, after + 1), min(high, upto)) for low, high in self)

    def union(self, other: "IdRanges") -> "IdRanges":
        """Returns the ids in either set."""
        return IdRanges([*self, *other])

    def minus(self, other: "IdRanges") -> "IdRanges":
        """Returns the ids of this set that are not in the other."""
        left: list[tuple[int, int]] = []
        for low, high in self:
            at = bisect_left(other._high, low)
            while at < len(other._low) and other._low[at] <= high:
                left.append((low, other._low[at] - 1))
                low = other._high[at] + 1
                at += 1
            left.append((low, high))
        return IdRanges(left)

    def first(self, ranges: int) -> "IdRanges":
        """Returns the ids of the first ``ranges`` ranges."""
        return IdRanges(list(self)[:ranges])

    def to_json(self, base: int) -> list[int]:
        """Returns alternating distances and lengths from ``base`` on: smaller numbers than ids."""
        steps: list[int] = []
        for low, high in self:
            steps += (low - base, high - low)
            base = high
        return steps

    @classmethod
    def from_json(cls, steps: Sequence[int], base: int) -> "IdRanges":
        """Parses the form that ``to_json`` made."""
        pairs = []
        for distance, length in zip(steps[::2], steps[1::2], strict=True):
            low = base + distance
            base = low + length
            pairs.append((low, base))
        return cls(pairs)
