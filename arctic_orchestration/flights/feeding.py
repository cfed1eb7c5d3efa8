"""Landing and reporting: files arrive one after the other, and each is reported to Dagster.

Dagster's event log is the only record of reported files. A feeder that was killed between landing
and reporting finds the file landed and not in the log, and reports it; one killed right after
reporting finds it in the log, and does not. So each file is reported once, as a trigger that counts
arrivals requires, and none is lost. A fresh Dagster instance on an old landing directory receives
all its files.
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
    """The receiver of arrivals, with the earlier ones."""

    def announced(self, asset: str) -> set[str]:
        """Returns the partition keys of ``asset`` that were reported before."""

    def announce(self, asset: str, partition: str, metadata: Mapping[str, str | int]) -> None:
        """Reports one arrival; when it returns, the report is durable."""


@dataclass(frozen=True)
class DagsterAnnouncements:
    """Reports arrivals as materializations outside of a run, in an instance's event log."""

    instance: dg.DagsterInstance

    def announced(self, asset: str) -> set[str]:
        """Returns the partition keys of ``asset`` that have a materialization."""
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
    """Returns a multi-partition key, which adds the tags by which Dagster's pages find it."""
    day, found, origin = key.partition("|")
    return dg.MultiPartitionKey({"date": day, "origin": origin}) if found else key


def metadata_of(landed: LandedFile) -> dict[str, str | int]:
    """Returns the metadata of a reported file: ``path``, ``bytes`` and ``rows``."""
    return {"path": str(landed.path), "bytes": landed.bytes, "rows": landed.rows}


def feed_days(
    source: FlightsSource,
    landing: Landing,
    announcements: Announcements,
    days: Iterable[date],
    feeds: Sequence[Feed] = FEEDS,
) -> Iterator[LandedFile]:
    """Lands and reports the files of ``days``, and yields each after it was reported.

    In the order of `files_of`. The caller sets the pace by requesting the next. First, landed files
    that were never reported are reported and yielded; files that are landed and reported are
    skipped. Only one feeder may run: two at once would report a file twice.
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
