"""The upkeep of tables that request it: once a day, in the hours and budget of their queue."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import upkeep
from arctic_orchestration.compaction.commit import orphaned_outputs
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.scope import Mode, Scope
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.queues import QueueState
from arctic_orchestration.compaction.run_once import offer_now
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.compaction.upkeep import (
    Upkeep,
    UpkeepCounts,
    upkeep_text,
)
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import compaction_budgets
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.test_odd_rows import spoil
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.present import present

DAY = timedelta(days=1)


class Kept:
    """A lake whose tables have snapshots and an orphan of nine days ago, as of *now*."""

    def __init__(self, database: Database, home: Path) -> None:
        self.database = database
        self.lake = Lake.at(home / "lake")
        self.upkeep = Upkeep(database, self.lake.catalog)
        self.planner = Planner(database, self.lake.catalog)
        # Files and snapshots are of today: the clock is that of a later day.
        self.now = utc_now() + 9 * DAY

    def table(self, name: str, **properties: str) -> Path:
        """A table of three snapshots, and a file of its that no snapshot has."""
        self.lake.table(name)
        self.lake.set(name, **properties)
        for _ in range(3):
            self.lake.append(name)
        orphan = Path(self.location(name)) / "data" / "orphan.parquet"
        orphan.write_bytes(b"PAR1")
        return orphan

    def location(self, name: str) -> str:
        return self.lake.catalog.load_table(name).location().removeprefix("file://")

    def snapshots(self, name: str) -> int:
        return len(self.lake.catalog.load_table(name).metadata.snapshots)

    def tick(self, passes: timedelta = timedelta()) -> UpkeepCounts:
        self.now += passes
        self.planner.discover()
        self.planner.tick(self.now)
        return self.upkeep.tick(self.now)

    def manifests(self, name: str) -> int:
        table = self.lake.catalog.load_table(name)
        return len(present(table.current_snapshot()).manifests(table.io))

    def text(self, name: str) -> str | None:
        with self.database.read() as tx:
            return upkeep_text(tx, name)


@pytest.fixture
def kept(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    # However slow the machine is, a tick takes care of all tables.
    monkeypatch.setattr(upkeep, "LONGEST_TICK", timedelta(minutes=10))
    with closing(database):
        made = Kept(database, tmp_path)
        monkeypatch.setattr(dialect, "database_time", lambda _: made.now)
        yield made


def test_the_upkeep_is_done_once_a_day_as_the_properties_say(kept: Kept) -> None:
    """Each by itself, both, or nothing; rows stay, and an hour changes nothing."""
    both = kept.table("lake.both", expire_snapshots="7d", remove_orphans="3d")
    expired = kept.table("lake.expired", expire_snapshots="7d")
    removed = kept.table("lake.removed", remove_orphans="3d")
    neither = kept.table("lake.neither")
    young = kept.table("lake.young", expire_snapshots="10d", remove_orphans="10d")
    assert kept.tick() == UpkeepCounts(done=4)
    assert [file.exists() for file in (both, expired, removed, neither, young)] == [
        *(False, True, False, True, True)
    ]
    counted = {name: kept.snapshots(f"lake.{name}") for name in ("both", "expired", "removed")}
    assert counted == {"both": 1, "expired": 1, "removed": 3}
    assert (kept.snapshots("lake.neither"), kept.snapshots("lake.young")) == (3, 3)
    for name in ("both", "expired", "removed", "neither", "young"):
        assert kept.lake.catalog.load_table(f"lake.{name}").scan().to_arrow().num_rows == 3
    text = kept.text("lake.both")
    assert text is not None
    assert text.startswith("2 snapshots expired, ")
    assert " 1 orphan removed; again at " in text
    assert kept.text("lake.neither") is None
    assert kept.tick(timedelta(hours=1)) == UpkeepCounts()
    for name in ("both", "young"):
        kept.lake.append(f"lake.{name}")
    assert kept.tick(DAY) == UpkeepCounts(done=4)
    assert kept.snapshots("lake.young") == 1


def test_a_clock_ahead_makes_no_file_old(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's is nine days ahead of the database's: what another process writes now stays."""
    orphan = kept.table("lake.both", expire_snapshots="7d", remove_orphans="3d")
    monkeypatch.setattr(dialect, "database_time", lambda _: utc_now())
    assert kept.tick() == UpkeepCounts(done=1)
    assert (orphan.exists(), kept.snapshots("lake.both")) == (True, 3)


def test_small_manifests_are_merged_from_the_number_of_the_property(kept: Kept) -> None:
    """Once a day, before snapshots are expired; fewer of them stay. Rows stay."""
    kept.table("lake.enough", rewrite_manifests="3", expire_snapshots="7d")
    kept.table("lake.few", rewrite_manifests="4")
    assert kept.tick() == UpkeepCounts(done=2)
    assert (kept.manifests("lake.enough"), kept.manifests("lake.few")) == (1, 3)
    text = kept.text("lake.enough")
    assert text is not None
    # A live task was planned from the third snapshot.
    assert text.startswith("3 manifests merged into 1, 2 snapshots expired, ")
    assert (kept.text("lake.few") or "").startswith("there was nothing to do; again at ")
    kept.lake.append("lake.few")
    assert kept.tick(timedelta(hours=1)) == UpkeepCounts()
    assert kept.tick(DAY) == UpkeepCounts(done=2)
    assert (kept.manifests("lake.enough"), kept.manifests("lake.few")) == (1, 1)
    for name, rows in (("enough", 3), ("few", 4)):
        assert kept.lake.catalog.load_table(f"lake.{name}").scan().to_arrow().num_rows == rows


def test_properties_that_change_count_from_the_next_check(kept: Kept) -> None:
    """Requested later, requested no more, and of a table that is not compacted any more."""
    orphan = kept.table("lake.a")
    assert kept.tick() == UpkeepCounts()
    kept.lake.set("lake.a", remove_orphans="3d")
    assert kept.tick(timedelta(minutes=2)) == UpkeepCounts(done=1)
    assert not orphan.exists()
    orphan.write_bytes(b"PAR1")
    kept.lake.set("lake.a", enabled="false")
    assert kept.tick(2 * DAY) == UpkeepCounts()
    kept.lake.set("lake.a", enabled="true", remove_orphans="never")
    assert kept.tick(2 * DAY) == UpkeepCounts()
    assert orphan.exists()


def test_upkeep_follows_the_present_properties(kept: Kept) -> None:
    """Also those that the planner has not read yet; invalid ones remove nothing."""
    ages = {"expire_snapshots": "7d", "remove_orphans": "3d"}
    orphans = [kept.table(f"lake.{name}", **ages) for name in ("never", "off", "typo", "young")]
    kept.planner.tick(kept.now)
    kept.lake.set("lake.never", expire_snapshots="never", remove_orphans="never")
    kept.lake.set("lake.off", enabled="false")
    kept.lake.set("lake.typo", expire_snapshots="30", remove_orphans="30")
    kept.lake.set("lake.young", expire_snapshots="10d", remove_orphans="10d")
    assert kept.upkeep.tick(kept.now) == UpkeepCounts(done=3, failed=1)
    assert all(file.exists() for file in orphans)
    names = ("never", "off", "typo", "young")
    assert [kept.snapshots(f"lake.{name}") for name in names] == [3, 3, 3, 3]
    text = kept.text("lake.typo")
    assert text is not None
    assert "arctic.compaction.expire-snapshots of lake.typo: got '30'" in text


def test_what_live_tasks_know_is_no_orphan(kept: Kept) -> None:
    """However old the outputs of an attempt are; once it has ended, they go."""
    orphan = kept.table("lake.a", remove_orphans="3d")
    offer_now(kept.database, kept.lake.catalog, "lake.a", kept.now, force=True)
    with kept.database.begin() as tx:
        claim = present(attempts.claim(tx, [], "w"))
    output = orphan.parent / claim.directory / "merged.parquet"
    output.parent.mkdir()
    output.write_bytes(b"PAR1")
    assert kept.tick() == UpkeepCounts(done=1)
    assert (orphan.exists(), output.exists()) == (False, True)
    with kept.database.begin() as tx:
        attempts.release(tx, claim.attempt_id, claim.token)
        orphaned_outputs.cleaned(tx, claim.attempt_id)
    assert kept.tick(DAY) == UpkeepCounts(done=1)
    assert not output.exists()


def test_a_queue_that_is_paused_closed_or_overdrawn_waits(kept: Kept) -> None:
    """Its tables are not touched meanwhile; what upkeep lasted is taken from the budget."""
    orphan = kept.table("lake.a", remove_orphans="3d")
    with kept.database.begin() as tx:
        queues.set_state(tx, "default", QueueState.PAUSED)
    assert kept.tick() == UpkeepCounts()
    closed = (kept.now - 2 * DAY).strftime("%a").lower()
    with kept.database.begin() as tx:
        queues.set_state(tx, "default", QueueState.OPEN)
        queues.update_queue(tx, "default", hours=f"00:00-24:00 UTC {closed}")
    assert kept.tick() == UpkeepCounts()
    with kept.database.begin() as tx:
        queues.update_queue(tx, "default", hours="always", budget=0.001)
        tx.execute(
            sa.insert(compaction_budgets).values(
                queue="default", spent_seconds=60.0, spent_at=kept.now, mean_seconds=1.0
            )
        )
    assert kept.tick() == UpkeepCounts()
    assert orphan.exists()
    with kept.database.begin() as tx:
        queues.update_queue(tx, "default", budget=0.5)
    assert kept.tick(timedelta(minutes=3)) == UpkeepCounts(done=1)
    assert not orphan.exists()
    with kept.database.read() as tx:
        row = tx.execute(sa.select(compaction_budgets)).one()
    # 60 s, less half of three minutes and of what it lasted, and all of that.
    lasted = (row.spent_at - kept.now).total_seconds()
    assert lasted > 0
    assert row.spent_seconds == pytest.approx(60 - 90 + lasted / 2, abs=1e-3)


def test_files_of_a_task_that_cannot_be_read_fail_the_upkeep_of_their_table(kept: Kept) -> None:
    """It is tried again after an hour, and not in each round."""
    for name in ("lake.a", "lake.b"):
        kept.table(name, expire_snapshots="7d")
    _, offered = offer_now(kept.database, kept.lake.catalog, "lake.a", kept.now, force=True)
    (task,) = present(offered).taken
    spoil(kept.database, task)
    assert kept.tick() == UpkeepCounts(done=1, failed=1)
    text = f"failed: LakeError: the stored files of task {task} cannot be read: KeyError"
    assert present(kept.text("lake.a")).startswith(text)
    assert kept.tick(timedelta(minutes=30)) == UpkeepCounts()


def test_a_table_that_fails_does_not_keep_the_others_and_is_tried_again(kept: Kept) -> None:
    """An hour later; meanwhile its text has the reason."""
    kept.table("lake.a", expire_snapshots="7d")
    kept.table("lake.b", expire_snapshots="7d")
    with kept.lake.catalog.load_table("lake.a").transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    assert kept.tick() == UpkeepCounts(done=1, failed=1)
    text = kept.text("lake.a")
    assert text is not None
    assert text.startswith("failed: LakeError: ")
    assert "gc.enabled" in text
    assert kept.snapshots("lake.b") == 1
    with kept.lake.catalog.load_table("lake.a").transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    assert kept.tick(timedelta(minutes=30)) == UpkeepCounts()
    assert kept.tick(timedelta(minutes=31)) == UpkeepCounts(done=1)
    assert kept.snapshots("lake.a") == 1


def test_tables_that_hang_keep_the_others_for_one_tick_each(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on the next day, when they are due again and come first."""
    for name in ("lake.a_hangs", "lake.b_hangs", "lake.c"):
        kept.table(name, remove_orphans="3d")
    goes_on = threading.Event()

    def hang(catalog: Catalog, name: str) -> Table:
        if "hangs" in name:
            goes_on.wait()
        return load_table(catalog, name)

    monkeypatch.setattr(upkeep, "load_table", hang)
    monkeypatch.setattr(upkeep, "LONGEST_TICK", timedelta(seconds=0.5))
    try:
        for _ in range(2):
            # As many as a slow machine needs for the table that does not hang.
            until(lambda: kept.tick(timedelta(seconds=1)).done, "the upkeep of lake.c")
            kept.now += DAY
    finally:
        goes_on.set()


def test_a_step_that_fails_does_not_keep_the_others(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text has its reason; all is repeated an hour later."""
    orphan = kept.table("lake.a", rewrite_manifests="2", expire_snapshots="7d", remove_orphans="3d")

    def fails(*_: object, **__: object) -> None:
        raise LakeError("a manifest cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "rewrite_manifests", fails)
        assert kept.tick() == UpkeepCounts(failed=1)
    assert (kept.manifests("lake.a"), kept.snapshots("lake.a"), orphan.exists()) == (3, 1, False)
    assert (kept.text("lake.a") or "").startswith("failed: LakeError: a manifest cannot be read; ")
    assert kept.tick(timedelta(minutes=61)) == UpkeepCounts(done=1)
    assert kept.manifests("lake.a") == 1


def test_a_killed_process_is_made_up_for_an_hour_later(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was; until then its text says that it did not end."""
    orphan = kept.table("lake.a", expire_snapshots="7d", remove_orphans="3d")

    class Killed(BaseException):
        """What no code handles."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "remove_orphans", killed)
        with pytest.raises(Killed):
            kept.tick()
    assert (kept.snapshots("lake.a"), orphan.exists()) == (1, True)
    text = kept.text("lake.a")
    assert text is not None
    assert text.startswith("it was begun, and did not end; again at ")
    assert kept.tick(timedelta(minutes=59)) == UpkeepCounts()
    assert kept.tick(timedelta(minutes=2)) == UpkeepCounts(done=1)
    assert not orphan.exists()


def test_of_two_processes_one_does_the_upkeep_of_a_table(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that found it due, too, comes too late; without the condition it would not."""
    kept.table("lake.a", expire_snapshots="7d")
    kept.planner.tick(kept.now)
    other, found = Upkeep(kept.database, kept.lake.catalog), list[UpkeepCounts]()
    claim = Upkeep._keep

    def slow(self: Upkeep, name: str, now: datetime) -> bool:
        if self is kept.upkeep:
            found.append(other.tick(now))
        return claim(self, name, now)

    monkeypatch.setattr(Upkeep, "_keep", slow)
    assert kept.upkeep.tick(kept.now) == UpkeepCounts()
    assert found == [UpkeepCounts(done=1)]
    # The control: it asks, but does not compare.
    kept.now += DAY
    monkeypatch.setattr(upkeep, "_is_due", lambda now: sa.true())
    assert kept.upkeep.tick(kept.now) == UpkeepCounts(done=1)
    assert found[1:] == [UpkeepCounts(done=1)]


def test_the_service_does_the_upkeep_unless_it_only_observes(kept: Kept, tmp_path: Path) -> None:
    """Tables outside of its scope are of others."""
    mine = kept.table("lake.mine", remove_orphans="3d")
    theirs = kept.table("lake.theirs", remove_orphans="3d")
    observing = Scope(tables=("lake.mine",), mode=Mode.OBSERVE)
    assert (
        CompactionService(kept.database, kept.lake.catalog, scope=observing).tick(kept.now).upkeep
        == UpkeepCounts()
    )
    kept.planner.tick(kept.now)
    running = Scope(tables=("lake.mine",), mode=Mode.RUN)
    counts = CompactionService(kept.database, kept.lake.catalog, scope=running).tick(kept.now)
    assert counts.upkeep == UpkeepCounts(done=1)
    assert (mine.exists(), theirs.exists()) == (False, True)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("remove-orphans", "3h", "a duration of at least 1d, or never"),
        ("remove-orphans", "0s", "a duration longer than 0s, or never"),
        ("expire-snapshots", "soon", "or never"),
        ("expire-snapshots", "0s", "a duration longer than 0s, or never"),
        ("rewrite-manifests", "1", "a whole number, 2 to 1000000, or never"),
        ("rewrite-manifests", "true", "a whole number, 2 to 1000000, or never"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str, expected: str) -> None:
    """By the property's name, with its value."""
    with pytest.raises(InvalidInput) as refused:
        Policy.of({f"arctic.compaction.{name}": value}, "lake.a")
    assert f"arctic.compaction.{name} of lake.a: got {value!r}" in str(refused.value)
    assert expected in str(refused.value)
