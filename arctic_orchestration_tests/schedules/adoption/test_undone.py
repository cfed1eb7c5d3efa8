"""A cut-over that has not stopped anything yet is undone."""

import pytest

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules.adoption import cut_over
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    SECONDS,
    partitions_run,
    pass_after,
    prepared,
)
from arctic_orchestration_tests.schedules.adoption.test_started_by_hand import enable, stop


@pytest.mark.parametrize("name", ["hourly", "arrivals"])
def test_a_cut_over_that_is_undone_meanwhile_stops_nothing(project: Project, name: str) -> None:
    """Two users at once: the one has read that it is prepared, and the other has ended it."""
    session, item = prepared(project, name)
    begun = present(item.adoption())
    assert session.back(item) is None
    assert cut_over.advance(item.place, item.instigator, begun) is None
    assert project.status(name) == "RUNNING"
    session.close()


def test_one_that_a_user_has_stopped_meanwhile_comes_back(project: Project) -> None:
    """The cut-over is prepared, and a user stops the sensor in Dagster: the way back ends."""
    session, item = prepared(project, "arrivals")
    stop(project, "arrivals")
    session.back(item)
    pass_after(project, SECONDS)
    assert session.back(item) is None
    assert item.adoption() is None
    project.arrive("raw", "once")
    pass_after(project, SECONDS)
    assert project.owners("on_arrival") == {"Dagster": 1}
    session.close()


def test_a_schedule_is_not_enabled_before_its_cut_over_has_ended(project: Project) -> None:
    """The command was killed after the stop. What a user enabled would get what arrives again."""
    session, item = prepared(project, "arrivals")
    begun = present(item.adoption())
    assert cut_over.advance(item.place, item.instigator, begun) is None
    with pytest.raises(TransitionRefused, match="Go on with that: arctic adopt --cut-over arr"):
        enable(item)
    project.arrive("raw", "first")
    pass_after(project, SECONDS)
    assert session.forward(session.cut_over("arrivals")) is None
    pass_after(project, SECONDS)
    project.arrive("raw", "second")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert partitions_run(project) == [("first", "ours"), ("second", "ours")]
    session.close()


def test_one_that_a_user_starts_before_its_cut_over_goes_on_is_begun(project: Project) -> None:
    """It was off, and the command was killed before it had done more than to prepare."""
    project.daemon_pass()
    session = project.session()
    session.cut_over("arrivals")
    project.start("arrivals")
    project.daemon_pass()
    assert session.forward(session.cut_over("arrivals")) is None
    project.arrive("raw", "once")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert partitions_run(project) == [("once", "ours")]
    session.close()
