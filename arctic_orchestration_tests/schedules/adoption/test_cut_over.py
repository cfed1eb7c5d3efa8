"""A schedule or sensor of Dagster is cut over, and handed back: each tick and event runs once."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.dagster.adoption.session import Item, Session
from arctic_orchestration.schedules.imports.draft import Outcome
from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.tables import schedules
from arctic_orchestration_tests.schedules.adoption.conftest import on_both
from arctic_orchestration_tests.schedules.adoption.project import Project

#: SQLite has one writer at a time: nothing is committed late
on_postgres = pytest.mark.parametrize("backend", ["postgres"], indirect=True)

SECONDS, MINUTE, HOUR = timedelta(seconds=31), timedelta(minutes=1), timedelta(hours=1)


def cut_over(project: Project, name: str) -> tuple[Session, Item]:
    session = project.session()
    item = session.cut_over(name)
    assert session.forward(item) is None
    return session, item


def prepared(project: Project, name: str, after: timedelta = timedelta(0)) -> tuple[Session, Item]:
    """A cut-over, some time after Dagster's last pass, that has stopped nothing yet."""
    project.start(name)
    project.daemon_pass()
    project.advance(after)
    session = project.session()
    return session, session.cut_over(name)


def partitions_run(project: Project) -> Sequence[tuple[str, str]]:
    """Who ran, for which partition, in the order of the partitions."""
    return sorted(
        (run.tags["partition_seen"], "ours" if "arctic/schedule" in run.tags else "Dagster")
        for run in project.runs("on_arrival")
    )


def pass_after(project: Project, by: timedelta) -> None:
    project.advance(by)
    project.daemon_pass()


@on_both
def test_a_schedule_goes_on_after_its_last_tick(project: Project) -> None:
    """Dagster made the runs of 11 and 12, ours those of 13 and 14, Dagster that of 15."""
    project.start("hourly")
    project.daemon_pass()
    for _ in range(2):
        pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 2}

    session, item = cut_over(project, "hourly")
    for _ in range(2):
        pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 2, "ours": 2}

    assert session.back(item) is None
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 3, "ours": 2}
    assert {run.tags["team"] for run in project.runs("hourly_report")} == {"ops"}
    with project.database.read() as tx:
        assert tx.execute(sa.select(adoptions)).all() == []
        query = sa.select(schedules.c.status).where(schedules.c.name == "hourly")
        # It has runs that have not ended, and is kept for them.
        assert tx.execute(query).scalar() == "suspended"
    session.close()


def test_a_tick_that_dagster_has_not_evaluated_is_waited_for(project: Project) -> None:
    """The tick of 11 is due and the daemon is busy: nothing is stopped before it has a record."""
    session, item = prepared(project, "hourly", after=HOUR)
    waits = "Dagster's scheduler has not evaluated the tick of 2026-03-02 11:00:00Z yet"
    assert session.forward(item) == waits
    project.daemon_pass()
    assert session.forward(item) is None
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 1, "ours": 1}
    session.close()


def test_a_schedule_is_not_stopped_right_before_its_tick(project: Project) -> None:
    """An iteration that has begun could still evaluate the next tick: ten seconds are kept free."""
    session, item = prepared(project, "hourly", after=timedelta(minutes=54, seconds=55))
    waits = "its next tick is at 2026-03-02 11:00:00Z, too soon to stop it safely"
    assert session.forward(item) == waits
    session.close()


def test_the_tick_that_passes_between_two_owners_is_made_up(project: Project) -> None:
    """Nobody evaluates at 11 and 12: ours makes up the latest, as Dagster would have."""
    session, item = prepared(project, "hourly")
    assert session.forward(item) is None
    project.advance(HOUR)
    assert session.back(item) is not None
    pass_after(project, timedelta(0))
    assert session.back(item) is None
    assert project.owners("hourly_report") == {"ours": 1}
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"ours": 1, "Dagster": 1}
    session.close()


@on_both
def test_a_sensor_goes_on_after_its_cursor(project: Project) -> None:
    """What arrived before the cursor was Dagster's; what comes after it is ours, also if it is
    there already; and on the way back what was not taken is Dagster's again."""
    project.start("arrivals")
    project.arrive("raw", "before")
    project.daemon_pass()
    assert partitions_run(project) == [("before", "Dagster")]
    # Ours has read these when the cut-over begins; no tick of Dagster's sensor has.
    project.arrive("raw", "between")
    session, item = cut_over(project, "arrivals")
    pass_after(project, SECONDS)
    project.arrive("raw", "after")
    pass_after(project, SECONDS)
    ours = [("after", "ours"), ("before", "Dagster"), ("between", "ours")]
    assert partitions_run(project) == ours

    project.arrive("raw", "last")
    assert session.back(item) is not None
    project.arrive("raw", "returned")
    pass_after(project, SECONDS)
    assert session.back(item) is None
    pass_after(project, SECONDS)
    assert partitions_run(project) == [
        *ours,
        ("last", "ours"),
        ("returned", "Dagster"),
    ]
    session.close()


def test_a_sensor_that_has_no_cursor_begins_with_the_latest(project: Project) -> None:
    """Its first tick would have taken the latest materialization, and no other."""
    project.daemon_pass()
    for partition in ("old", "latest"):
        project.arrive("raw", partition)
    project.start("arrivals")
    session, _ = cut_over(project, "arrivals")
    pass_after(project, SECONDS)
    assert partitions_run(project) == [("latest", "ours")]
    session.close()


@on_both
def test_a_run_status_sensor_has_a_run_for_each_event(project: Project) -> None:
    """Two successes for Dagster, two for ours, one for Dagster: each has a run of its own."""
    project.start("successes")
    project.daemon_pass()

    def succeed() -> str:
        with project.at_now():
            return project.succeed("watched")

    first = [succeed(), succeed()]
    for _ in range(2):
        pass_after(project, SECONDS)
    session, item = cut_over(project, "successes")
    second = [succeed(), succeed()]
    pass_after(project, SECONDS)
    session.back(item)
    third = [succeed()]
    for _ in range(2):
        pass_after(project, SECONDS)
    assert session.back(item) is None
    found = {
        run.tags["after"]: "arctic/schedule" in run.tags for run in project.runs("after_watched")
    }
    assert found == {
        **dict.fromkeys(first, False),
        **dict.fromkeys(second, True),
        **dict.fromkeys(third, False),
    }
    assert len(project.runs("after_watched")) == 5
    session.close()


def test_the_function_of_a_schedule_decides_about_each_run(project: Project) -> None:
    """It skips odd hours, in Dagster as with us; the tag is what it returned."""
    project.start("decided")
    project.daemon_pass()
    session, _ = cut_over(project, "decided")
    for _ in range(3):
        pass_after(project, HOUR)
    # 10:30, 11:30 and 12:30
    tags = sorted(run.tags["hour"] for run in project.runs("hourly_report"))
    assert tags == ["10", "12"]
    session.close()


def test_a_stopped_one_stays_stopped(project: Project) -> None:
    """Nothing ran before, so nothing runs after: the schedule is suspended, and back as well."""
    project.daemon_pass()
    session, item = cut_over(project, "hourly")
    pass_after(project, HOUR)
    assert session.back(item) is None
    pass_after(project, HOUR)
    assert project.runs() == []
    session.close()


@pytest.mark.parametrize("handed_back", [False, True])
def test_a_person_who_starts_an_adopted_sensor_makes_no_second_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, handed_back: bool
) -> None:
    """By mistake, in the UI: Dagster's daemon does not evaluate it until it is handed back.

    The fence also stays if --back looked for the journal before another command began the cut-over.
    """
    project.start("arrivals")
    project.daemon_pass()
    session, item = cut_over(project, "arrivals")
    if handed_back:
        with monkeypatch.context() as patch:
            patch.setattr(Item, "adoption", lambda _: None)
            assert session.back(item) is None
    project.start("arrivals")
    project.arrive("raw", "once")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert partitions_run(project) == [("once", "ours")]
    session.close()


@on_both
@pytest.mark.parametrize("name", ["arrivals", "hourly"])
def test_one_that_dagster_has_forgotten_is_started_where_ours_ended(
    project: Project, name: str
) -> None:
    """Its row is gone, as after a restored storage: a new one has the boundary and the status."""
    project.start(name)
    project.daemon_pass()
    session, item = cut_over(project, name)
    project.arrive("raw", "ours")
    pass_after(project, HOUR)
    (state,) = [one for one in project.instance.all_instigator_state() if one.name == name]
    project.instance.delete_instigator_state(state.instigator_origin_id, state.selector_id)
    assert session.back(item) is None
    assert project.status(name) == "RUNNING"
    project.arrive("raw", "Dagster's")
    pass_after(project, HOUR)
    job = "on_arrival" if name == "arrivals" else "hourly_report"
    assert project.owners(job) == {"ours": 1, "Dagster": 1}
    session.close()


def test_a_sensor_whose_journal_is_lost_is_evaluated_again(project: Project) -> None:
    """A person starts it, and nothing happens before --back: it goes on where it was stopped."""
    project.start("arrivals")
    project.daemon_pass()
    session, item = cut_over(project, "arrivals")
    with project.database.begin() as tx:
        tx.execute(sa.delete(adoptions))
        tx.execute(sa.delete(schedules))
    project.start("arrivals")
    project.arrive("raw", "waits")
    pass_after(project, SECONDS)
    assert project.runs() == []
    assert session.back(item) is None
    pass_after(project, SECONDS)
    assert partitions_run(project) == [("waits", "Dagster")]
    session.close()


def test_an_enabled_schedule_of_the_name_is_refused(project: Project) -> None:
    """Both would make runs. Nothing is stopped."""
    project.start("hourly")
    project.daemon_pass()
    first, _ = cut_over(project, "hourly")
    with project.database.begin() as tx:
        tx.execute(sa.delete(adoptions))
    with pytest.raises(TransitionRefused, match="schedule hourly is enabled already"):
        first.cut_over("hourly")
    first.close()


def test_what_was_adopted_by_a_schedule_that_was_deleted_is_handed_back_first(
    project: Project,
) -> None:
    """Nothing runs then, so the command does not say that it is adopted."""
    project.start("hourly")
    project.daemon_pass()
    session, item = cut_over(project, "hourly")
    with item.place.state.change() as (tx, location):
        control.delete(tx, item.place.state.store, location, "hourly", project.now)
    with pytest.raises(TransitionRefused, match="was deleted: .* --back hourly"):
        session.cut_over("hourly")
    assert session.back(item) is None
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 1}
    session.forward(session.cut_over("hourly"))
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 1, "ours": 1}
    session.close()


def test_what_no_schedule_can_say_is_refused(project: Project) -> None:
    """Each with its reason; nothing is stopped."""
    project.daemon_pass()
    session = project.session()
    for name, reason in (
        ("files", "its function looks for something outside of Dagster"),
        ("both", "its function reads the events and moves the cursor itself"),
        ("alarms", "it requests no runs"),
        ("asset:derived", "remove the condition, and enable the schedule"),
    ):
        with pytest.raises(TransitionRefused, match=reason):
            session.cut_over(name)
    session.close()


@on_postgres
def test_an_event_below_the_cursor_that_is_committed_late_is_ours(project: Project) -> None:
    """Dagster's cursor has passed it, and its sensor would never have run it."""
    project.start("arrivals")
    project.daemon_pass()
    with project.open_arrival("raw", "late"):
        project.arrive("raw", "early")
        pass_after(project, SECONDS)
        assert partitions_run(project) == [("early", "Dagster")]
        session, _ = cut_over(project, "arrivals")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert partitions_run(project) == [("early", "Dagster"), ("late", "ours")]
    session.close()


@on_postgres
def test_an_event_that_is_committed_late_stays_with_who_had_its_id(project: Project) -> None:
    """On the way back: its id lies below the boundary, so ours waits for it, and takes it."""
    project.start("arrivals")
    project.daemon_pass()
    session, item = cut_over(project, "arrivals")
    with project.open_arrival("raw", "late"):
        project.arrive("raw", "early")
        pass_after(project, SECONDS)
        assert "may still be committed" in str(session.back(item))
        project.arrive("raw", "returned")
        pass_after(project, SECONDS)
        assert "may still be committed" in str(session.back(item))
    pass_after(project, SECONDS)
    assert session.back(item) is None
    found = [("early", "ours"), ("late", "ours"), ("returned", "Dagster")]
    assert partitions_run(project) == found
    session.close()


def test_what_has_waited_is_launched_on_the_way_back(project: Project) -> None:
    """A job that is held is not lost: the way back waits until it is launched, and says so."""
    project.start("arrivals")
    project.daemon_pass()
    session, item = cut_over(project, "arrivals")
    project.arrive("raw", "held")
    waits = session.back(item)
    assert waits is not None
    assert "is not launched" in waits or "next tick of its dispatcher" in waits
    for _ in range(2):
        pass_after(project, SECONDS)
    assert session.back(item) is None
    assert partitions_run(project) == [("held", "ours")]
    session.close()


def test_dagsters_default_comes_back(project: Project) -> None:
    """What a person had started runs as started by a person, above the boundary."""
    project.start("hourly")
    project.daemon_pass()
    session, item = cut_over(project, "hourly")
    assert project.status("hourly") == "STOPPED"
    assert session.back(item) is None
    assert project.status("hourly") == "RUNNING"
    session.close()


def test_a_plain_sensor_becomes_a_source(project: Project) -> None:
    """Listed with its schedule and what to do by hand; neither shadow nor cut-over begins."""
    (drafted,) = (one for one in project.session().repositories[0].drafts if one.name == "files")
    assert drafted.outcome is Outcome.APPROXIMATE
    assert drafted.schedule is not None
    assert drafted.schedule.trigger.to_form() == {"requests": {"sensor": "files"}}
    assert "on.requests(sensor='files')" in str(drafted.python)
    assert "Arctic(sources=[files]" in " ".join(drafted.draft.notes)
    session = project.session()
    for shadowed in (False, True):
        with pytest.raises(TransitionRefused, match="By hand: deploy the schedule suspended"):
            session.cut_over("files", approximate=True, shadowed=shadowed)
    session.close()
