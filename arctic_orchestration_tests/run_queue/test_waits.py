"""The reported waits of runs, in the state database."""

from datetime import UTC, datetime, timedelta

from arctic_orchestration.run_queue.plan import Wait
from arctic_orchestration.run_queue.waits import (
    LastPass,
    WaitReason,
    forget,
    last_pass,
    note,
    note_pass,
    reported_wait,
    reported_waits,
)
from arctic_orchestration.state.database import Database

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
FULL = Wait(gate="group:few", reason="group few: 2 of 2 runs are in progress")
SHUT = Wait(gate="window:night", reason="window night opens at 22:00")


def test_a_reported_wait_is_kept_until_the_next_report(database: Database) -> None:
    """With the time since when that holds it."""
    with database.begin() as tx:
        assert reported_wait(tx, "default", "r1") is None
        note(tx, "default", {"r1": FULL, "r2": FULL}, NOON, {})
    with database.begin() as tx:
        note(tx, "default", {"r1": SHUT}, LATER, {})
    with database.read() as tx:
        assert reported_waits(tx, "default") == {"r1": "window:night", "r2": "group:few"}
        assert reported_wait(tx, "default", "r1") == WaitReason(
            gate=SHUT.gate, reason=SHUT.reason, since=LATER
        )
        assert reported_wait(tx, "default", "r2") == WaitReason(
            gate=FULL.gate, reason=FULL.reason, since=NOON
        )


def test_what_waits_no_more_is_forgotten(database: Database) -> None:
    """Only those; to forget none, or an unknown one, changes nothing."""
    with database.begin() as tx:
        note(tx, "default", {"r1": FULL, "r2": FULL, "r3": SHUT}, NOON, {})
        forget(tx, "default", [])
        forget(tx, "default", ["r1", "r3", "unknown"])
        assert reported_waits(tx, "default") == {"r2": "group:few"}


def test_a_tag_that_postgres_cannot_store_holds_up_no_other_wait(database: Database) -> None:
    """Dagster's SQLite stores such a tag, and the gate of a limit on its values contains it."""
    text = "tag team=a\0b: 1 of 1 runs are in progress"
    odd = Wait(gate="tag:team=a\0b:True", reason=text)
    with database.begin() as tx:
        note(tx, "default", {"r1": odd, "r2": FULL}, NOON, {})
    with database.read() as tx:
        expected = {"r1": "tag:team=a\ufffdb:True", "r2": "group:few"}
        assert reported_waits(tx, "default") == expected


def test_nothing_new_writes_nothing(database: Database) -> None:
    """As in nearly every pass."""
    with database.begin() as tx:
        note(tx, "default", {}, NOON, {})
        assert reported_waits(tx, "default") == {}


def test_clusters_do_not_see_each_other(database: Database) -> None:
    """Neither reported waits nor passes."""
    with database.begin() as tx:
        note(tx, "north", {"r1": FULL}, NOON, {})
        note(tx, "south", {"r1": SHUT}, NOON, {})
        note_pass(tx, "north", NOON, None)
        forget(tx, "south", ["r1"])
    with database.read() as tx:
        assert reported_waits(tx, "north") == {"r1": "group:few"}
        assert reported_waits(tx, "south") == {}
        assert last_pass(tx, "south") is None


def test_waits_of_thousands_of_runs_are_stored_and_deleted_at_once(database: Database) -> None:
    """More than SQLite takes as parameters of one statement."""
    runs = {f"run-{n}": FULL for n in range(40_000)}
    with database.begin() as tx:
        note(tx, "default", runs, NOON, {})
    with database.begin() as tx:
        assert len(reported_waits(tx, "default")) == 40_000
        forget(tx, "default", list(runs)[1:])
    with database.read() as tx:
        assert reported_waits(tx, "default") == {"run-0": "group:few"}


def test_the_last_pass_is_kept_with_its_trouble(database: Database) -> None:
    """One a cluster; trouble that ended is gone."""
    with database.begin() as tx:
        assert last_pass(tx, "default") is None
        note_pass(tx, "default", NOON, "the storage is gone")
        assert last_pass(tx, "default") == LastPass(at=NOON, problem="the storage is gone")
        note_pass(tx, "default", LATER, None)
    with database.read() as tx:
        assert last_pass(tx, "default") == LastPass(at=LATER, problem=None)
