"""Runs that Dagster would refuse: the submission fails, and those of other tasks go on."""

from typing import Any

import dagster as dg

from arctic_orchestration import Freshness
from arctic_orchestration.freshness.dagster.fresh_parents import fresh_parents
from arctic_orchestration_tests.code_location.tasks_place import ON_SQLITE, Tasks, tasks
from arctic_orchestration_tests.noise import noise

__all__ = ["tasks"]


@dg.op(config_schema={"letter": str})
def post() -> None: ...


@fresh_parents({})
@dg.job
def mail() -> None:
    post()


@fresh_parents({})
@dg.job(config={"ops": {"post": {"config": {"letter": "dear"}}}})
def dear_mail() -> None:
    post()


@fresh_parents({})
@dg.asset(config_schema={"size": int})
def sized() -> None: ...


@fresh_parents({})
@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2100-01-01"))
def later() -> None: ...


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
def lettered() -> None: ...


letters: Any = fresh_parents({})(dg.define_asset_job("letters", selection="lettered"))


@fresh_parents({})
@dg.job(tags={"note": noise(6_000)})
def noted() -> None:
    pass


@fresh_parents({})
@dg.asset
def innocent() -> None: ...


@ON_SQLITE
def test_a_run_that_dagster_would_refuse_blocks_no_other(tasks: Tasks) -> None:
    """Its submission fails with what Dagster says; in the daemon it would have ended the tick."""
    tasks.declare(
        dg.Definitions.merge(
            dg.Definitions(assets=[lettered]),
            Freshness(
                tasks=[mail, dear_mail, sized, later, letters, noted, innocent]
            ).definitions(),
        )
    )
    names = ("mail", "sized", "later", "letters", "noted", "dear_mail", "innocent")
    submitted = {name: tasks.submit(name) for name in names}
    requests = tasks.tick().run_requests or ()
    assert sorted(request.tags["arctic/task"] for request in requests) == ["dear_mail", "innocent"]
    assert all(tasks.run(request).success for request in requests)
    tasks.tick()
    ended = {name: tasks.again(one) for name, one in submitted.items()}
    assert {name for name, one in ended.items() if one.state == "succeeded"} == {
        "dear_mail", "innocent",
    }  # fmt: skip
    for name, message in (
        ("mail", 'Missing required config entry "ops"'),
        ("sized", 'Missing required config entry "ops"'),
        ("later", "the partitions of later: got 'DailyPartitionsDefinition', expected windows of"),
        ("letters", "the partitions of letters: got 'StaticPartitionsDefinition', expected wind"),
        ("noted", "tag note: got '6,004 bytes: "),
    ):
        assert ended[name].state == "failed"
        assert "Dagster refuses its run: " in ended[name].reason
        assert message in ended[name].reason
        assert tasks.row(name).owner is None
