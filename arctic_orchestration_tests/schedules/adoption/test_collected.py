"""A suspended schedule has collected what Dagster has run; a cut-over begins behind that."""

from collections.abc import Callable

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules.dagster.adoption.session import Item, Session
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.schedules.adoption.conftest import on_both
from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    HOUR,
    SECONDS,
    partitions_run,
    pass_after,
)


def collecting(project: Project, name: str, mode: str) -> tuple[Session, Item]:
    """Dagster's own runs; its schedule is made by hand, suspended, with a suspend mode."""
    project.start(name)
    project.daemon_pass()
    session = project.session()
    item = session.find(name)
    schedule = item.drafted.schedule
    assert schedule is not None
    off = schedule.model_copy(update={"suspend_mode": mode, "enabled": False})
    with item.place.caught_up() as (tx, location, now):
        control.apply(tx, item.place.state.store, location, [off], now)
    return session, item


@pytest.mark.parametrize("mode", ["backlog", "collect"])
def test_ticks_that_were_collected_have_no_second_run(project: Project, mode: str) -> None:
    """Dagster made the runs of 11 and 12. Ours makes that of 13."""
    session, _ = collecting(project, "hourly", mode)
    for _ in range(2):
        pass_after(project, HOUR)
    assert session.forward(session.cut_over("hourly")) is None
    pass_after(project, SECONDS)
    assert project.owners("hourly_report") == {"Dagster": 2}
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 2, "ours": 1}
    with project.database.read() as tx:
        reasons = tx.execute(sa.select(jobs.c.reason).where(jobs.c.state == "discarded")).scalars()
        assert set(reasons) == {
            "it was collected before the schedule was adopted, while Dagster made the runs"
        }
    session.close()


def test_what_was_collected_is_canceled_before_a_shadow(project: Project) -> None:
    """Dagster made the run of 11: to launch the job of ours would make it twice."""
    session, item = collecting(project, "hourly", "backlog")
    pass_after(project, HOUR)
    advice = "cancel those of which Dagster has made the runs, and launch the others first"
    with pytest.raises(TransitionRefused, match=advice):
        session.cut_over("hourly", shadowed=True)
    with item.place.state.change() as (tx, location):
        for id in tx.execute(sa.select(jobs.c.id)).scalars().all():
            job_control.cancel_job(tx, location, id, project.now)
    session.cut_over("hourly", shadowed=True)
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 2}
    session.close()


@on_both
def test_arrivals_that_were_collected_have_one_run(project: Project) -> None:
    """Dagster's tick took the first. The second has come since, and both are in jobs of ours."""
    session, _ = collecting(project, "arrivals", "backlog")
    project.arrive("raw", "first")
    pass_after(project, SECONDS)
    project.arrive("raw", "second")
    # The dispatcher ticks, and Dagster's sensor is not due yet.
    pass_after(project, SECONDS / 4)
    assert session.forward(session.cut_over("arrivals")) is None
    for _ in range(2):
        pass_after(project, SECONDS)
    assert partitions_run(project) == [("first", "Dagster"), ("second", "ours")]
    session.close()


def test_partitions_that_were_collected_have_not_fired(
    dagster_instance: Callable[[str], dg.DagsterInstance],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ``late: ignore`` the first arrival of a partition counts, and nothing of it has run."""
    module = "arctic_orchestration_tests.schedules.adoption.days"
    instance = dagster_instance("sqlite")
    with Project.opened(instance, database_url, module, monkeypatch) as project:
        project.start("arrivals")
        project.daemon_pass()
        project.arrive("raw", "2026-03-01")
        # The dispatcher ticks, and Dagster's sensor is not due yet.
        pass_after(project, SECONDS / 4)
        session = project.session()
        assert session.forward(session.cut_over("arrivals", approximate=True)) is None
        for _ in range(2):
            pass_after(project, SECONDS)
        assert project.owners("of_day") == {"ours": 1}
        session.close()
