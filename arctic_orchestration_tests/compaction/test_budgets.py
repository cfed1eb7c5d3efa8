"""The hours and the budget of a queue: a simulated day of workers, and what is said meanwhile."""

import heapq
import os
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.dagster.worker_demand import work_of
from arctic_orchestration.compaction.queue import budget, claim_order, queues, table_queues
from arctic_orchestration.compaction.queue.budget import held_queues, hours_window
from arctic_orchestration.compaction.queue.claim_order import claimable
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue
from arctic_orchestration.compaction.run_once import compact_now
from arctic_orchestration.compaction.views import task_waits
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.state.compaction_tables import compaction_queues
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import Merging, lake_in, table_of
from arctic_orchestration_tests.compaction.stored import MERGE, planned, seen, waits_for_lock
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.standing_clock import Clock

DAY = timedelta(days=1)
#: of the cluster; the budget of 2 is a fifth of it
SLOTS = 10
#: the morning, in which nothing may be merged, is 07:00 to 09:00 in UTC
MIDNIGHT = datetime(2026, 1, 15, tzinfo=UTC)
HOURS = "10:00-08:00 Europe/Berlin"
CLOSED = (MIDNIGHT + timedelta(hours=7), MIDNIGHT + timedelta(hours=9))


def offer_many(database: Database, count: int, table: str = "lake.a") -> None:
    """Tasks of two files each."""
    with database.begin() as tx:
        queues.update_queue(tx, "default", capacity=count + 10)
        seen(tx, table, now=MIDNIGHT)
        tasks = [planned(f"{table}-{n}-a", f"{table}-{n}-b") for n in range(count)]
        offer(tx, table, tasks, MIDNIGHT)


@dataclass
class Day:
    """Workers that claim whatever they get."""

    database: Database
    chance: random.Random
    clock: Clock = field(default_factory=lambda: Clock(MIDNIGHT))
    #: when each merge began and ended
    merges: list[tuple[datetime, datetime]] = field(default_factory=list)
    #: minutes; twelve on average
    lasting: Sequence[float] = (0.2, 1, 5, 10, 12, 15, 20, 33)

    def run(self, end: datetime = MIDNIGHT + DAY) -> None:
        """Each merge lasts what chance says."""
        busy: list[tuple[datetime, str, int]] = []
        while self.clock.now < end:
            while busy and busy[0][0] <= self.clock.now:
                _, id, token = heapq.heappop(busy)
                with self.database.begin() as tx:
                    if self.chance.random() < 0.1:
                        attempts.failed(tx, id, token, "a page is broken", time=self.clock)
                    else:
                        attempts.merged(tx, id, token, **MERGE, time=self.clock)
            while len(busy) < SLOTS:
                with self.database.begin() as tx:
                    claim = attempts.claim(tx, [], "w", life=2 * DAY, time=self.clock)
                if claim is None:
                    break
                lasts = timedelta(minutes=self.chance.choice(self.lasting))
                self.merges.append((self.clock.now, self.clock.now + lasts))
                heapq.heappush(busy, (self.clock.now + lasts, claim.attempt_id, claim.token))
            following = [self.clock.now + timedelta(minutes=5), *(end for end, _, _ in busy[:1])]
            self.clock.now = min(following)

    def share(self, begin: datetime = MIDNIGHT, end: datetime = MIDNIGHT + DAY) -> float:
        """Of the cluster's time between two moments."""
        used = sum(
            (max(min(ended, end) - max(began, begin), timedelta()) for began, ended in self.merges),
            timedelta(),
        )
        return used / (SLOTS * (end - begin))


@pytest.mark.parametrize("idle", [timedelta(minutes=20), DAY], ids=str)
def test_an_idle_time_saves_a_quarter_of_an_hour(database: Database, idle: timedelta) -> None:
    """Merges of 100 minutes from then on: what they use is paid by those after them.

    One task at once for ten hours and a quarter of an hour, and what the last merges still last.
    """
    offer_many(database, 60)
    with database.begin() as tx:
        queues.update_queue(tx, "default", budget=1)
    day = Day(database, random.Random(1), lasting=[100])
    with database.begin() as tx:
        first = attempts.claim(tx, [], "w", life=DAY, time=day.clock)
    assert first is not None
    day.clock.now += timedelta(minutes=10)
    with database.begin() as tx:
        attempts.merged(tx, first.attempt_id, first.token, **MERGE, time=day.clock)
    day.clock.now += idle
    day.run(day.clock.now + timedelta(hours=10))
    begun = [at for at, _ in day.merges]
    assert 6 <= len(begun) <= 7
    at_once = max(sum(a <= at < b for a, b in day.merges) for at in begun)
    assert at_once <= 3


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10) if os.environ.get("ARCTIC_PROOF") == "full" else [1])
def test_a_budget_and_hours_hold_over_a_day(database: Database, seed: int) -> None:
    """A fifth of the cluster, within 2 % of it; nothing is claimed while it is closed."""
    offer_many(database, 500)
    with database.begin() as tx:
        queues.update_queue(tx, "default", budget=0.2 * SLOTS, hours=HOURS)
    day = Day(database, random.Random(seed))
    day.run()
    # Open for 22 of 24 hours.
    assert 0.2 * 22 / 24 - 0.02 <= day.share() <= 0.2 + 0.02
    for hour in range(0, 24, 4):
        begin = MIDNIGHT + timedelta(hours=hour)
        # The quarter of an hour that is saved, and what the last merges exceed the mean.
        assert day.share(begin, begin + timedelta(hours=4)) <= 0.2 * 4.25 / 4 + 0.02
    assert not [began for began, _ in day.merges if CLOSED[0] <= began < CLOSED[1]]
    assert day.share(*CLOSED) <= 0.02


def test_without_them_the_cluster_is_full(database: Database) -> None:
    """The control: the workers would use all of it, and the morning, too."""
    offer_many(database, 400)
    begin, end = (CLOSED[0] - timedelta(hours=1), CLOSED[1] + timedelta(hours=1))
    day = Day(database, random.Random(1), Clock(begin))
    day.run(end)
    assert day.share(begin, end) > 0.9
    assert day.share(*CLOSED) > 0.9


def test_what_was_lost_has_used_the_budget(database: Database) -> None:
    """A worker that dies has had its slot until its lease is over; then the queue has to wait."""
    offer_many(database, 3)
    clock = Clock(MIDNIGHT)
    with database.begin() as tx:
        queues.update_queue(tx, "default", budget=0.1)
        # 0.1 * 900 s are saved, and one attempt counts 60 s before any has ended.
        assert attempts.claim(tx, [], "w", life=timedelta(minutes=10), time=clock)
        assert attempts.claim(tx, [], "w", life=timedelta(minutes=10), time=clock)
        assert attempts.claim(tx, [], "w", time=clock) is None
        clock.passes(minutes=10)
        assert attempts.expire(tx, time=clock) == 2
        # 1200 s were used, of which 90 s and 60 s more were allowed.
        (held,) = held_queues(tx, clock.now).values()
        assert held.until == clock.now + timedelta(seconds=(1200 - 90) / 0.1)
        assert held.reason == "its budget of 0.1 tasks at once is used up until about " + (
            "2026-01-15 03:15:00Z"
        )
        clock.now = held.until + timedelta(seconds=1)
        assert attempts.claim(tx, [], "w", time=clock)


def test_a_changed_budget_counts_at_once_and_none_is_no_limit(database: Database) -> None:
    """What was used stays used; it is forgotten with time."""
    offer_many(database, 9)
    clock = Clock(MIDNIGHT)
    with database.begin() as tx:
        queues.update_queue(tx, "default", budget=0.1)
        claim = attempts.claim(tx, [], "w", life=DAY, time=clock)
        assert claim is not None
        clock.passes(minutes=60)
        attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
        assert attempts.claim(tx, [], "w", time=clock) is None
        queues.update_queue(tx, "default", budget=0)
        assert attempts.claim(tx, [], "w", time=clock)
        queues.update_queue(tx, "default", budget=0.1)
        assert attempts.claim(tx, [], "w", time=clock) is None
        queues.update_queue(tx, "default", budget=100)
        # 3600 s were used, and the live attempt will probably last as long.
        clock.passes(minutes=2)
        assert attempts.claim(tx, [], "w", time=clock)


@pytest.mark.parametrize("locks", [True, False])
def test_workers_that_ask_at_once_share_one_budget(
    database: Database, backend: str, locks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of eight gets a task: two would overdraw. On Postgres, all do without the lock."""
    offer_many(database, 8)
    with database.begin() as tx:
        # 45 s are saved, and an attempt counts 60 s before any has ended.
        queues.update_queue(tx, "default", budget=0.05)
    is_alone = backend == "sqlite"
    # Each holds a connection; after this, a process has more than four.
    monkeypatch.setattr("arctic_orchestration.connection_pools.PatientPool.LAST_SECONDS", 0.1)
    if not locks:
        monkeypatch.setattr(budget, "_lock_budgets", lambda *_: None)
    order, together = claim_order._by_share, threading.Barrier(8, timeout=PATIENCE_SECONDS)

    def when_all_have_come(tx: sa.Connection, names: Sequence[str]) -> list[str]:
        if not is_alone:
            together.wait()
        return order(tx, names)

    monkeypatch.setattr(claim_order, "_by_share", when_all_have_come)

    def ask(_: int) -> bool:
        with database.begin() as tx:
            found = attempts.claim(tx, [], "w") is not None
            if not (locks or is_alone):
                together.wait()  # None sees the claims of the others.
        return found

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == (1 if locks or is_alone else 8)


@pytest.mark.parametrize("together", [True, False])
def test_a_worker_that_ends_waits_for_no_table_while_it_has_the_budget(
    database: Database, backend: str, together: bool
) -> None:
    """Else a report of that table and its end would wait for each other: the control."""
    if backend == "sqlite":
        # One writer at a time: nothing waits for a row.
        return
    for table in ("lake.a", "lake.b"):
        offer_many(database, 1, table)
    held = []
    with database.begin() as tx:
        queues.update_queue(tx, "default", budget=5, capacity=9)
        for _ in range(2):
            claim = attempts.claim(tx, [], "w", life=DAY)
            assert claim is not None
            held.append((claim.task.table, claim.attempt_id, claim.token))
    in_order = [(id, token) for _, id, token in sorted(held)]

    def ends() -> None:
        with database.begin() as tx:
            if together:
                attempts.release_all(tx, in_order)
            else:
                for id, token in in_order:
                    attempts.release(tx, id, token)

    with ThreadPoolExecutor(1) as pool, database.begin() as tx:
        tables.lock_table(tx, "lake.b")
        ending = pool.submit(ends)
        until(lambda: waits_for_lock(database), "it waits for the table")
        tx.execute(sa.text("set local lock_timeout = '200ms'"))
        try:
            budget.spend(tx, {"default": [timedelta(minutes=1)]}, MIDNIGHT)
            has_waited = False
        except sa.exc.OperationalError:
            has_waited = True
    ending.result(60)
    assert has_waited is not together


def test_a_held_queue_says_so_and_the_others_go_on(database: Database) -> None:
    """In the counts of what can be claimed, of workers to request, and in a task's reason."""
    offer_many(database, 2)
    morning = CLOSED[0] + timedelta(hours=1)
    clock = Clock(morning)
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="own"), MIDNIGHT)
        seen(tx, "lake.b", now=MIDNIGHT)
        offer(tx, "lake.b", [planned("b1", "b2")], MIDNIGHT)
        table_queues.map_table(tx, "lake.b", "own", MIDNIGHT)
        # Closed now, whenever now is: the day before yesterday only.
        weekday = (datetime.now(UTC) - 2 * DAY).strftime("%a").lower()
        queues.update_queue(tx, "default", hours=f"00:00-24:00 UTC {weekday}")
        assert dict(claimable(tx, datetime.now(UTC))) == {"own": 1}
        work = {name: one.claimable for name, one in work_of(tx).items()}
        assert work == {"default": 0, "own": 1}
        now = task_waits.queue_now(tx, "default")
        assert now.held is not None
        assert now.held.reason.startswith("its hours begin at ")
        (counted,) = (one for one in queues.counted(tx) if one.queue.name == "default")
        assert counted.held == now.held.reason
        queues.update_queue(tx, "default", hours=HOURS)
        claim = attempts.claim(tx, [], "w", time=clock)
        assert claim is not None
        assert claim.task.table == "lake.b"
        assert attempts.claim(tx, [], "w", time=clock) is None
        clock.now = CLOSED[1]
        assert attempts.claim(tx, [], "w", time=clock)


@pytest.mark.parametrize(
    ("hours", "at", "expected"),
    [
        ("always", "12:00", None),
        ("10:00-08:00 Europe/Berlin", "06:57:59", None),
        # An attempt counts a minute before any has ended, and may take two.
        ("10:00-08:00 Europe/Berlin", "06:58:01", "its hours end at 2026-01-15 07:00:00Z, perhap"),
        ("10:00-08:00 Europe/Berlin", "07:00", "its hours begin at 2026-01-15 09:00:00Z"),
        ("10:00-08:00 Europe/Berlin", "09:00", None),
        # 15 January 2026 is a Thursday.
        ("00:00-24:00 UTC thu,fri", "23:59:59", None),
        ("00:00-24:00 UTC thu", "23:59:59", "its hours end at 2026-01-16 00:00:00Z, perhaps"),
        ("00:00-24:00 UTC fri", "12:00", "its hours begin at 2026-01-16 00:00:00Z"),
        # Shorter than an attempt: half of it is used.
        ("12:00-12:01", "12:00:30", None),
        ("12:00-12:01", "12:00:31", "its hours end at 2026-01-15 12:01:00Z, perhaps"),
    ],
)
def test_hours(database: Database, hours: str, at: str, expected: str | None) -> None:
    """Closed from the moment at which a merge would probably not end in them any more."""
    now = datetime.fromisoformat(f"2026-01-15 {at}+00:00")
    with database.begin() as tx:
        queues.update_queue(tx, "default", hours=hours)
        held = held_queues(tx, now).get("default")
    assert (held is None) == (expected is None)
    assert held is None or expected is None or held.reason.startswith(expected)


def test_hours_that_this_machine_cannot_read_hold_their_queue_alone(database: Database) -> None:
    """Another machine knows a zone that this one does not; what waits elsewhere is claimed."""
    offer_many(database, 1)
    with database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="own"), MIDNIGHT)
        seen(tx, "lake.b", now=MIDNIGHT)
        offer(tx, "lake.b", [planned("b1", "b2")], MIDNIGHT)
        table_queues.map_table(tx, "lake.b", "own", MIDNIGHT)
        hours = "08:00-10:00 Mars/Olympus"
        tx.execute(
            sa.update(compaction_queues)
            .where(compaction_queues.c.name == "default")
            .values(hours=hours)
        )
        claim = attempts.claim(tx, [], "w")
        assert claim is not None
        assert claim.task.table == "lake.b"
        assert attempts.claim(tx, [], "w") is None
        reason = held_queues(tx, MIDNIGHT)["default"].reason
    assert reason.startswith(f"hours: got {hours!r}, expected hours in which workers claim")


def test_a_person_who_merges_at_once_is_told(database: Database, tmp_path: Path) -> None:
    """``run`` keeps to the hours, too: the plan waits, and nothing is merged."""
    catalog = lake_in(tmp_path / "lake")
    table_of(catalog, "lake.words", 3)
    closed = (datetime.now(UTC) - 2 * DAY).strftime("%a").lower()
    with database.begin() as tx:
        queues.update_queue(tx, "default", hours=f"00:00-24:00 UTC {closed}")
    now = datetime.now(UTC)
    result = compact_now(database, catalog, Merging(), "lake.words", now, force=True)
    assert result.trouble is not None
    assert result.trouble.startswith("queue default waits: its hours begin at ")
    assert (len(result.left), result.records) == (1, ())


def test_hours_follow_the_zone(database: Database) -> None:
    """Summer time too: 08:00 in Berlin is 06:00 in UTC then."""
    window = hours_window(HOURS)
    assert window is not None
    berlin = ZoneInfo("Europe/Berlin")
    assert window.is_open(datetime(2026, 7, 1, 7, 59, tzinfo=berlin))
    assert not window.is_open(datetime(2026, 7, 1, 6, 0, tzinfo=UTC))
    assert budget.hours_window("always") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hours": ""}, "hours: got '', expected hours in which workers claim"),
        ({"hours": "8-10"}, "a time of day such as"),
        ({"hours": "08:00-08:00"}, "an end that is not the start"),
        ({"hours": "08:00-10:00 Mars/Olympus"}, "a time zone of the IANA database"),
        ({"hours": "08:00-10:00 UTC someday"}, "days"),
        ({"hours": "08:00-10:00 UTC mon tue"}, "hours: got '08:00-10:00 UTC mon tue'"),
        ({"hours": "always always"}, "hours: got"),
        ({"budget": -1}, "budget: got -1, expected a number, 0.001 to 1000000000, or 0"),
        ({"budget": 1e-300}, "budget: got 1e-300"),
        ({"budget": float("nan")}, "budget: got nan"),
        ({"budget": float("inf")}, "budget: got inf"),
        ({"budget": True}, "budget: got True"),
    ],
)
def test_bad_hours_and_budgets_change_nothing(
    database: Database, changes: dict[str, object], message: str
) -> None:
    """They are refused by name, with what was expected."""
    with database.begin() as tx:
        with pytest.raises(InvalidInput) as refused:
            queues.update_queue(tx, "default", **changes)
        assert message in str(refused.value)
        assert queues.queues(tx) == [CompactionQueue(name="default")]
