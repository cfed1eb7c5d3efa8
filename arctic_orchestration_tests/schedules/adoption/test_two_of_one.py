"""Two of something that an adoption takes for one."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules.adoption import cut_over as cut_over_steps
from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.schedules.adoption.project import LOCATION, Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import HOUR, cut_over, pass_after
from arctic_orchestration_tests.schedules.adoption.test_shadow import DAY


@pytest.mark.parametrize("former", ["a_lake", "old_lake"])
def test_the_location_that_still_ticks_adopts(project: Project, former: str) -> None:
    """The code location had another ``Arctic(location=...)``, which has not ticked for a day."""
    project.start("hourly")
    project.daemon_pass()
    with project.database.begin() as tx:
        own = sa.select(locations).where(locations.c.name == LOCATION)
        row = dict(tx.execute(own).mappings().one())
        changed = {"id": row["id"] + 1, "name": former, "ticked_at": project.now - DAY}
        tx.execute(sa.insert(locations).values(row | changed))
    session, _ = cut_over(project, "hourly")
    pass_after(project, HOUR)
    assert project.owners("hourly_report") == {"ours": 1}
    session.close()


def test_two_of_dagsters_do_not_become_one_schedule(project: Project) -> None:
    """Their names are equal in the hundred characters that ours may have. The first was off."""
    project.start("twice")
    project.daemon_pass()
    session, hourly = cut_over(project, "hourly")
    twice = session.find("twice")
    assert hourly.drafted.schedule is not None
    with pytest.raises(TransitionRefused, match="hourly is that of Dagster's hourly"):
        cut_over_steps.prepare(twice.place, twice.instigator, hourly.drafted.schedule)
    assert twice.adoption() is None
    session.close()


@pytest.mark.parametrize("names", [[], ["hourly"]])
def test_what_is_in_shadow_is_compared_though_another_location_has_its_name(
    project: Project, names: list[str]
) -> None:
    """The same code is deployed a second time, where nothing is adopted."""
    project.start("hourly")
    project.daemon_pass()
    session = project.session()
    session.cut_over("hourly", shadowed=True)
    code = LoadableTargetOrigin(module_name=project.module)
    origin = InProcessCodeLocationOrigin(code, location_name="elsewhere")
    session.repositories = [project.repository, replace(project.repository, origin=origin)]
    ((item, _),) = session.shadows(names)
    assert item.instigator.status().is_running
    session.close()
