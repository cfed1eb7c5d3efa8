"""Landing and announcing: files arrive one after the other, and Dagster is told of each.

What has been announced is not written down a second time: Dagster's event log is the ledger. A
feeder that was killed between landing and announcing finds the file landed and not in the log, and
announces it; one killed right after announcing finds it in the log, and does not. So each file
is announced once, which a trigger that counts arrivals is thankful for, and none is lost. A fresh
Dagster instance on an old landing directory is told of all its files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

import dagster as dg

from arctic_orchestration.flights.feeds import FEEDS, Feed, asset_of, files_of
from arctic_orchestration.flights.landing import LandedFile, Landing
from arctic_orchestration.flights.source import FlightsSource


class Announcements(Protocol):
    """Where arrivals are announced, and what it knows already."""

    def announced(self, asset: str) -> set[str]:
        """The partition keys of ``asset`` that were announced before."""

    def announce(self, asset: str, partition: str, metadata: Mapping[str, str | int]) -> None:
        """Announces one arrival; when it returns, the announcement is durable."""


@dataclass(frozen=True)
class DagsterAnnouncements:
    """Announcements as materializations outside of a run, in an instance's event log."""

    instance: dg.DagsterInstance

    def announced(self, asset: str) -> set[str]:
        """The partition keys of ``asset`` that have a materialization."""
        key = dg.AssetKey.from_user_string(asset)
        return self.instance.get_materialized_partitions(key)

    def announce(self, asset: str, partition: str, metadata: Mapping[str, str | int]) -> None:
        """Records a materialization of the partition."""
        self.instance.report_runless_asset_event(
            dg.AssetMaterialization(
                asset_key=dg.AssetKey.from_user_string(asset),
                partition=_partition_key(partition),
                metadata=dict(metadata),
            )
        )


def _partition_key(key: str) -> str:
    """As a multi-partition key it also gets the tags by which Dagster's pages find it."""
    day, found, origin = key.partition("|")
    return dg.MultiPartitionKey({"date": day, "origin": origin}) if found else key


def metadata_of(landed: LandedFile) -> dict[str, str | int]:
    """What an announcement says of a file: ``path``, ``bytes`` and ``rows``."""
    return {"path": str(landed.path), "bytes": landed.bytes, "rows": landed.rows}


def feed_days(
    source: FlightsSource,
    landing: Landing,
    announcements: Announcements,
    days: Iterable[date],
    feeds: Sequence[Feed] = FEEDS,
) -> Iterator[LandedFile]:
    """Lands and announces the files of ``days``, and yields each after it was announced.

    In the order of `files_of`. The caller sets the pace by asking for the next. Before the first
    one, files that landed earlier and were never announced are announced and yielded; files that
    are landed and announced are passed over. One feeder at a time: two at once would announce a
    file twice.
    """
    known = {feed: set(announcements.announced(asset_of(feed))) for feed in feeds}

    def announced(landed: LandedFile) -> LandedFile:
        file = landed.file
        announcements.announce(asset_of(file.feed), file.key, metadata_of(landed))
        known[file.feed].add(file.key)
        return landed

    for feed in feeds:
        for landed in landing.landed(feed):
            if landed.file.key not in known[feed]:
                yield announced(landed)
    for file in files_of(days, feeds):
        is_known = file.key in known[file.feed]
        if not is_known or landing.find(file) is None:
            landed = landing.land(file, source.file(file))
            if not is_known:
                yield announced(landed)
