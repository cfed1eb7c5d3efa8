"""Which snapshots and refs of a table have expired: pure rules.

They are the rules of Iceberg's own ``expire_snapshots``:

- A branch or tag other than ``main`` expires when its snapshot is older than the ref's
  ``max-ref-age-ms``, or the table's ``history.expire.max-ref-age-ms``.
- Of a remaining branch, the head and its ancestors stay while they are fewer than
  ``min-snapshots-to-keep`` or younger than ``max-snapshot-age-ms``; without these properties of the
  branch, the caller's age and count apply.
- The snapshot of a remaining tag stays.
- A snapshot without a ref stays while it is younger than the caller's age.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.lake.snapshot_history import ancestors
from arctic_orchestration.lake.table_properties import int_property

_MAX_REF_AGE_MS = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expired snapshots and refs."""

    snapshot_ids: frozenset[int]
    refs: tuple[str, ...]


def default_older_than(metadata: TableMetadata, now: datetime) -> datetime:
    """Returns ``now`` less the table's ``history.expire.max-snapshot-age-ms`` (five days).

    Errors:
        InvalidInput: the property is negative.
    """
    name = TableProperties.MAX_SNAPSHOT_AGE_MS
    default = TableProperties.MAX_SNAPSHOT_AGE_MS_DEFAULT
    age = int_property(metadata.properties, name, default) or 0
    if age < 0:
        raise InvalidInput(name, str(age), "a number of milliseconds, 0 or more")
    try:
        return now - timedelta(milliseconds=age)
    except OverflowError:
        # The largest number of Java means never.
        return datetime.min.replace(tzinfo=UTC)


def default_keep_last(metadata: TableMetadata) -> int:
    """Returns the table's ``history.expire.min-snapshots-to-keep``, one by default."""
    count = int_property(
        metadata.properties,
        TableProperties.MIN_SNAPSHOTS_TO_KEEP,
        TableProperties.MIN_SNAPSHOTS_TO_KEEP_DEFAULT,
    )
    return max(1, count or 1)


def expiry(
    metadata: TableMetadata,
    *,
    older_than: datetime,
    keep_last: int,
    now: datetime,
    keep: Collection[int] = (),
) -> Expiry:
    """Returns the expired snapshots and refs.

    Args:
        keep: ids of snapshots that stay regardless of their age.
    """
    limit_ms = _milliseconds(older_than)
    gone = tuple(name for name, ref in metadata.refs.items() if _is_over(metadata, name, ref, now))
    stay = set(keep)
    referenced: set[int] = set()
    for name, ref in metadata.refs.items():
        if name in gone:
            continue
        stay.add(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.TAG:
            referenced.add(ref.snapshot_id)
            continue
        history = list(ancestors(metadata, ref.snapshot_id))
        referenced.update(snapshot.snapshot_id for snapshot in history)
        stay.update(_that_stay(history, ref, limit_ms, keep_last, now))
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in referenced and snapshot.timestamp_ms >= limit_ms:
            stay.add(snapshot.snapshot_id)
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    return Expiry(frozenset(ids - stay), gone)


def _is_over(metadata: TableMetadata, name: str, ref: SnapshotRef, now: datetime) -> bool:
    age = ref.max_ref_age_ms or int_property(metadata.properties, _MAX_REF_AGE_MS)
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if name == MAIN_BRANCH or age is None or snapshot is None:
        return False
    return snapshot.timestamp_ms < _milliseconds(now) - age


def _that_stay(
    history: list[Snapshot], ref: SnapshotRef, limit_ms: int, keep_last: int, now: datetime
) -> set[int]:
    if ref.max_snapshot_age_ms is not None:
        limit_ms = _milliseconds(now) - ref.max_snapshot_age_ms
    fewest = ref.min_snapshots_to_keep or keep_last
    stay = set()
    for count, snapshot in enumerate(history):
        if count >= fewest and snapshot.timestamp_ms < limit_ms:
            break
        stay.add(snapshot.snapshot_id)
    return stay


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
