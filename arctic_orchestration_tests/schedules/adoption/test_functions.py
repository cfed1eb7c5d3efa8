"""The functions of Dagster's schedules and sensors decide here as they do in Dagster."""

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from dagster_shared.record import replace

from arctic_orchestration_tests.schedules.adoption.project import LOCATION, Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    SECONDS,
    cut_over,
    partitions_run,
    pass_after,
)


@pytest.mark.parametrize("location", [LOCATION, "elsewhere"])
@pytest.mark.parametrize("of_ours", [False, True])
def test_a_run_key_belongs_to_the_sensor_of_one_code_location(
    project: Project, location: str, of_ours: bool
) -> None:
    """A project deployed twice has two sensors of each name, whose run keys may be equal."""
    project.start("arrivals")
    project.daemon_pass()
    session, _ = cut_over(project, "arrivals")
    project.arrive("raw", "once")
    (record,) = project.instance.fetch_materializations(dg.AssetKey("raw"), limit=1).records
    key = str(record.storage_id - 1)
    tags = {"dagster/sensor_name": "arrivals", "dagster/run_key": key}
    if of_ours:
        tags = {"arctic/schedule": "arrivals", "adopted/run_key": key}
    origin = project.remote.get_full_job("watched").get_remote_origin()
    code = replace(origin.repository_origin.code_location_origin, location_name=location)
    repository = replace(origin.repository_origin, code_location_origin=code)
    create_run_for_test(
        project.instance,
        job_name="watched",
        tags=tags,
        remote_job_origin=replace(origin, repository_origin=repository),
    )
    pass_after(project, SECONDS)
    assert partitions_run(project) == ([] if location == LOCATION else [("once", "ours")])
    session.close()
