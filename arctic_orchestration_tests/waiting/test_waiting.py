"""What waits, over all features, on both databases: each planted cause is named."""

import dataclasses
import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.policy import DISABLED
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.location import locked as place_of
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views import waits as schedules
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import jobs, locations
from arctic_orchestration.waiting.reader import MOST, waiting, waiting_by_cause
from arctic_orchestration.waiting.rooms import ROOMS
from arctic_orchestration.waiting.views import WaitingByCause, WaitPage
from arctic_orchestration.waiting.wait_filter import Cursor, WaitFilter
from arctic_orchestration.waits import Certainty, Until, WaitKind, command
from arctic_orchestration_tests.compaction.stored import planned, seen
from arctic_orchestration_tests.consumers.arrivals import Log, engine_of
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.schedules.simulated import World, at
from arctic_orchestration_tests.standing_clock import Clock
from arctic_orchestration_tests.waiting.planted import NOW, ODD, tomorrow


def grouped(database: Database, **wanted: str) -> WaitingByCause:
    with database.read() as tx:
        return waiting_by_cause(tx, "default", NOW, WaitFilter.parse(**wanted))


def page(database: Database, after: str | None = None, limit: int = 50, **wanted: str) -> WaitPage:
    with database.read() as tx:
        return waiting(tx, "default", NOW, WaitFilter.parse(**wanted), after=after, limit=limit)


def test_each_planted_cause_is_named_oldest_first(planted: Database) -> None:
    """Thirteen causes in five features; the other cluster's run is not among them."""
    found = grouped(planted)
    assert [
        (group.kind.value, group.cause, group.count, group.since) for group in found.groups
    ] == [
        ("job", "concurrency:group:spark", 1, at(10)),
        ("job", "suspended", 1, at(10)),
        ("job", "trigger", 1, at(10)),
        ("job", "window", 1, at(10)),
        # It was admitted at second 11, and requested for the first time then.
        ("job", "launch", 1, at(12)),
        ("run", "paused:queue:low", 2, at(20)),
        ("run", "group:spark", 1, at(21)),
        ("run", "window:night", 1, at(21)),
        ("table", "rest", 1, at(30)),
        ("merge_task", "paused:big", 1, at(31)),
        ("partition", "given_up:totals", 1, at(40)),
        ("partition", "leased:totals", 1, at(41)),
        ("task", "parents", 1, at(12 * 3600)),
    ]
    assert (found.count, found.troubles) == (14, ())
    (paused,) = [group for group in found.groups if group.count == 2]
    assert [example.id for example in paused.examples] == ["run-1", "run-2"]
    assert [example.name for example in paused.examples] == ["run of rollup", "run-2"]
    json.dumps(found.to_json())


def test_another_cluster_sees_its_own_waits_and_the_compaction_of_all(planted: Database) -> None:
    """Only merge tasks and tables belong to all clusters."""
    with planted.read() as tx:
        groups = waiting_by_cause(tx, "elsewhere", NOW).groups
        waits = waiting(tx, "elsewhere", NOW).waits
    assert [(group.cause, group.count) for group in groups] == [
        ("group:spark", 1), ("rest", 1), ("paused:big", 1),
    ]  # fmt: skip
    assert [wait.id for wait in waits if wait.kind is WaitKind.RUN] == ["run-9"]
    assert len(waits) == 3


def test_another_cluster_hears_of_its_own_silent_processes_alone(planted: Database) -> None:
    """One whose run waits for a first pass of its daemon, and one of which no run waits."""
    with planted.read() as tx:
        troubles = {
            cluster: waiting_by_cause(tx, cluster, NOW + timedelta(hours=1)).troubles
            for cluster in ("elsewhere", "west")
        }
    assert [one.text for one in troubles["elsewhere"]] == [
        "the daemon never went through the queue"
    ]
    assert troubles["west"] == ()


def test_each_wait_says_who_holds_it_until_when_and_what_helps(planted: Database) -> None:
    """By its cause; the moments are those of the windows, rests and leases that were planted."""
    waits = {wait.cause: wait for wait in page(planted).waits}
    assert len(waits) == 13
    assert waits["window"].until == known(tomorrow(), "opens")
    assert waits["window:night"].until == known(at(22 * 3600), "opens")
    # Ten minutes of rest begin at second 30; the lease was taken for 300 seconds at second 41.
    assert waits["rest"].until == known(at(630), "retry")
    assert waits["leased:totals"].until == known(at(341), "expires")
    # The default timeout is a day, and its parents are waited for half an hour.
    assert waits["trigger"].until == known(at(10) + timedelta(days=1), "deadline")
    assert waits["parents"].until == known(at(12.5 * 3600), "deadline")
    assert waits["suspended"].until == Until()

    full = waits["concurrency:group:spark"]
    assert (full.held_by[0].kind, full.held_by[0].id) == ("group", "spark")
    assert full.held_by[1].text.endswith(" of first")
    (paused,) = waits["paused:queue:low"].held_by
    assert paused.text == "queue low is paused since 2026-01-01 00:00:05Z by ada (maintenance)"
    (suspended,) = waits["suspended"].held_by
    assert suspended.text == "suspended since 2026-01-01 00:00:02Z by ada"
    (leased,) = waits["leased:totals"].held_by
    assert leased.text == "run run-5"

    assert "arctic schedules enable stopped --location=here" in waits["suspended"].actions
    assert "arctic queues resume low" in waits["paused:queue:low"].actions
    assert "arctic compaction wake lake.resting" in waits["rest"].actions
    assert "arctic compaction queues resume big" in waits["paused:big"].actions
    assert waits["trigger"].reason == "1 of 2 partitions of raw/a have arrived"


def known(moment: object, event: str) -> Until:
    return Until(certainty=Certainty.KNOWN, at=moment, event=event)


def test_a_suspension_holds_only_the_jobs_that_it_stops(state: Database) -> None:
    """Not one that drains: a window holds it, and resuming its schedule would not help."""
    arrives, night = on.partitions("raw/a"), only.window("22:00", "06:00", timezone="Asia/Tokyo")
    modes = ("drain", "backlog")
    common: dict[str, Any] = {
        "target": "job",
        "trigger": arrives,
        "constraints": [night],
        "enabled": True,
    }
    world = World(state, [Schedule(name=mode, suspend_mode=mode, **common) for mode in modes])
    world.tick(0)
    world.feed.arrive("raw/a", "monday")
    world.tick(10)
    with state.begin() as tx:
        place = place_of(tx, "default", "here")
        for mode in modes:
            control.suspend(tx, ScheduleStore(), place, mode, at(20))
    world.tick(21)
    shown = {
        wait.name: (
            wait.cause,
            [one.kind for one in wait.held_by],
            any("schedules enable" in action for action in wait.actions),
        )
        for wait in page(state).waits
    }
    assert shown == {"drain": ("window", [], False), "backlog": ("suspended", ["pause"], True)}


def test_pages_have_everything_once_in_the_same_order(planted: Database) -> None:
    """In pages of three, whatever moments and names are equal."""
    whole = [(wait.kind, wait.id) for wait in page(planted).waits]
    assert len(set(whole)) == 14
    pages, after = [], None
    while True:
        found = page(planted, after, limit=3)
        pages += [(wait.kind, wait.id) for wait in found.waits]
        after = found.next_after
        if after is None:
            break
    assert pages == whole


def test_the_longest_page_is_full(state: Database) -> None:
    """Of partitions, which two columns identify: each with the details of its own."""
    log = Log()
    log.arrives(*(f"{number:04}" for number in range(1_002)))
    for name in ("totals", "report"):
        engine_of(state, log, name=name).read_on(at_most=2)
    found = page(state, limit=MOST)
    assert found.troubles == ()
    assert len({wait.name for wait in found.waits}) == MOST
    assert {wait.reason for wait in found.waits} == {"waits for its consumer"}


def test_tables_that_are_left_alone_wait_for_nothing(state: Database) -> None:
    """One whose property switches compaction off, and one that was dropped, with its tasks."""
    with state.begin() as tx:
        for table in ("lake.off", "lake.bad", "lake.gone"):
            seen(tx, table, now=at(0))
            tables.make_due(tx, table, "a commit", at(1))
        for table, refused in (("lake.off", DISABLED), ("lake.bad", "level: got -1")):
            tables.record_check(
                tx, table, due_number=1, snapshot_id=1, reason=refused, now=at(2), refused=refused
            )
        offer(tx, "lake.gone", [planned("a", "b")], at(3), max_attempts=1)
        claim = present(attempts.claim(tx, [], "w", table="lake.gone", time=Clock(at(3))))
        attempts.failed(tx, claim.attempt_id, claim.token, "bad page", time=Clock(at(4)))
    shown = [(wait.cause, wait.name) for wait in page(state).waits]
    assert sorted(shown) == [
        ("plan", "lake.gone"), ("quarantined", "lake.gone"), ("refused", "lake.bad"),
    ]  # fmt: skip
    with state.begin() as tx:
        tables.table_gone(tx, "lake.gone", at(5))
    assert [wait.id for wait in page(state).waits] == ["lake.bad"]


def test_filters_select_by_kind_location_cause_and_text(planted: Database) -> None:
    """A cause also without the names after its colon; a text in any case."""
    assert {wait.kind for wait in page(planted, kind="run").waits} == {WaitKind.RUN}
    assert {wait.cause for wait in page(planted, location="here", kind="task").waits} == {"parents"}
    assert grouped(planted, location="here").count == 6
    assert grouped(planted, location="there").count == 0
    assert [group.cause for group in grouped(planted, cause="window").groups] == [
        "window", "window:night",
    ]  # fmt: skip
    assert [group.cause for group in grouped(planted, cause="paused:big").groups] == ["paused:big"]
    assert {wait.id for wait in page(planted, text="DROP table").waits} == {ODD}
    assert page(planted, text="100%_").waits == ()
    assert [wait.name for wait in page(planted, text="Asia/Tokyo").waits] == ["at_night"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"kind": "jobs"}, "kind: got 'jobs', expected one of job, arrival, run"),
        ({"text": "\0"}, "text: got '\\x00', expected text in UTF-8"),
        ({"cause": "\ud800"}, "cause: got '\\ud800', expected text in UTF-8"),
    ],
)
def test_bad_filters_are_refused(wanted: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        WaitFilter.parse(**wanted)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("text", ["x", "é", "bnVsbA", "WzEsMiwzXQ", "W10", "Ww", "=" * 9])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="the cursor of an earlier page"):
        Cursor.parse(text)


def test_a_broken_row_is_shown_as_unreadable_beside_the_others(planted: Database) -> None:
    """Its verdicts are no JSON; it still counts for its cause."""
    with planted.begin() as tx:
        tx.execute(sa.update(jobs).where(jobs.c.cause == "window").values(verdicts="{"))
    found = page(planted)
    assert len(found.waits) == 14
    (broken,) = [wait for wait in found.waits if wait.cause == "unreadable"]
    assert broken.name == "at_night"
    assert broken.reason.startswith("it cannot be read: ")
    assert ("window", 1) in [(group.cause, group.count) for group in grouped(planted).groups]


def test_a_feature_that_fails_hides_no_other(planted: Database) -> None:
    """Its statement fails in the database, after which Postgres refuses others."""
    lost = sa.table("arctic_lost", *(sa.column(name) for name in ("id", "at", "text")))
    (first, *_) = schedules.wait_rows()
    broken = dataclasses.replace(
        first, table=lost, where=(), keys=(lost.c.id,), id=lost.c.id, since=lost.c.at,
        cause=lost.c.text, name=lost.c.text, location=lost.c.text, reason=lost.c.text,
    )  # fmt: skip
    rooms = [
        dataclasses.replace(room, wait_rows=lambda: [broken]) if room.name == "schedules" else room
        for room in ROOMS
    ]
    with planted.read() as tx:
        found = waiting_by_cause(tx, "default", NOW, rooms=rooms)
        listed = waiting(tx, "default", NOW, rooms=rooms)
    assert found.count == len(listed.waits) == 9
    (trouble,) = found.troubles
    assert trouble.text.startswith("what waits in schedules cannot be read: ")
    assert listed.troubles == (trouble,)


def test_silent_processes_are_troubles(planted: Database) -> None:
    """An hour after the last tick and the last pass; the tasks' location has none of its own."""
    with planted.begin() as tx:
        tx.execute(sa.insert(locations).values(cluster="default", name="new"))
    with planted.read() as tx:
        found = waiting_by_cause(tx, "default", NOW + timedelta(hours=1))
    assert [trouble.text for trouble in found.troubles] == [
        "location here: no dispatcher ticks since 2026-01-01 00:00:00Z",
        "location new: no dispatcher has ticked yet",
        "the daemon went through the queue last at 2026-01-01 00:01:00Z",
    ]


def test_commands_can_be_pasted_whatever_the_names_are() -> None:
    assert command("schedules", "enable", "a b") == "arctic schedules enable 'a b'"
    assert command("compaction", "wake", "--yes") == "arctic compaction wake -- --yes"
    options = ("--group",)
    assert command("queues", "resume", "$(rm)", options=options) == (
        "arctic queues resume '$(rm)' --group"
    )


def test_the_views_know_no_command_no_service_and_no_dagster() -> None:
    """A service puts routes on them, and a command a table."""
    program = (
        "import sys, arctic_orchestration.waiting.reader\n"
        "import arctic_orchestration.schedules.views.why_not\n"
        "print(*{'rich', 'typer', 'fastapi', 'dagster', 'pyiceberg'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert done.stdout.strip() == ""
