"""A schedule decides beside Dagster's own and launches nothing; what differs is shown."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.test_utils import create_run_for_test

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.adoption import journal
from arctic_orchestration.schedules.adoption.comparison import (
    Comparison,
    Decision,
    Outcome,
    Theirs,
    compare,
)
from arctic_orchestration.schedules.cli.adopt_diff import show_differences
from arctic_orchestration.schedules.dagster.adoption import functions
from arctic_orchestration.schedules.dagster.adoption.session import Session
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.why_not import why_not
from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.tables import holders, launches, notices, schedules
from arctic_orchestration_tests.schedules.adoption.conftest import on_both
from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    HOUR,
    SECONDS,
    partitions_run,
    pass_after,
)

ALL = ("hourly", "decided", "arrivals", "successes")
DAY = timedelta(days=1)


def shadow(project: Project, *names: str) -> Session:
    """All are running in Dagster, and ours in their shadow."""
    project.start(*names)
    project.daemon_pass()
    session = project.session()
    for name in names:
        item = session.cut_over(name, shadowed=True)
        assert session.forward(item) is None
    return session


def compared(session: Session, name: str) -> Comparison:
    ((item, adoption),) = session.shadows([name])
    return session.compare(item, adoption)


def changed(project: Project, session: Session, name: str, **values: Any) -> None:
    """A person changes the schedule, and not Dagster's."""
    place = session.find(name).place
    with place.state.change() as (tx, location):
        stored = control.stored_by_name(tx, place.state.store, location, name)
        form = {**stored.schedule.to_form(), **values}
        new = Schedule.parse(form, field=name)
        control.apply(tx, place.state.store, location, [new], project.now, actor=place.actor)


def succeed(project: Project) -> str:
    with project.at_now():
        return project.succeed("watched")


@on_both
def test_decisions_that_agree_are_no_differences(project: Project) -> None:
    """Two hours of each kind. Dagster alone has runs; ours hold nothing and notify nobody."""
    session = shadow(project, *ALL)
    for number in range(2):
        project.arrive("raw", f"day{number}")
        succeed(project)
        pass_after(project, HOUR / 2)
        succeed(project)
        pass_after(project, HOUR / 2)
    pass_after(project, SECONDS)
    found = {name: compared(session, name) for name in ALL}
    assert {name: one.differences for name, one in found.items()} == {name: [] for name in ALL}
    # 11:00 and 12:00; 10:30 (a run) and 11:30 (skipped); two arrivals; four successes.
    assert {name: (one.compared, one.open) for name, one in found.items()} == {
        "hourly": (2, 0),
        "decided": (2, 0),
        "arrivals": (2, 0),
        "successes": (4, 0),
    }
    for job, runs in (("hourly_report", 3), ("on_arrival", 2), ("after_watched", 4)):
        assert project.owners(job) == {"Dagster": runs}
    with project.database.read() as tx:
        ids = {run.run_id for run in project.runs()}
        for table in (holders, launches):
            assert set(tx.execute(sa.select(table.c.holder)).scalars()) <= ids
        assert tx.execute(sa.select(notices.c.id)).all() == []
    session.close()


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_only_a_run_from_before_the_event_has_the_run_key_already(
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
    zone: str,
) -> None:
    """Dagster's own run comes after it. Its record has the time of Postgres's zone."""
    monkeypatch.setenv("PGTZ", zone)
    instance = dagster_instance("postgres")
    before = datetime.now(UTC)
    tags = {"dagster/run_key": "k", "dagster/sensor_name": "files"}
    run = create_run_for_test(instance, tags=tags)
    instance.report_engine_event("made", run)

    def decided(at: datetime) -> object:
        context: Any = SimpleNamespace(
            instance=instance, events=[SimpleNamespace(at=at)], schedule="files", shadowed=True,
            location=None,
        )  # fmt: skip
        return functions._of_sensor("files", [dg.RunRequest(run_key="k")], context)

    assert isinstance(decided(before), dg.RunRequest)
    assert isinstance(decided(datetime.now(UTC)), dg.SkipReason)


def test_each_partition_is_compared(project: Project) -> None:
    """Dagster requests the day that ended at midnight, and so do we; the day before is another."""
    session = shadow(project, "daily")
    pass_after(project, DAY)
    found = compared(session, "daily")
    assert (found.compared, found.open, found.differences) == (1, 0, [])
    cron = {"expression": "0 0 * * *", "partition": "last_ended", "offset": -1}
    changed(project, session, "daily", trigger={"cron": cron})
    pass_after(project, DAY)
    (difference,) = compared(session, "daily").differences
    assert difference.what == "partition 2026-03-02 here, 2026-03-03 in Dagster"
    session.close()


NIGHT = [{"window": {"start": "22:00", "end": "23:00", "otherwise": "cancel"}}]


@on_both
def test_a_difference_of_each_kind_is_shown_with_both_reasons(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of our schedules is changed, and not Dagster's: another tag, a canceling constraint, an
    arrival that is not taken."""
    session = shadow(project, *ALL)
    changed(project, session, "hourly", tags={"team": "other"})
    trigger = {"partitions": {"asset": "raw", "where": "taken*"}}
    changed(project, session, "arrivals", trigger=trigger)
    for name in ("decided", "successes"):
        changed(project, session, name, constraints=NIGHT)
    project.arrive("raw", "taken")
    pass_after(project, SECONDS)
    project.arrive("raw", "missed")
    succeed(project)
    pass_after(project, HOUR)
    pass_after(project, SECONDS)
    found = {
        name: [
            (one.what, one.ours.reason, one.theirs.reason)
            for one in compared(session, name).differences
        ]
        for name in ALL
    }
    runs = {run.job_name: run.run_id for run in project.runs()}
    (tag,), (skipped,), (missed,), (canceled,) = found.values()
    assert tag[0] == "tag team: other here, ops in Dagster"
    for what, ours, theirs in (skipped, canceled):
        assert what == "no run here, run in Dagster"
        assert ours == "the window 22:00-23:00 (UTC) opens at 2026-03-02 22:00:00Z"
        assert theirs.startswith("it requested ")
    assert missed[:2] == ("no run here, run in Dagster", "no job of the schedule took it")
    assert runs["after_watched"] in canceled[2]
    monkeypatch.setenv("COLUMNS", "400")
    capsys.readouterr()
    assert show_differences(session, [], as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in shown] == sorted(ALL)
    (difference,) = shown[0]["differences"]
    assert difference["about"].startswith("event ")
    assert difference["ours"]["source"] is None
    assert show_differences(session, ["successes"], as_json=False)
    text = capsys.readouterr().out
    assert "no run here, run in Dagster" in text
    assert "arctic jobs explain" in text
    assert text.endswith("1 difference in 1 decision of 1 object in shadow\n")
    session.close()


@on_both
@pytest.mark.parametrize("launches_too", [False, True], ids=["shadow", "control"])
def test_a_shadow_is_cut_over_without_a_second_run(project: Project, launches_too: bool) -> None:
    """Each tick and arrival has one run: Dagster's until the cut-over, and ours after it.
    The control launches in shadow, and doubles."""
    names = ("hourly", "arrivals")
    session = shadow(project, *names)
    if launches_too:
        with project.database.begin() as tx:
            tx.execute(sa.update(schedules).values(status="enabled"))
    project.arrive("raw", "a")
    pass_after(project, HOUR)
    pass_after(project, SECONDS)
    if launches_too:
        doubled = [("a", "Dagster"), ("a", "ours")]
        assert partitions_run(project) == doubled
        assert project.owners("hourly_report") == {"Dagster": 1, "ours": 1}
        return
    for name in names:
        item = session.cut_over(name)
        assert session.forward(item) is None
    project.arrive("raw", "c")
    pass_after(project, HOUR)
    pass_after(project, SECONDS)
    assert partitions_run(project) == [("a", "Dagster"), ("c", "ours")]
    assert project.owners("hourly_report") == {"Dagster": 1, "ours": 1}
    for name in names:
        session.back(session.find(name))
    pass_after(project, SECONDS)
    assert [session.back(session.find(name)) for name in names] == [None, None]
    session.close()


def test_an_arrival_that_ours_alone_decided_about_is_run_after_the_cut_over(
    project: Project,
) -> None:
    """Ours decided about it in shadow; Dagster's sensor, whose interval is longer, did not."""
    session = shadow(project, "arrivals")
    project.arrive("raw", "early")
    pass_after(project, SECONDS)
    project.arrive("raw", "late")
    # The dispatcher ticks, and Dagster's sensor is not due yet.
    project.advance(SECONDS / 4)
    project.daemon_pass()
    assert compared(session, "arrivals").open == 1
    item = session.cut_over("arrivals")
    assert session.forward(item) is None
    pass_after(project, SECONDS)
    assert partitions_run(project) == [("early", "Dagster"), ("late", "ours")]
    session.close()


def test_a_crash_changes_nothing_and_the_command_is_repeated(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last write of a beginning, and of the step from shadow to cut-over."""
    project.start("arrivals")
    project.daemon_pass()
    session = project.session()

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def states() -> list[str]:
        with project.database.read() as tx:
            mine = schedules.c.name == "arrivals"
            status = tx.execute(sa.select(schedules.c.status).where(mine)).scalar_one()
            return [status, *tx.execute(sa.select(adoptions.c.step)).scalars()]

    for write, shadowed, before, after in (
        ("begin", True, ["suspended"], ["shadowed", "shadowed"]),
        ("note", False, ["shadowed", "shadowed"], ["suspended", "prepared"]),
    ):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(journal, write, crash)
            session.cut_over("arrivals", shadowed=shadowed)
        assert states() == before
        session.cut_over("arrivals", shadowed=shadowed)
        assert states() == after
    session.close()


def test_failures_and_missing_decisions_differ() -> None:
    """Both failed: the same. What Dagster has not evaluated yet, or fails to, is distinguished."""

    def decision(outcome: Outcome, *keys: int) -> Decision:
        at = datetime(2026, 3, 2, 10, tzinfo=UTC)
        return Decision(outcome=outcome, reason=f"because {outcome}", at=at, keys=keys)

    ours = [
        decision(Outcome.FAILED, 1),
        decision(Outcome.RUN, 2),
        decision(Outcome.RUN, 5),
        decision(Outcome.RUN, 9),
    ]
    ticks = [
        decision(Outcome.FAILED, 0, 1),
        decision(Outcome.FAILED, 1, 2),
        decision(Outcome.RUN, 2, 3),
        decision(Outcome.RUN, 6, 7),
    ]
    theirs = Theirs(decisions=ticks, above=0, up_to=8)
    found = compare(ours, theirs, lambda key: key < 7)
    differences = [(one.what, one.ours.reason, one.theirs.reason) for one in found.differences]
    assert differences == [
        ("run here, failed in Dagster", "because run", "because failed"),
        ("no run here, run in Dagster", "no job of the schedule took it", "because run"),
        ("run here, no run in Dagster", "because run", "no tick of Dagster took it"),
    ]
    # Open: the key 7 has not come to ours, and 9 not to Dagster's.
    assert (found.compared, found.open) == (4, 2)
    failing = replace(theirs, failure=decision(Outcome.FAILED))
    whats = [one.what for one in compare(ours, failing, lambda _: True).differences]
    assert whats.count("run here, failed in Dagster") == 2


def test_the_end_of_a_shadow_leaves_nothing(project: Project) -> None:
    """One that was made for it is deleted, one of the code is suspended; Dagster's goes on."""
    session = shadow(project, "hourly", "arrivals")
    place = session.find("hourly").place
    with place.state.change() as (tx, location), pytest.raises(TransitionRefused, match="shadow"):
        control.enable(tx, place.state.store, location, "hourly", project.now)
    for name in ("hourly", "arrivals"):
        assert session.back(session.in_shadow(name)) is None
        # A command that is repeated finds nothing to do.
        assert session.back(session.in_shadow(name)) is None
    with project.database.read() as tx:
        assert tx.execute(sa.select(adoptions)).all() == []
        found = {row.name: row.status for row in tx.execute(sa.select(schedules))}
    assert "hourly" not in found
    assert found["arrivals"] == "suspended"
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 1}
    session.close()


def test_what_is_cut_over_is_not_shadowed(project: Project) -> None:
    """Nothing of Dagster's runs beside it; and it ends with --back alone."""
    project.start("hourly")
    project.daemon_pass()
    session = project.session()
    session.forward(session.cut_over("hourly"))
    with pytest.raises(TransitionRefused, match="cut over already"):
        session.cut_over("hourly", shadowed=True)
    with pytest.raises(TransitionRefused, match="not in shadow but adopted"):
        session.in_shadow("hourly")
    session.close()


@pytest.mark.parametrize("declared_again", [False, True])
def test_a_shadow_whose_schedule_was_deleted_begins_anew(
    project: Project, declared_again: bool
) -> None:
    """``diff`` and ``--shadow`` do not take a schedule that decides nothing for one in shadow."""
    session = shadow(project, "hourly")
    place = session.find("hourly").place
    with place.state.change() as (tx, location):
        stored = control.stored_by_name(tx, place.state.store, location, "hourly")
        control.delete(tx, place.state.store, location, "hourly", project.now)
        if declared_again:
            off = stored.schedule.model_copy(update={"enabled": False})
            control.apply(tx, place.state.store, location, [off], project.now, actor=place.actor)
    assert session.shadows([]) == []
    item = session.cut_over("hourly", shadowed=True)
    pass_after(project, HOUR)
    pass_after(project, SECONDS)
    assert compared(session, "hourly").compared == 1
    assert session.forward(session.cut_over("hourly")) is None
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 1, "ours": 1}
    assert session.back(item) is None
    session.close()


def test_no_job_in_shadow_is_said_to_have_launched(project: Project) -> None:
    """Nor one whose request hook wants no run: the answer is the reason of each."""
    session = shadow(project, "hourly", "decided")
    for _ in range(2):
        pass_after(project, HOUR)
    with project.database.read() as tx:
        location = location_by_name(tx, "default", None, project.now)
        found = [
            why_not(tx, ScheduleStore(), location, name, project.now, project.now)
            for name in ("hourly", "decided")
        ]
    assert [one.cause for one in found] == ["discarded", "canceled"]
    assert "without a run: shadow: its run would have been requested" in found[0].answer
    assert "without a run: its request hook wants no run: an odd hour" in found[1].answer
    session.close()
