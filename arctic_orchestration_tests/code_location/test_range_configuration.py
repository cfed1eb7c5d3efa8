"""The run configuration of a job with partitions, in a run of a range of them."""

from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration_tests.code_location.conftest import Place

LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])


def of_letter(letter: str) -> dict[str, Any]:
    return {"ops": {"post": {"config": {"letter": letter}}}}


DEAR = of_letter("dear")


@dg.op(config_schema={"letter": dg.Field(str, is_required=False, default_value="none")})
def post() -> None: ...


@dg.job(config=DEAR, partitions_def=LETTERS)
def same() -> None:
    post()


@dg.job(config=dg.PartitionedConfig(LETTERS, run_config_for_partition_key_fn=of_letter))
def its_own() -> None:
    post()


def requested(place: Place, job: str, **fields: Any) -> list[tuple[str | None, dict[str, Any]]]:
    """Partition and configuration of the runs that two adjacent arrivals, or others, request."""
    schedule = Schedule(
        name="s", target=job, trigger=on.partitions("raw/a"), partitions="range", enabled=True,
        **fields,
    )  # fmt: skip
    defs = dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec(["raw", "a"])], jobs=[same, its_own]),
        Arctic(schedules=[schedule]).definitions(),
    )
    place.tick(defs)
    place.announce("a", "b")
    requests = place.tick(defs).run_requests or ()
    return [(request.partition_key, dict(request.run_config)) for request in requests]


def test_a_configuration_that_is_the_same_for_all_is_used(place: Place) -> None:
    """As Dagster uses it in a run of one partition."""
    assert requested(place, "same") == [(None, DEAR)]


def test_a_configuration_of_each_partition_needs_a_run_of_each(place: Place) -> None:
    """A run of several would have none of them, but the defaults."""
    assert requested(place, "its_own") == []
    ((_, _, reason),) = [one for one in place.states() if one[1] == "failed"]
    expected = "expected each: its_own has another run configuration for each partition"
    assert expected in reason


@pytest.mark.parametrize("job", ["same", "its_own"])
def test_the_configuration_of_the_schedule_goes_first(place: Place, job: str) -> None:
    own = of_letter("ours")
    assert requested(place, job, run_config=own) == [(None, own)]
