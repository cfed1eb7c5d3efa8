"""What a run says it has seen is nothing new; what is seen from outside is."""

import dagster as dg

from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration_tests.consumers.dagster_assets import MakeConsumer, arrive, days


def test_a_run_that_observes_what_it_consumes_is_not_delivered_it_again(
    instance: dg.DagsterInstance, consumer: MakeConsumer
) -> None:
    """It would be for ever. Schedules go on taking such an observation for an arrival."""

    following = consumer()

    @dg.asset
    def checked(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        with following.consume() as partitions:
            for key in partitions.keys:
                seen = dg.AssetObservation("days", partition=key, metadata={"rows seen": 3})
                context.log_event(seen)
            return dg.MaterializeResult(metadata={"keys": partitions.keys})

    def run() -> object:
        done = dg.materialize([checked], instance=instance)
        (event,) = done.get_asset_materialization_events()
        return event.materialization.metadata["keys"].value

    arrive(instance, "days", "2026-01-01")
    assert run() == ["2026-01-01"]
    assert run() == []
    assert following.progress().caught_up
    log = DagsterLog(instance)
    events = [event for event in log.read(None, 1_000).events if event.subject == "days"]
    assert [event.run_id is None for event in events] == [True, False]
    log.close()
    instance.report_runless_asset_event(dg.AssetObservation("days", partition="2026-01-01"))
    assert run() == ["2026-01-01"]
    assert dg.materialize([days], partition_key="2026-01-02", instance=instance).success
    assert run() == ["2026-01-02"]
    assert run() == []


def test_what_is_no_arrival_of_the_asset_is_not_made_an_event_of(
    instance: dg.DagsterInstance,
) -> None:
    """Of other assets, of runs; the position goes on over it, in parts, too."""

    @dg.asset
    def other() -> None:
        """Of no concern here."""

    arrive(instance, "days", "2026-01-01")
    arrive(instance, "raw/days", "2026-01-02")
    assert dg.materialize([other], instance=instance).success
    arrive(instance, "days", "2026-01-03")
    every, own = DagsterLog(instance), DagsterLog(instance, arrivals_of=["days", "raw"])
    assert len(every.read(None, 1_000).events) > 4
    keys, position, more = [], None, True
    while more:
        batch = own.read(position, 1)
        keys += [(event.subject, event.partition) for event in batch.events]
        position, more = batch.position, batch.more
    assert keys == [("days", "2026-01-01"), ("days", "2026-01-03")]
    assert position is not None
    assert every.read(position, 1_000).events == []
    every.close()
    own.close()
