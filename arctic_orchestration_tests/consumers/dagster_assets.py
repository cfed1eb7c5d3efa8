"""Assets that are materialized in real Dagster instances, and consumers of them."""

from collections.abc import Callable
from typing import Any

import dagster as dg

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.settings import Settings

DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2027-01-01")
FEEDS = dg.DynamicPartitionsDefinition(name="feeds")

#: Makes a consumer of an instance and a state database.
MakeConsumer = Callable[..., PartitionConsumer]


@dg.asset(partitions_def=DAYS)
def days(context: dg.AssetExecutionContext) -> None:
    """A day of something."""


@dg.asset(partitions_def=FEEDS)
def feeds(context: dg.AssetExecutionContext) -> None:
    """A feed, of which there are more and fewer."""


def arrive(instance: dg.DagsterInstance, asset: str, *keys: str, **metadata: Any) -> None:
    """Each partition is materialized from outside."""
    for key in keys:
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                dg.AssetKey.from_user_string(asset), partition=key, metadata=metadata
            )
        )


def settings_of(database_url: str) -> Settings:
    """The settings of a state database."""
    return Settings.from_environment({"ARCTIC_DATABASE_URL": database_url})
