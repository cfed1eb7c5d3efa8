"""The compaction policy of a table, in its properties ``arctic.compaction.*``.

Sizes and durations are written as everywhere: ``128MiB``, ``1h``. A table without any of these
properties is compacted with the defaults. ``docs/compaction.md`` lists all of them.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TypeVar

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.lake.sort_columns import Clustering, parse_clustering
from arctic_orchestration.quantities import format_size, parse_duration, parse_size
from arctic_orchestration.state.dialect import storable

#: The prefix of all property names.
PREFIX = "arctic.compaction."
#: the reason for a table with compaction disabled
DISABLED = f"{PREFIX}enabled is false"

_ICEBERG_TARGET = "write.target-file-size-bytes"
_ICEBERG_ROW_GROUP = "write.parquet.row-group-size-bytes"

_MIB = 1024 * 1024
#: The smallest useful file size: thresholds are fractions of it.
_SMALLEST_TARGET = 1024
#: The range of levels of queues, tables and tasks.
HIGHEST_LEVEL = 1000
_LARGEST_COUNT = 1_000_000

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)( ?%)?")
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The compaction policy of one table; sizes in bytes.

    A file is a *fragment* below ``fragment_size``, *undersized* below ``done_size``, *oversized*
    above ``split_size`` and *done* in between.
    """

    #: whether it is compacted at all
    enabled: bool = True
    #: the queue of its tasks; none: the manually mapped one, else ``default``
    queue: str | None = None
    #: tables of a higher level precede others in their queue
    level: int = 0

    #: the target size of files
    target_size: int = 128 * _MIB
    fragment_size: int = 16 * _MIB
    done_size: int = 96 * _MIB
    split_size: int = 128 * _MIB * 9 // 5

    #: the number of fragments of a partition that triggers a merge
    minor_min_files: int = 12
    #: the interval at which fragments are merged, however few; none: never
    minor_interval: timedelta | None = _HOUR
    #: the number of undersized files of a partition that triggers a merge
    major_min_files: int = 8
    #: the interval at which all small files are merged, however few; none: never
    major_interval: timedelta | None = _DAY
    #: the number of delete files in a partition that triggers applying them
    major_delete_files: int = 10
    #: the share of deleted rows, from 0 to 1, that triggers the same
    major_deleted_rows: float = 0.1
    #: the interval at which all files of a changed partition are rewritten; none: never
    full_interval: timedelta | None = None

    #: the maximum input of one task in bytes, delete files included
    max_task_size: int = 512 * _MIB
    #: the maximum number of data files of one task
    max_files: int = 1000

    #: the interval at which the planner checks the table without an event
    check_interval: timedelta = timedelta(minutes=1)
    #: the minimum interval between two commits to the table
    commit_interval: timedelta = timedelta(seconds=60)
    #: how long a task waits after a failure
    retry_interval: timedelta = timedelta(minutes=5)
    #: the number of attempts before a task is quarantined
    attempts: int = 3

    #: the age of snapshots that are expired, once a day; none: never
    expire_snapshots: timedelta | None = None
    #: the age of orphans that are removed, once a day; none: never
    remove_orphans: timedelta | None = None
    #: the number of small manifests of one kind that are merged, once a day; none: never
    rewrite_manifests: int | None = None

    #: how the rows of merged files are sorted; none: by the table's sort order
    sort: Clustering | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str], table: str) -> "Policy":
        """Reads the properties of the table; ignores all others.

        Args:
            properties: the properties of an Iceberg table.
            table: its identifier, for messages.

        Errors:
            InvalidDefinition: names each invalid property, its value and what was expected.
        """
        reader = _Reader(properties, table)
        policy = reader.policy()
        if reader.problems:
            raise InvalidDefinition(reader.problems)
        return policy

    @classmethod
    def or_default(cls, properties: Mapping[str, str], table: str) -> "Policy":
        """Reads the properties as :meth:`of`; all defaults if one is invalid.

        The planner reports that, in the row of the table.
        """
        try:
            return cls.of(properties, table)
        except InvalidDefinition:
            return cls()

    @property
    def fingerprint(self) -> str:
        """A short text that changes whenever a plan might change."""
        shown = [f"{name}={getattr(self, name)!r}" for name in _PLANNED_BY]
        return hashlib.sha256(";".join(shown).encode()).hexdigest()[:16]


#: What happens after a plan does not change it.
_PLANNED_BY = [
    field.name
    for field in fields(Policy)
    if field.name
    not in ("queue", "level", "check_interval", "commit_interval", "retry_interval", "attempts",
            "expire_snapshots", "remove_orphans", "rewrite_manifests")
]  # fmt: skip


#: A name that is meant for us would be ignored, and a table that opts out would be compacted.
_ALMOST = re.compile("arctic[^a-z]*compact", re.IGNORECASE)


class _Reader:
    """Reads properties one by one, and gathers the errors."""

    def __init__(self, properties: Mapping[str, str], table: str) -> None:
        self._properties = properties
        self._table = table
        self._known: set[str] = set()
        self.problems: list[InvalidInput] = []

    def policy(self) -> Policy:
        target = self._target()
        fragment = self._size("fragment-size", target // 8)
        done = self._size("done-size", target * 3 // 4)
        split = self._size("split-size", target * 9 // 5)
        default = Policy()
        policy = Policy(
            enabled=self._own("enabled", _truth, default.enabled),
            queue=self._own("queue", _name, default.queue),
            level=self._own("level", _whole(-HIGHEST_LEVEL, HIGHEST_LEVEL), default.level),
            target_size=target,
            fragment_size=fragment,
            done_size=done,
            split_size=split,
            minor_min_files=self._count("minor.min-files", 2, default.minor_min_files),
            minor_interval=self._own("minor.interval", _interval, default.minor_interval),
            major_min_files=self._count("major.min-files", 2, default.major_min_files),
            major_interval=self._own("major.interval", _interval, default.major_interval),
            full_interval=self._own("full.interval", _interval, default.full_interval),
            major_delete_files=self._count("major.delete-files", 1, default.major_delete_files),
            major_deleted_rows=self._own("major.deleted-rows", _share, default.major_deleted_rows),
            max_task_size=self._size("max-task-size", 4 * target),
            max_files=self._count("max-files", 2, default.max_files),
            check_interval=self._duration("check-interval", default.check_interval),
            commit_interval=self._duration("commit-interval", default.commit_interval),
            retry_interval=self._duration("retry-interval", default.retry_interval),
            attempts=self._own("attempts", _whole(1, 100), default.attempts),
            expire_snapshots=self._own("expire-snapshots", _interval, default.expire_snapshots),
            remove_orphans=self._own("remove-orphans", _age, default.remove_orphans),
            rewrite_manifests=self._own("rewrite-manifests", _number, default.rewrite_manifests),
            sort=self._own("sort", parse_clustering, default.sort),
        )
        self._refuse_unknown()
        if not self.problems:
            self._refuse_contradictions(policy)
        return policy

    def _target(self) -> int:
        default = self._read(_ICEBERG_TARGET, _bytes, Policy().target_size)
        target = self._size("target-size", default)
        name = PREFIX + "target-size"
        if name not in self._properties and _ICEBERG_TARGET in self._properties:
            name = _ICEBERG_TARGET
        if any(problem.field == self._field(name) for problem in self.problems):
            return target
        if target < _SMALLEST_TARGET:
            self._refuse(name, f"at least {format_size(_SMALLEST_TARGET)}")
        row_group = self._read(_ICEBERG_ROW_GROUP, _bytes, 0)
        if target < row_group:
            self._refuse(
                name,
                f"at least {format_size(row_group)}, which one row group has by "
                f"{_ICEBERG_ROW_GROUP}",
                format_size(target),
            )
        return target

    def _refuse_contradictions(self, policy: Policy) -> None:
        fragment, done = ("fragment-size", policy.fragment_size), ("done-size", policy.done_size)
        target = ("target-size", policy.target_size)
        for (small, smaller), (large, larger) in (
            (fragment, done),
            (done, target),
            (target, ("split-size", policy.split_size)),
            (target, ("max-task-size", policy.max_task_size)),
        ):
            if smaller <= larger:
                continue
            # The message names a property that was set; of two, not the target.
            if PREFIX + large in self._properties and (
                large != "target-size" or PREFIX + small not in self._properties
            ):
                self._refuse(PREFIX + large, f"at least {format_size(smaller)}, the {small}")
            else:
                self._refuse(PREFIX + small, f"at most {format_size(larger)}, the {large}")

    def _refuse_unknown(self) -> None:
        known = ", ".join(sorted(name.removeprefix(PREFIX) for name in self._known))
        for name in sorted(self._properties):
            is_ours = name.startswith(PREFIX) or _ALMOST.match(name)
            if is_ours and name not in self._known:
                self._refuse(name, f"a property that is known: {PREFIX} and one of {known}")

    def _own(self, name: str, parse: Callable[[str], _T], default: _T) -> _T:
        self._known.add(PREFIX + name)
        return self._read(PREFIX + name, parse, default)

    def _size(self, name: str, default: int) -> int:
        return self._own(name, _positive_size, default)

    def _count(self, name: str, least: int, default: int) -> int:
        return self._own(name, _whole(least, _LARGEST_COUNT), default)

    def _duration(self, name: str, default: timedelta) -> timedelta:
        return self._own(name, parse_duration, default)

    def _read(self, name: str, parse: Callable[[str], _T], default: _T) -> _T:
        text = self._properties.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self._refuse(name, str(error))
            return default

    def _refuse(self, name: str, expected: str, otherwise: str | None = None) -> None:
        found = self._properties.get(name, otherwise)
        self.problems.append(InvalidInput(self._field(name), found, expected))

    def _field(self, name: str) -> str:
        return f"{name} of {self._table}"


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _name(text: str) -> str | None:
    if not text.strip() or storable(text) != text:
        raise ValueError("the name of a queue")
    return text


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number, {least} to {most}")
        return int(text)

    return parse


def _positive_size(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise ValueError("a size of more than 0B")
    return size


def _bytes(text: str) -> int:
    """Returns Iceberg's own properties are whole numbers of bytes."""
    if not _WHOLE.fullmatch(text) or int(text) < 1:
        raise ValueError("a whole number of bytes, at least 1")
    return int(text)


def _interval(text: str) -> timedelta | None:
    if text == "never":
        return None
    try:
        interval = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, or never") from None
    if not interval:
        raise ValueError("a duration longer than 0s, or never")
    return interval


def _number(text: str) -> int | None:
    """Returns a number of manifests."""
    if text == "never":
        return None
    try:
        return _whole(2, _LARGEST_COUNT)(text)
    except ValueError as error:
        raise ValueError(f"{error}, or never") from None


def _age(text: str) -> timedelta | None:
    age = _interval(text)
    if age is not None and age < _DAY:
        raise ValueError("a duration of at least 1d, or never: younger files may be being written")
    return age


def _share(text: str) -> float:
    found = _SHARE.fullmatch(text)
    share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < share <= 1:
        raise ValueError("a share of the rows, more than 0 and at most 1, such as 0.1 or 10%")
    return share
