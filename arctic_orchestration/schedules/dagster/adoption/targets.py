"""Which target, with which partitions, a job of Dagster's schedules and sensors is."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from arctic_orchestration.schedules.dagster.targets import assets_made
from arctic_orchestration.schedules.imports.draft import Draft, NotPossible


def one_job(sensor: dg.SensorDefinition) -> str:
    jobs = [target.job_name for target in sensor.targets]
    if len(jobs) != 1:
        listed = ", ".join(jobs) or "none"
        raise NotPossible(
            f"jobs: {listed}: its function chooses one, and a schedule has one target"
        )
    return jobs[0]


def of_partitions(job: str, repository: dg.RepositoryDefinition) -> Mapping[str, Any]:
    """A function that requests a partition may do so for the one that its event maps to."""
    return {} if repository.get_job(job).partitions_def is None else {"partitions": "each"}


def target_of(job: str, repository: dg.RepositoryDefinition, draft: Draft) -> Mapping[str, Any]:
    # Dagster makes such a job of a selection of assets.
    if not job.startswith("__"):
        return {"job": job}
    layer = repository.get_job(job).asset_layer
    ours = repository.asset_graph.get_check_keys_for_assets(set(layer.selected_asset_keys))
    for key in sorted(ours ^ layer.asset_graph.asset_check_keys, key=str):
        asset, runs = key.asset_key.to_user_string(), "here" if key in ours else "in Dagster"
        draft.differs(f"target: only runs {runs} evaluate the check {key.name} of {asset}")
    return {"assets": assets_made(repository.get_job(job))}


def target_of_sensor(
    sensor: dg.SensorDefinition, repository: dg.RepositoryDefinition, draft: Draft
) -> Mapping[str, Any]:
    if sensor.asset_selection is None:
        return target_of(one_job(sensor), repository, draft)
    # It has no job of its own: Dagster takes the jobs that the assets of a request have.
    keys = sensor.asset_selection.resolve(repository.asset_graph)
    return {"assets": sorted(key.to_user_string() for key in keys)}
