"""Packs files into bins, each of which is merged into about one file of the target size.

First fit: each file, in the order in which the table received them, goes into the first bin with
room. So rows that were appended in sequence stay together and in order, at most one bin is less
than half full, and no two bins would fit into one: packing the merged files again changes nothing.
(Johnson and others, Worst-case performance bounds for simple one-dimensional packing algorithms,
1974.) A tree of maxima finds the first bin with room in log n steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from arctic_orchestration.lake.file_groups import LiveFile

#: Deletes may keep a file out of a bin that has room for its data; how many such bins are tried.
_BINS_TRIED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a bin; sizes in bytes."""

    #: data and delete files together; data alone where the deletes are larger than it
    target: int
    #: data and delete files together, in any case
    most_bytes: int
    #: the number of data files
    most_files: int


def in_order(files: Sequence[LiveFile]) -> list[LiveFile]:
    """Returns the files as the table received them: by sequence number, then by path."""
    return sorted(files, key=lambda file: (file.sequence_number, file.path))


def too_large(files: Sequence[LiveFile], most_bytes: int) -> tuple[LiveFile, ...]:
    """Returns the files that exceed this size alone, with their deletes."""
    # Files of one commit often share the very same tuple of deletes, thousands of them.
    tuples = {id(file.deletes): file.deletes for file in files if file.deletes}
    sizes = {key: sum(one.size for one in deletes) for key, deletes in tuples.items()}
    return tuple(file for file in files if file.size + sizes.get(id(file.deletes), 0) > most_bytes)


def pack(files: Sequence[LiveFile], limits: Limits) -> list[tuple[LiveFile, ...]]:
    """Packs the files, in any order; the bins and their contents are ordered.

    A bin contains at most ``limits.target`` bytes, and delete files count, each once a bin. Where
    these are large, a bin may contain as much data as deletes: each task reads them, and with
    little data beside them the same deletes would be read again and again. A file larger than the
    target has a bin of its own. No file may be :func:`too_large`.
    """
    bins: list[_Bin] = []
    rooms = _Rooms(len(files), limits.target)
    for file in in_order(files):
        place = _place_of(file, bins, rooms, limits)
        if place is None:
            place = len(bins)
            bins.append(_Bin())
        bin_ = bins[place]
        bin_.add(file)
        rooms.set(place, bin_.room(limits))
    return [tuple(bin_.files) for bin_ in bins]


def _place_of(
    file: LiveFile, bins: "Sequence[_Bin]", rooms: "_Rooms", limits: Limits
) -> int | None:
    place = -1
    for _ in range(_BINS_TRIED):
        place = rooms.first(file.size, place + 1)
        if place >= len(bins):
            return None
        if bins[place].takes(file, limits):
            return place
    # The next one has room for the deletes too, whether or not it contains them.
    together = file.size + sum(delete.size for delete in file.deletes)
    place = rooms.first(together, place + 1)
    return place if place < len(bins) and bins[place].takes(file, limits) else None


class _Bin:
    def __init__(self) -> None:
        self.files: list[LiveFile] = []
        self.data = 0
        self._deletes = 0
        self._keys: set[tuple[str, int]] = set()
        # Files of one commit often share the very same tuple of deletes, thousands of them.
        self._seen: set[int] = set()

    def takes(self, file: LiveFile, limits: Limits) -> bool:
        return self.data + file.size <= _most_data(self._deletes + self._added(file), limits)

    def room(self, limits: Limits) -> int:
        """Returns how much more data fits, of files with deletes that it contains; -1: no file."""
        if len(self.files) >= limits.most_files:
            return -1
        return _most_data(self._deletes, limits) - self.data

    def add(self, file: LiveFile) -> None:
        self._deletes += self._added(file)
        self.data += file.size
        self.files.append(file)
        if file.deletes:
            self._seen.add(id(file.deletes))
            self._keys.update(delete.key for delete in file.deletes)

    def _added(self, file: LiveFile) -> int:
        """Returns the size of the file's deletes that the bin does not contain yet."""
        if not file.deletes or id(file.deletes) in self._seen:
            return 0
        return sum(delete.size for delete in file.deletes if delete.key not in self._keys)


def _most_data(deletes: int, limits: Limits) -> int:
    """Returns the maximum size of data in a bin with this size of deletes."""
    return min(limits.target, max(limits.target - deletes, deletes), limits.most_bytes - deletes)


class _Rooms:
    """The room of each bin; an empty bin has all of it."""

    def __init__(self, bins: int, room: int) -> None:
        self._leaves = 1
        while self._leaves < bins:
            self._leaves *= 2
        self._most = [room] * (2 * self._leaves)

    def set(self, place: int, room: int) -> None:
        node = place + self._leaves
        self._most[node] = room
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])

    def first(self, size: int, start: int) -> int:
        """Returns the first bin from ``start`` on with this room, else the number of leaves."""
        if start >= self._leaves:
            return self._leaves
        node = start + self._leaves
        while self._most[node] < size:
            # To the next subtree on the right: up while this one is a right child.
            while node & 1:
                node //= 2
            if node == 0:
                return self._leaves
            node += 1
        while node < self._leaves:
            node *= 2
            if self._most[node] < size:
                node += 1
        return node - self._leaves
