"""Events that are deleted from Dagster's log."""

from collections.abc import Callable

import dagster as dg

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.dagster_assets import arrive, settings_of
from arctic_orchestration_tests.event_log.writers import ASSET, entry


def test_wiping_another_asset_delivers_nothing_again(
    state: Database,
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
) -> None:
    """Though its events were the newest of the log, and more than a position remembers.

    What comes under their ids afterwards is delivered.
    """
    instance = dagster_instance(backend)
    following = PartitionConsumer(
        "days", name="totals", instance=instance, settings=settings_of(database_url)
    )

    def taken() -> list[str]:
        with following.consume() as partitions:
            return partitions.keys

    arrive(instance, "days", "2026-01-01", "2026-01-01", "2026-01-02", "2026-01-01")
    assert taken() == ["2026-01-01", "2026-01-02"]
    instance.event_log_storage.store_event_batch([entry(f"{number}") for number in range(300)])
    assert taken() == []
    instance.wipe_assets([dg.AssetKey(list(ASSET))])
    assert taken() == []
    arrive(instance, "days", "2026-01-01")
    assert taken() == ["2026-01-01"]
    following.close()
