"""The code is changed and deployed between the steps of an adoption."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Arctic, Schedule, on, request_of
from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control
from arctic_orchestration.state.tables import timers
from arctic_orchestration_tests.proofs.instant_launcher import begin_and_end
from arctic_orchestration_tests.schedules.adoption import lake
from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    HOUR,
    SECONDS,
    cut_over,
    pass_after,
)


@contextmanager
def deployed(
    project: Project, theirs: Any, ours: Sequence[Schedule] = (), *, passes: int = 1
) -> Iterator[Project]:
    """The project with one schedule or sensor of Dagster, after some passes of its daemon."""
    is_schedule = isinstance(theirs, dg.ScheduleDefinition)
    arctic = Arctic(schedules=list(ours), numbers_every=None, schedule_assets=False)
    defs = dg.Definitions.merge(
        dg.Definitions(
            assets=[dg.AssetSpec(name) for name in lake.ASSETS],
            jobs=[lake.hourly_report, lake.on_arrival],
            schedules=[theirs] if is_schedule else [],
            sensors=[] if is_schedule else [theirs],
        ),
        arctic.definitions(),
    )
    with project.patch.context() as patch:
        patch.setattr(lake, "defs", defs)
        made = Project(
            instance=project.instance,
            database=project.database,
            module=project.module,
            patch=project.patch,
            now=project.now,
        )
    with closing(made):
        for _ in range(passes):
            made.daemon_pass()
        yield made
    project.now = made.now


def _hourly(default: str, cron: str = "0 * * * *") -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name="hourly",
        job=lake.hourly_report,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus(default),
    )


def _arrivals(default: str, name: str = "arrivals") -> dg.SensorDefinition:
    @dg.asset_sensor(
        name=name,
        asset_key=dg.AssetKey("raw"),
        job=lake.on_arrival,
        default_status=dg.DefaultSensorStatus(default),
    )
    def arrivals(context: dg.SensorEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(run_key=context.cursor)

    return arrivals


@pytest.mark.parametrize(
    ("make", "job", "runs"), [(_hourly, "hourly_report", 2), (_arrivals, "on_arrival", 1)]
)
def test_one_that_ran_by_a_default_that_was_changed_comes_back(
    project: Project, make: Any, job: str, runs: int
) -> None:
    """It is off in the code now, as it was off in Dagster. The way back starts it all the same."""
    name = make("RUNNING").name
    ours = Schedule(
        name="arrivals",
        target="on_arrival",
        trigger=on.partitions("raw"),
        request=request_of(_arrivals("STOPPED")),
    )
    with deployed(project, make("RUNNING"), [ours]) as first:
        cut_over(first, name)[0].close()
    with deployed(project, make("STOPPED"), [ours]) as changed:
        session = changed.session()
        assert session.back(session.find(name)) is None
        changed.arrive("raw")
        for _ in range(2):
            pass_after(changed, HOUR)
        assert changed.owners(job) == {"Dagster": runs}
        session.close()


def _decided() -> dg.ScheduleDefinition:
    @dg.schedule(
        name="hourly",
        job=lake.hourly_report,
        cron_schedule="0 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def decided() -> dg.SkipReason:
        return dg.SkipReason("never")

    return decided


def _declared(theirs: dg.ScheduleDefinition) -> Schedule:
    return Schedule(
        name="hourly",
        target="hourly_report",
        trigger=on.cron("0 * * * *"),
        request=request_of(theirs),
    )


@pytest.mark.parametrize("shadowed", [False, True])
def test_what_is_declared_and_not_deployed_is_refused(project: Project, shadowed: bool) -> None:
    """The command's code has the schedule with its function, the daemon's has neither."""
    with deployed(project, _hourly("RUNNING")) as first:
        session = first.session()
        theirs = _decided()
        (loaded,) = session.repositories
        with deployed(project, theirs, [_declared(theirs)], passes=0) as changed:
            session.repositories = [changed.repository]
            with pytest.raises(TransitionRefused, match="hourly is not that of the code"):
                session.cut_over("hourly", shadowed=shadowed)
        session.repositories = [loaded]
        assert session.find("hourly").adoption() is None
        pass_after(first, HOUR)
        assert first.owners("hourly_report") == {"Dagster": 1}
        session.close()


@pytest.mark.parametrize("was_shadowed", [False, True])
def test_what_the_command_made_has_no_function(project: Project, was_shadowed: bool) -> None:
    """The definition in Dagster got a function after its shadow, or after it was handed back while
    a run worked."""
    with deployed(project, _hourly("RUNNING")) as first:
        session = first.session()
        item = session.cut_over("hourly", shadowed=was_shadowed)
        if not was_shadowed:
            session.forward(item)
            pass_after(first, HOUR)
            assert session.back(item) is None
        session.close()
    theirs = _decided()
    with deployed(project, theirs, [_declared(theirs)]) as changed:
        session = changed.session()
        with pytest.raises(TransitionRefused, match="hourly is not that of the code"):
            session.cut_over("hourly")
        assert changed.status("hourly") == "DECLARED_IN_CODE"
        # What the error advises:
        place, before = session.find("hourly").place, len(changed.runs())
        with place.state.change() as (tx, location):
            control.delete(tx, place.state.store, location, "hourly", changed.now)
        pass_after(changed, HOUR)
        cut_over(changed, "hourly")[0].close()
        pass_after(changed, HOUR)
        assert len(changed.runs()) == before
        session.close()


@pytest.mark.parametrize("shadowed", [False, True])
@pytest.mark.parametrize("is_edited", [False, True])
def test_the_cut_over_is_to_what_dagster_has_run(
    project: Project, is_edited: bool, shadowed: bool
) -> None:
    """In shadow of an hourly tick at :00, which the code has moved to :30, or prepared before that
    by a command that was killed. A schedule that a user has changed is taken as it is."""
    with deployed(project, _hourly("RUNNING")) as first:
        session = first.session()
        item = session.cut_over("hourly", shadowed=shadowed)
        if is_edited:
            edited = item.drafted.schedule
            assert edited is not None
            edited = edited.model_copy(update={"trigger": on.cron("45 * * * *"), "enabled": False})
            with item.place.state.change() as (tx, location):
                control.apply(tx, item.place.state.store, location, [edited], first.now)
        session.close()
    with deployed(project, _hourly("RUNNING", "30 * * * *")) as changed:
        cut_over(changed, "hourly")[0].close()
        assert _next_tick(changed) == ("10:45" if is_edited else "10:30")


def _next_tick(project: Project) -> str:
    with project.database.read() as tx:
        (due,) = tx.execute(sa.select(timers.c.due_at).where(timers.c.leaf == 0)).scalars()
    return f"{due:%H:%M}"


def test_each_change_before_the_cut_over_is_taken(project: Project) -> None:
    """The command is killed, and repeated with other code, more than once."""
    for minute in (0, 30):
        with deployed(project, _hourly("RUNNING", f"{minute} * * * *")) as prepared:
            session = prepared.session()
            session.cut_over("hourly")
            session.close()
    with deployed(project, _hourly("RUNNING", "45 * * * *")) as changed:
        cut_over(changed, "hourly")[0].close()
        assert _next_tick(changed) == "10:45"


def test_what_a_way_back_has_left_is_taken_as_dagster_has_it_by_now(project: Project) -> None:
    """It was kept for a run that had not ended. The next way back finds none and deletes it."""
    with deployed(project, _hourly("RUNNING")) as first:
        session, item = cut_over(first, "hourly")
        pass_after(first, HOUR)
        assert session.back(item) is None
        (run,) = first.runs("hourly_report")
        session.close()
    with deployed(project, _hourly("RUNNING", "30 * * * *"), passes=2) as changed:
        session, item = cut_over(changed, "hourly")
        assert _next_tick(changed) == "11:30"
        begin_and_end(changed.instance, run)
        pass_after(changed, SECONDS)
        assert session.back(item) is None
        assert not item.is_suspended("hourly")
        session.close()


def test_a_schedule_that_became_a_sensor_comes_back(project: Project) -> None:
    """Under its name: the sensor begins where ours ended."""
    with deployed(project, _hourly("RUNNING")) as first:
        cut_over(first, "hourly")[0].close()
        pass_after(first, HOUR)
        first.arrive("raw")
    with deployed(project, _arrivals("STOPPED", "hourly")) as changed:
        session = changed.session()
        item = session.find("hourly")
        assert session.back(item) is None
        assert item.adoption() is None
        changed.arrive("raw")
        for _ in range(2):
            pass_after(changed, HOUR)
        assert changed.owners("hourly_report") == {"ours": 1}
        assert changed.owners("on_arrival") == {"Dagster": 1}
        session.close()


def test_what_the_code_declares_since_stays_after_the_way_back(project: Project) -> None:
    """A user has deleted what the command made, and has deployed a schedule of its name."""
    with deployed(project, _hourly("RUNNING")) as first:
        session, item = cut_over(first, "hourly")
        with item.place.state.change() as (tx, location):
            control.delete(tx, item.place.state.store, location, "hourly", first.now)
        session.close()
    trigger = on.cron("0 * * * *")
    ours = Schedule(name="hourly", target="hourly_report", trigger=trigger, enabled=True)
    with deployed(project, _hourly("RUNNING"), [ours], passes=0) as changed:
        pass_after(changed, SECONDS)
        session = changed.session()
        item = session.find("hourly")
        assert session.back(item) is None
        assert item.is_suspended("hourly")
        session.close()
