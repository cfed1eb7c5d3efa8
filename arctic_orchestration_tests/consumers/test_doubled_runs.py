"""Two runs of one request, as two daemons on one instance make them in a rolling restart."""

from datetime import timedelta

import dagster as dg

from arctic_orchestration import PartitionConsumer
from arctic_orchestration_tests.consumers.dagster_assets import arrive
from arctic_orchestration_tests.consumers.test_sensor import (
    Place,
    definitions,
    place,
    progress,
    unpartitioned,
)

__all__ = ["place"]


def started(place: Place, request: dg.RunRequest) -> dg.DagsterRun:
    """A run of a request that works."""
    tags = {**request.tags, "dagster/run_key": str(request.run_key)}
    return place.instance.create_run_for_job(
        unpartitioned, tags=tags, status=dg.DagsterRunStatus.STARTED
    )


def canceled(place: Place, run: dg.DagsterRun) -> None:
    """A person terminates it."""
    place.instance.report_run_canceling(run)
    place.instance.report_run_canceled(run)


def test_a_partition_fails_when_all_runs_of_its_request_have_failed(place: Place) -> None:
    """A person cancels one: a new run would work on the partition beside the other one."""
    consumer = PartitionConsumer("days", name="each", retry_after=timedelta(0))
    here = definitions("unpartitioned", consumer)
    arrive(place.instance, "days", "2026-01-01")
    (request,) = place.tick(here)
    first, second = started(place, request), started(place, request)
    canceled(place, first)
    assert place.tick(here) == []
    assert progress(consumer).leased == 1
    canceled(place, second)
    (again,) = place.tick(here)
    assert again.tags["arctic/attempt"] == "2"


def test_one_success_acknowledges_the_partition(place: Place) -> None:
    """Whichever run it is, and although the other one was canceled."""
    consumer = PartitionConsumer("days", name="each", retry_after=timedelta(0))
    here = definitions("unpartitioned", consumer)
    arrive(place.instance, "days", "2026-01-01")
    (request,) = place.tick(here)
    canceled(place, started(place, request))
    place.run(here, request)
    assert place.tick(here) == []
    found = progress(consumer)
    assert (found.acknowledged, found.leased, found.waiting) == (1, 0, 0)
