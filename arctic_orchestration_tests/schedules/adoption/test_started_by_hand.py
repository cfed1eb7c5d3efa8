"""A person starts a sensor in Dagster's UI while it is adopted: no event has two runs."""

from collections.abc import Sequence

from arctic_orchestration_tests.schedules.adoption.project import Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    SECONDS,
    cut_over,
    pass_after,
)


def succeed(project: Project) -> str:
    """A run ends that the sensor ``successes`` watches; returns its id."""
    with project.at_now():
        return project.succeed("watched")


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
