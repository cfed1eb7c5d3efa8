"""A sensor that may request a run of every job of its code location.

Dagster's daemon submits a request only if the sensor's snapshot lists the job as a target. A
sensor lists its targets when it is constructed, before the jobs of the location are known. The
repository is first at hand where Dagster makes the snapshot, in `SensorSnap.from_def`. This
module extends that method, once a process: the snapshot of an `EveryJobSensor` lists all jobs of
the repository, and snapshots of other sensors are unchanged.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import (
    DEFAULT_MODE_NAME,
    NamedTargetsSensor,
    SensorSnap,
    TargetSnap,
    copy_record,
)
from arctic_orchestration.errors import ConfigurationError


class EveryJobSensor(NamedTargetsSensor):
    """A sensor whose targets are all jobs of its repository.

    Its evaluation returns run requests that name their job, with partitions resolved.
    """

    def resolve_run_requests(
        self, run_requests: Sequence[dg.RunRequest], *_args: Any, **_kwargs: Any
    ) -> Sequence[dg.RunRequest]:
        """Returns the requests unchanged: Dagster would refuse jobs that no target names."""
        return run_requests

    def check(self, repository: dg.RepositoryDefinition) -> None:
        """Checks the repository when Dagster makes its snapshot; an error here fails the load."""


_from_def: Any = None


def _with_every_job(
    sensor_def: dg.SensorDefinition, repository_def: dg.RepositoryDefinition
) -> SensorSnap:
    snap: SensorSnap = _from_def(sensor_def, repository_def)
    if not isinstance(sensor_def, EveryJobSensor):
        return snap
    sensor_def.check(repository_def)
    targets = {
        name: TargetSnap(job_name=name, mode=DEFAULT_MODE_NAME, op_selection=None)
        for name in sorted(repository_def.job_names)
    }
    return copy_record(snap, target_dict=targets)


# A Dagster that has no such snapshot may have another way; a request then says what is missing.
with suppress(ConfigurationError):
    _from_def = SensorSnap.from_def
    SensorSnap.from_def = staticmethod(_with_every_job)  # type: ignore[method-assign]
