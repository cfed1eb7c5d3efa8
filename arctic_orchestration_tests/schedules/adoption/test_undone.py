"""A cut-over that has not stopped anything yet is undone."""

import pytest

from arctic_orchestration.schedules.adoption import cut_over
from arctic_orchestration_tests.schedules.adoption.project import Project


@pytest.mark.parametrize("name", ["hourly", "arrivals"])
def test_a_cut_over_that_is_undone_meanwhile_stops_nothing(project: Project, name: str) -> None:
    """Two users at once: the one has read that it is prepared, and the other has ended it."""
    project.start(name)
    project.daemon_pass()
    session = project.session()
    item = session.cut_over(name)
    prepared = item.adoption()
    assert prepared is not None
    assert session.back(item) is None
    assert cut_over.advance(item.place, item.instigator, prepared) is None
    assert project.status(name) == "RUNNING"
    session.close()
