"""A person starts a sensor in Dagster's UI while it is adopted: no event has two runs."""

from collections.abc import Sequence

import pytest

from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.dagster.adoption.session import Item
from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    SECONDS,
    cut_over,
    partitions_run,
    pass_after,
)


def succeed(project: Project) -> str:
    """A run ends that the sensor ``successes`` watches; returns its id."""
    with project.at_now():
        return project.succeed("watched")


def stop(project: Project, name: str) -> None:
    with project.at_now():
        if project.remote.has_schedule(name):
            schedule = project.remote.get_schedule(name)
            origin = schedule.get_remote_origin()
            project.instance.stop_schedule(origin.get_id(), schedule.selector_id, schedule)
            return
        sensor = project.remote.get_sensor(name)
        origin = sensor.get_remote_origin()
        project.instance.stop_sensor(origin.get_id(), sensor.selector_id, sensor)


def enable(item: Item) -> None:
    with item.place.state.change() as (tx, location):
        store, now = item.place.state.store, item.place.clock()
        control.enable(tx, store, location, item.name, now)


def runs_after(project: Project) -> Sequence[tuple[str, str]]:
    """The watched runs that have a run after them, and who requested that."""
    return sorted(
        (run.tags["after"], "ours" if "arctic/schedule" in run.tags else "Dagster")
        for run in project.runs("after_watched")
    )


def test_one_that_a_person_started_is_handed_back_where_ours_ended(project: Project) -> None:
    """Not at the cursor at which Dagster stopped: what came after that has a run of ours."""
    project.start("successes")
    project.daemon_pass()
    session, item = cut_over(project, "successes")
    first = [succeed(project), succeed(project)]
    pass_after(project, SECONDS)
    project.start("successes")
    pass_after(project, SECONDS)
    assert session.back(item) is None
    last = succeed(project)
    for _ in range(4):
        pass_after(project, SECONDS)
    assert runs_after(project) == sorted([*((one, "ours") for one in first), (last, "Dagster")])
    session.close()


@pytest.mark.parametrize("handed_back_first", [False, True])
def test_one_that_was_off_goes_on_where_ours_ended(
    project: Project, handed_back_first: bool
) -> None:
    """It is adopted while it is off, and its schedule enabled; then a person starts it in Dagster,
    before it is handed back or after that."""
    project.start("successes")
    project.daemon_pass()
    stop(project, "successes")
    session, item = cut_over(project, "successes")
    enable(item)
    first = [succeed(project), succeed(project)]
    pass_after(project, SECONDS)
    if handed_back_first:
        assert session.back(item) is None
        assert project.status("successes") == "STOPPED"
    project.start("successes")
    for _ in range(3):
        pass_after(project, SECONDS)
    assert runs_after(project) == sorted((one, "ours") for one in first)
    assert session.back(item) is None
    last = succeed(project)
    for _ in range(2):
        pass_after(project, SECONDS)
    assert runs_after(project) == sorted([*((one, "ours") for one in first), (last, "Dagster")])
    session.close()


def test_one_that_was_off_keeps_its_place_where_ours_did_nothing(project: Project) -> None:
    """Dagster goes on at its cursor, as without an adoption."""
    project.start("successes")
    project.daemon_pass()
    stop(project, "successes")
    session, item = cut_over(project, "successes")
    missed = succeed(project)
    assert session.back(item) is None
    project.start("successes")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert runs_after(project) == [(missed, "Dagster")]
    session.close()


def test_one_that_dagster_has_never_seen_is_adopted_while_it_is_off(project: Project) -> None:
    """A start by mistake makes no second run of what ours takes."""
    project.daemon_pass()
    session, item = cut_over(project, "arrivals")
    enable(item)
    project.start("arrivals")
    project.arrive("raw", "once")
    for _ in range(2):
        pass_after(project, SECONDS)
    assert partitions_run(project) == [("once", "ours")]
    session.close()
