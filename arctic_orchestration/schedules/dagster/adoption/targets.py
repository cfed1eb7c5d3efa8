"""Which target, with which partitions, a job of Dagster's schedules and sensors is."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from arctic_orchestration.schedules.dagster.targets import assets_made
from arctic_orchestration.schedules.imports.draft import NotPossible


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


def target_of(job: str, repository: dg.RepositoryDefinition) -> Mapping[str, Any]:
    # Dagster makes such a job of a selection of assets.
    if job.startswith("__"):
        return {"assets": assets_made(repository.get_job(job))}
    return {"job": job}
