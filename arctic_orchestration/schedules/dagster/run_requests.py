"""Builds run requests that Dagster's daemon accepts.

A request that the daemon refuses fails the whole tick, and each tick after it. So this module takes
a request through the same steps as the daemon does when it makes the run.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import create_execution_plan
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.partitioning.key_space import store_of
from arctic_orchestration.run_tags import PAGE_TAG, check_storable
from arctic_orchestration.schedules.dagster.targets import RepositoryTargets, asset_key
from arctic_orchestration.schedules.launch_requests import LaunchRequest
from arctic_orchestration.settings import service_page

#: Dagster's own job for runs of assets; it exists where there are assets to run.
ASSET_JOB = "__ASSET_JOB"
_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"
#: accepted plans that are cached
_REMEMBERED = 10_000


class RunRequests:
    """Makes the run requests of one code location, and caches which plans were accepted."""

    def __init__(self) -> None:
        self._accepted: set[str] = set()

    def make(self, request: LaunchRequest, context: dg.SensorEvaluationContext) -> dg.RunRequest:
        """Returns the run request, with its partition resolved as Dagster would resolve it.

        Errors:
            Dagster's errors for a run that it could not make.
        """
        tags = dict(request.tags)
        page = service_page("jobs", request.job_id)
        if page is not None:
            tags[PAGE_TAG] = page
        partition = request.partition_start
        if request.partition_start != request.partition_end:
            tags[_RANGE_START] = str(request.partition_start)
            tags[_RANGE_END] = str(request.partition_end)
            partition = None
        named = request.selection or request.target.assets
        assets = [asset_key(asset) for asset in named]
        job = request.target.job or ASSET_JOB
        made = dg.RunRequest(
            run_key=request.run_key,
            job_name=job,
            asset_selection=assets or None,
            partition_key=partition,
            tags=tags,
            run_config=dict(request.run_config),
        )
        repository = context.repository_def
        assert repository is not None
        if partition is not None:
            made = made.with_resolved_tags_and_config(
                target_definition=repository.get_job(job),
                dynamic_partitions_requests=(),
                # Missing keys are added with the runs; a storage that is away must fail no job.
                dynamic_partitions_store=store_of(None),
            )
        elif request.partition_start is not None and not request.run_config:
            edges = (request.partition_start, str(request.partition_end))
            made = made.with_replaced_attrs(run_config=_config_of(repository.get_job(job), edges))
        check_storable({**repository.get_job(job).run_tags, **made.tags})
        # Planning a run costs milliseconds, and most requests differ only in their tags.
        plan = json.dumps([job, named, made.run_config], default=repr)
        if plan not in self._accepted:
            selected = repository.get_maybe_subset_job_def(
                job, asset_selection=frozenset(assets) if assets else None
            )
            create_execution_plan(selected, run_config=made.run_config)
            if len(self._accepted) >= _REMEMBERED:
                self._accepted.clear()
            self._accepted.add(plan)
        # The daemon gets all requests of a tick as one text.
        dg.serialize_value(made)
        return made


def _config_of(job: dg.JobDefinition, edges: tuple[str, str]) -> Mapping[str, Any]:
    """Returns the run configuration that a job has for the partitions of a range.

    Errors:
        InvalidInput: it is not the same for the first and the last one.
    """
    first, last = (job.get_run_config_for_partition_key(key) for key in edges)
    if first != last:
        expected = f"each: {job.name} has another run configuration for each partition"
        raise InvalidInput("partitions", "range", expected)
    return first


def new_partitions(
    requests: Sequence[LaunchRequest], targets: RepositoryTargets
) -> list[dg.AddDynamicPartitionsRequest]:
    """Returns partitions that arrived and that a dynamic target does not have yet."""
    missing: dict[str, dict[str, None]] = defaultdict(dict)
    for request in requests:
        keys = {key for key in (request.partition_start, request.partition_end) if key}
        found = targets.missing_dynamic(request.target, sorted(keys)) if keys else {}
        for name, lacking in found.items():
            missing[name].update(dict.fromkeys(lacking))
    return [
        dg.AddDynamicPartitionsRequest(partitions_def_name=name, partition_keys=list(keys))
        for name, keys in missing.items()
        if keys
    ]
