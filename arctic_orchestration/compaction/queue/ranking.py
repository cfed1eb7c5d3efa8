"""Ranks that age, as a number that is written only once.

Of two waiting tasks of a queue, the one with the smaller rank is claimed first. A task that has
waited since ``w``, of a table of level ``l`` and with benefit ``b`` and place ``p``, has the rank
``w - (l + (b - p) / 2) * S``, with ``S`` seconds a level. The level dominates, since benefit and
place together make less than one level; and a wait of ``S`` seconds counts as much as one level.

The *benefit* is the number of small files removed for the CPU time that it takes, mapped to [0, 1):
with ``x`` small files for each decoded MiB it is ``x / (1 + x)``. Sixteen files of 64 KiB
(``x = 16``) have 0.94, two of 16 MiB that are decoded (``x = 1/16``) 0.06, and a third if their row
groups are copied; a group without small files has 0. See :func:`decoded_bytes`.

The *place* makes the tables of a queue take turns. A task that was offered when ``n`` tasks of its
table were live or offered before it has the place ``n / (n + 8)``, in [0, 1): the first task of a
table 0, the second 1/9, the ninth 1/2. So the later tasks of a table with many tasks wait for the
first tasks of other tables that come minutes later. A place is assigned once, with the age.

**The bound.** Consider a task of level ``l`` that has waited since ``w`` in a queue of capacity
``Q``, whose tasks are claimed by ``c`` slots that are never idle while a task can be claimed, each
for at most ``d`` seconds a claim, and let ``H >= l`` be the highest level in use.

1. Only tasks of a smaller rank overtake it. A task that has waited since ``v`` has a rank above ``v
   - (H + 1/2) * S``, for its level is at most ``H`` and its benefit less than one. The rank of our
   task is below ``w - (l - 1/2) * S``, as its place is less than one. So every overtaking task has
   ``v < w + (H + 1 - l) * S``. Call the last moment ``T``.
2. A task is offered with ``v`` the time of its offer, or it inherits the age of *one* waiting task
   that it replaces, and then no other task inherits that age (``offers``). So after ``T`` the
   number of waiting tasks with ``v < T`` never grows. At ``T`` it is at most ``Q``, including this
   one.
3. Each of the other ``Q - 1`` is claimed at most ``a`` times before it ends, ``a`` being the number
   of attempts of a task. From ``T`` on, each slot makes a claim at the latest after ``d`` seconds
   and then after every ``d`` seconds, and until our task is claimed each claim is one of these.
   Within ``t`` seconds these are at least ``c * floor(t / d)`` claims, and at most ``a * (Q - 1)``.

So it is claimed at the latest ``(H + 1 - l) * S + (floor(a * (Q - 1) / c) + 1) * d`` seconds after
``w``, however many tasks of higher levels arrive. That is :func:`waits_at_most`. It holds within a
queue; between queues, shares decide. It can take longer if a person moves tables with old tasks to
the queue, or releases tasks repeatedly; a worker that drains only releases its own tasks. A task
that a better plan replaces without inheriting its age was joined with another one, which is older.
"""

from datetime import UTC, datetime, timedelta

#: how long a task waits until it counts as one of the next level
SECONDS_PER_LEVEL = 3600

#: the number of earlier tasks of its table whose place costs as much as half the best benefit
_TURNS = 8
_MIB = 1024 * 1024
#: how many bytes are copied in the CPU time in which one is decoded: 7.6 and 21 in BENCHMARKS.md
_COPIED_FOR_ONE = 8
#: smaller files have row groups that are too small to be copied
_SMALLEST_COPIED = 1_000_000
_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rank_of(
    waiting_since: datetime,
    level: int,
    small_files: int,
    decoded: int,
    seconds_per_level: int = SECONDS_PER_LEVEL,
    *,
    place: int = 0,
) -> int:
    """Returns the number that orders the claims of a queue, in microseconds; less is earlier.

    Args:
        waiting_since: when its files began to wait.
        level: of its table; more is earlier.
        small_files: how many small files its commit removes.
        decoded: how much CPU time that takes, as :func:`decoded_bytes`.
        seconds_per_level: the wait that counts as one level.
        place: how many tasks of its table were live or offered before it.
    """
    age = (waiting_since - _EPOCH) // timedelta(microseconds=1)
    whole = seconds_per_level * _SECOND
    half = whole // 2
    turn = half * place // (place + _TURNS)
    return age - level * whole - _benefit_in(half, small_files, decoded) + turn


def benefit_of(small_files: int, decoded: int) -> float:
    """Returns the small files removed for the CPU time of so many decoded bytes, in [0, 1)."""
    return _benefit_in(_SECOND, small_files, decoded) / _SECOND


def decoded_bytes(files: int, has_deletes: bool, bytes: int) -> int:
    """Returns how many bytes are decoded in the CPU time that a merge probably takes.

    It is a guess before the files are opened: whether their row groups will be copied depends on
    their footers, too, and on the table's sort order.

    Args:
        files: the number of data files.
        has_deletes: whether delete files apply to any of them.
        bytes: how many bytes it reads.
    """
    is_copied = files > 1 and not has_deletes and bytes >= files * _SMALLEST_COPIED
    return bytes // _COPIED_FOR_ONE if is_copied else bytes


def overtaken_until(waiting_since: datetime, level: int, highest_level: int) -> datetime:
    """Returns the moment from which no newly offered task precedes this one."""
    levels = max(highest_level - level, 0) + 1
    return waiting_since + timedelta(seconds=levels * SECONDS_PER_LEVEL)


def waits_at_most(
    level: int,
    *,
    highest_level: int,
    capacity: int,
    slots: int,
    longest: timedelta,
    attempts: int = 1,
    seconds_per_level: int = SECONDS_PER_LEVEL,
) -> timedelta:
    """Returns how long a task can wait until it is claimed, as the module proves.

    Args:
        level: the level of its table.
        highest_level: the highest level of the queue's tables.
        capacity: the capacity of the queue.
        slots: how many tasks of the queue are merged at once, always.
        longest: the maximum time from a claim to its end.
        attempts: the maximum number of claims of a task; 1: none fails.
        seconds_per_level: as the tasks were offered with.
    """
    levels = max(highest_level - level, 0) + 1
    rounds = attempts * (capacity - 1) // slots + 1
    return timedelta(seconds=levels * seconds_per_level) + rounds * longest


def _benefit_in(whole: int, small_files: int, decoded: int) -> int:
    """Returns the benefit as a part of ``whole``, always less than that."""
    weight = small_files * _MIB
    return whole * weight // (max(decoded, 1) + weight)
