"""A code location that had another ``Arctic(location=...)`` before: two rows have its owner."""

import pytest
import sqlalchemy as sa

from arctic_orchestration.state.tables import locations
from arctic_orchestration_tests.schedules.adoption.project import LOCATION, Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import HOUR, cut_over, pass_after
from arctic_orchestration_tests.schedules.adoption.test_shadow import DAY


@pytest.mark.parametrize("former", ["a_lake", "old_lake"])
def test_the_location_that_still_ticks_adopts(project: Project, former: str) -> None:
    """Nothing has ticked under the other name for a day, whatever that is."""
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
