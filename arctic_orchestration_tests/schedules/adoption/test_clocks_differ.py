"""The clock of the command's host differs from that of the daemon's: each tick has one run."""

from datetime import timedelta

import pytest

from arctic_orchestration.schedules.dagster.adoption.session import Session
from arctic_orchestration.state import dialect
from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    HOUR,
    MINUTE,
    cut_over,
    pass_after,
)
from arctic_orchestration_tests.schedules.adoption.test_started_by_hand import stop

BEHIND = timedelta(minutes=-5)


def session_of(project: Project, differs: timedelta) -> Session:
    session = project.session()
    session.clock = lambda: project.now + differs
    return session


def adopt_hourly(project: Project) -> None:
    project.start("hourly")
    project.daemon_pass()
    cut_over(project, "hourly")[0].close()


@pytest.mark.parametrize("stopped_by_user", [False, True])
def test_a_tick_that_dagster_has_evaluated_stays_with_dagster(
    project: Project, stopped_by_user: bool
) -> None:
    """Dagster has run that of 11:00. At 11:02 the command's clock shows 10:57."""
    project.start("hourly")
    project.daemon_pass()
    pass_after(project, 57 * MINUTE)
    session = session_of(project, BEHIND)
    item = session.cut_over("hourly")
    if stopped_by_user:
        stop(project, "hourly")
    assert session.forward(item) is None
    pass_after(project, MINUTE)
    assert project.owners("hourly_report") == {"Dagster": 1}
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"Dagster": 1, "ours": 1}
    session.close()


def test_a_tick_that_ours_has_taken_stays_with_ours(project: Project) -> None:
    """Ours has run that of 11:00. At 11:02 the command's clock shows 10:57."""
    adopt_hourly(project)
    pass_after(project, 57 * MINUTE)
    session = session_of(project, BEHIND)
    assert session.back(session.find("hourly")) is None
    pass_after(project, MINUTE)
    assert project.owners("hourly_report") == {"ours": 1}
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"ours": 1, "Dagster": 1}
    session.close()


def test_no_tick_is_run_before_its_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 10:35, by the daemon's clock and by the database's. The command's clock shows 11:05."""
    monkeypatch.setattr(dialect, "database_time", lambda _: project.now)
    adopt_hourly(project)
    pass_after(project, 30 * MINUTE)
    session = session_of(project, 30 * MINUTE)
    assert session.back(session.find("hourly")) is None
    pass_after(project, MINUTE)
    assert project.runs() == []
    pass_after(project, 30 * MINUTE)
    assert project.owners("hourly_report") == {"Dagster": 1}
    session.close()
