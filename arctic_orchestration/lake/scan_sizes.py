"""What a filter makes readers open: the data files whose metadata does not exclude a match."""

from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Snapshot

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake.manifests import UNREADABLE, snapshot_manifests
from arctic_orchestration.lake.null_partitions import compare_nulls

compare_nulls()


@dataclass(frozen=True, kw_only=True)
class ScanSize:
    """The data files that a scan reads, and all of the snapshot; sizes in bytes."""

    snapshot_id: int
    files: int
    bytes: int
    all_files: int
    all_bytes: int


def parse_filter(text: str, schema: Schema) -> BooleanExpression:
    """Returns a filter in pyiceberg's notation.

    Errors:
        InvalidInput: it cannot be read, or a column is unknown or of another type.
    """
    try:
        found = parse(text)
        bind(schema, found, case_sensitive=True)
    # Also that of the parser that pyiceberg uses.
    except Exception as error:
        expected = f"a filter on its columns, such as origin = 'JFK' and delay > 30 ({error})"
        raise InvalidInput("FILTER", text, expected) from error
    return found


def scan_size(table: Table, row_filter: BooleanExpression, snapshot: Snapshot) -> ScanSize:
    """Returns the size of a scan of a snapshot, by its manifests alone.

    Errors:
        LakeError: its manifests cannot be read.
    """
    found, everything = (
        [file.file_size_in_bytes for file in scanned_files(table, one, snapshot)]
        for one in (row_filter, AlwaysTrue())
    )
    return ScanSize(
        snapshot_id=snapshot.snapshot_id,
        files=len(found),
        bytes=sum(found),
        all_files=len(everything),
        all_bytes=sum(everything),
    )


def scanned_files(
    table: Table, row_filter: BooleanExpression, snapshot: Snapshot
) -> list[DataFile]:
    """Returns the data files that may have a match.

    Without delete files: pyiceberg plans no scan with equality deletes.

    Errors:
        LakeError: a manifest cannot be read.
    """
    manifests = snapshot_manifests(table.io, snapshot)
    data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    planner = ManifestGroupPlanner(table.metadata, table.io, row_filter)
    try:
        return [task.file for task in planner.plan_files(data)]
    except UNREADABLE as error:
        raise LakeError(
            f"a manifest of snapshot {snapshot.snapshot_id} cannot be read: {error}"
        ) from error
