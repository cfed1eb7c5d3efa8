"""What attempts leave behind: when it is removed, when it is not, and what nobody may remove."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from arctic_orchestration.compaction.commit import commits, orphaned_outputs
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import Claim
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MERGE, MINUTE, NOON, opened, planned, seen
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock

HOUR = timedelta(hours=1)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A state database with five tasks of ``lake.a``, once on each backend."""
    with opened(database_url) as made:
        with made.begin() as tx:
            seen(tx, "lake.a")
            offer(tx, "lake.a", [planned(f"f{number}") for number in range(5)], NOON)
        yield made


def claimed(database: Database, clock: Clock, **more: Any) -> Claim:
    """The next task, for a worker."""
    with database.begin() as tx:
        claim = attempts.claim(tx, [], "w", time=clock, **more)
    assert claim is not None
    return claim


def failed(database: Database, clock: Clock) -> Claim:
    """The next task is claimed, and fails."""
    claim = claimed(database, clock)
    with database.begin() as tx:
        attempts.failed(tx, claim.attempt_id, claim.token, "disk full", time=clock)
    return claim


def listed(database: Database, clock: Clock, **more: Any) -> list[str]:
    """The attempts whose directories are to be removed."""
    with database.begin() as tx:
        return [one.attempt_id for one in orphaned_outputs.to_clean(tx, time=clock, **more)]


def test_directories_are_removed_when_they_have_no_writer_any_more(database: Database) -> None:
    """A grace time after the end of the attempt; what is cleaned is not listed again."""
    clock = Clock()
    lost = claimed(database, clock)
    clock.passes(minutes=2)
    with database.begin() as tx:
        attempts.expire(tx, time=clock)
        assert orphaned_outputs.to_clean(tx, time=clock) == []
    clock.passes(minutes=1)
    given_back = claimed(database, clock)
    with database.begin() as tx:
        attempts.release(tx, given_back.attempt_id, given_back.token, time=clock)
    merged = claimed(database, clock)
    with database.begin() as tx:
        attempts.merged(tx, merged.attempt_id, merged.token, **MERGE, time=clock)
    # The first was found to be lost at 12:02, the second was given back at 12:03.
    for moment, expected in (
        ("12:11:59", []),
        ("12:12:00", [lost]),
        ("12:13:00", [lost, given_back]),
    ):
        clock.now = datetime.fromisoformat(f"2026-01-01 {moment}+00:00")
        with database.begin() as tx:
            found = orphaned_outputs.to_clean(tx, time=clock)
        assert [one.directory for one in found] == [claim.directory for claim in expected]
    assert found[0].table == "lake.a"
    assert found[0].reason == "lost: silent: its lease was over at 2026-01-01 12:01:00Z"
    assert found[0].over_at == NOON + 2 * MINUTE
    assert found[1].reason == "released: its worker ends"
    with database.begin() as tx:
        orphaned_outputs.cleaned(tx, lost.attempt_id, time=clock)
        orphaned_outputs.cleaned(tx, merged.attempt_id, time=clock)
        assert attempt_lookup.attempts_of(tx, merged.task.id)[-1].cleaned_at is None
    assert listed(database, clock) == [given_back.attempt_id]


def test_what_a_committer_drops_has_its_grace_from_then_on(database: Database) -> None:
    """However long it had waited: one that was stopped may publish it still, and is refused."""
    clock = Clock()
    claim = claimed(database, clock)
    with database.begin() as tx:
        attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
    clock.passes(days=1)
    with database.begin() as tx:
        commits.conflicted(tx, claim.task.id, "file f0 is gone", time=clock)
        protected = orphaned_outputs.protected_paths(tx, "lake.a")
    assert protected(f"s3://lake/a/data/{claim.directory}/part-0.parquet")
    assert listed(database, clock) == []
    clock.passes(minutes=9, seconds=59)
    assert listed(database, clock) == []
    clock.passes(seconds=1)
    assert listed(database, clock) == [claim.attempt_id]


def test_a_directory_is_found_where_it_was_written(database: Database) -> None:
    """The worker says it before it writes; one whose lease is over is refused."""
    clock = Clock()
    silent, writes = claimed(database, clock), claimed(database, clock)
    location = f"s3://old/place/{writes.directory}"
    with database.begin() as tx:
        assert attempts.writes_to(tx, writes.attempt_id, writes.token, location, time=clock)
        assert not attempts.writes_to(tx, writes.attempt_id, 9, "s3://x", time=clock)
        assert not attempts.writes_to(tx, "nobody", 1, "s3://x", time=clock)
    clock.passes(seconds=60)
    with database.begin() as tx:
        assert not attempts.writes_to(tx, silent.attempt_id, silent.token, "s3://x", time=clock)
        attempts.expire(tx, time=clock)
        assert not attempts.writes_to(tx, writes.attempt_id, writes.token, "s3://x", time=clock)
        assert attempt_lookup.attempts_of(tx, writes.task.id)[0].location == location
        clock.passes(hours=1)
        found = {one.attempt_id: one.location for one in orphaned_outputs.to_clean(tx, time=clock)}
    assert found == {writes.attempt_id: location, silent.attempt_id: None}


def test_what_cannot_be_removed_keeps_nothing_else_waiting(database: Database) -> None:
    """It is listed again after its pause, behind what waits for its first try since earlier."""
    clock = Clock()
    first, second, third = (failed(database, clock) for _ in range(3))
    clock.passes(minutes=10)
    assert listed(database, clock, limit=2) == [first.attempt_id, second.attempt_id]
    with database.begin() as tx:
        for stuck in (first, second):
            orphaned_outputs.not_cleaned(tx, stuck.attempt_id, "denied \udcff", HOUR, time=clock)
        assert [one.trouble for one in orphaned_outputs.in_trouble(tx)] == ["denied \ufffd"] * 2
    assert listed(database, clock, limit=2) == [third.attempt_id]
    clock.passes(minutes=59, seconds=59)
    assert listed(database, clock) == [third.attempt_id]
    clock.passes(seconds=1)
    assert listed(database, clock, limit=2) == [third.attempt_id, first.attempt_id]
    with database.begin() as tx:
        orphaned_outputs.cleaned(tx, first.attempt_id, time=clock)
        assert [one.attempt_id for one in orphaned_outputs.in_trouble(tx)] == [second.attempt_id]
        assert attempt_lookup.attempts_of(tx, first.task.id)[0].clean_trouble is None


def test_what_a_snapshot_has_stays_for_good(database: Database) -> None:
    """It is never listed again, the reason is kept, and its age protects it no more than others."""
    clock = Clock()
    claim = failed(database, clock)
    clock.passes(hours=1)
    with database.begin() as tx:
        orphaned_outputs.not_cleaned(tx, claim.attempt_id, "denied", HOUR, time=clock)
        orphaned_outputs.kept(tx, claim.attempt_id, "snapshot 7 has part-0.parquet")
        orphaned_outputs.cleaned(tx, claim.attempt_id, time=clock)
        attempt = attempt_lookup.attempts_of(tx, claim.task.id)[0]
        assert (attempt.kept_reason, attempt.cleaned_at, attempt.clean_after) == (
            "snapshot 7 has part-0.parquet",
            None,
            None,
        )
        assert orphaned_outputs.in_trouble(tx) == []
        assert not orphaned_outputs.protected_paths(tx, "lake.a")(f"s3://lake/{claim.directory}/x")
    clock.passes(days=30)
    assert listed(database, clock) == []


def test_what_live_tasks_read_and_write_is_protected(database: Database) -> None:
    """Inputs with their deletes, and directories that are written, waited for or yet to be cleaned;
    of this table only."""
    clock = Clock()
    with database.begin() as tx:
        plan = [planned("s3://lake/x", deletes=["s3://lake/d"]), planned("s3://lake/z")]
        offer(tx, "lake.a", plan, NOON)
        seen(tx, "lake.b")
        offer(tx, "lake.b", [planned("s3://lake/q")], NOON)
        lost = present(attempts.claim(tx, [], "w", table="lake.a", time=clock))
        clock.passes(minutes=5)
        attempts.expire(tx, time=clock)
        live = present(attempts.claim(tx, [], "w", table="lake.a", time=clock))
        waits = present(attempts.claim(tx, [], "w", table="lake.a", time=clock))
        attempts.merged(tx, waits.attempt_id, waits.token, **MERGE, time=clock)
        protected = orphaned_outputs.protected_paths(tx, "lake.a")
        assert protected.directories == {live.directory, waits.directory, lost.directory}
        assert protected.paths == {"s3://lake/x", "s3://lake/d", "s3://lake/z"}
        assert protected("s3://lake/d")
        assert protected(f"s3://lake/a/data/day=1/{waits.directory}/part-0.parquet")
        assert protected(f"s3://lake/a/data/{lost.directory}/part-0.parquet")
        assert not protected("s3://lake/q")
        orphaned_outputs.cleaned(tx, lost.attempt_id, time=clock)
        protected = orphaned_outputs.protected_paths(tx, "lake.a")
    assert not protected(f"s3://lake/a/data/{lost.directory}/part-0.parquet")
