"""Data files that are in a table's metadata only: planning never opens them."""

from collections.abc import Sequence
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.typedef import Record


def imagined(
    path: str,
    partition: Sequence[Any] = (),
    *,
    spec_id: int = 0,
    size: int = 1000,
    rows: int = 10,
    **more: Any,
) -> DataFile:
    """A data file that nobody has written; the size in bytes."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=size,
        **more,
    )
    file.spec_id = spec_id
    return file


def commit_files(
    table: Table,
    added: Sequence[DataFile],
    removed: Sequence[DataFile] = (),
    *,
    branch: str = MAIN_BRANCH,
    merge: bool = False,
) -> int:
    """One snapshot with these files; returns its sequence number.

    Args:
        removed: then the snapshot is an overwrite.
        merge: small manifests are merged into one.
    """
    table.refresh()
    with table.transaction() as transaction:
        update = transaction.update_snapshot(branch=branch)
        producer = (
            update.overwrite()
            if removed
            else update.merge_append()
            if merge
            else update.fast_append()
        )
        for file in added:
            producer.append_data_file(file)
        for file in removed:
            producer.delete_data_file(file)
        producer.commit()
    snapshot = table.snapshot_by_name(branch)
    assert snapshot is not None
    assert snapshot.sequence_number is not None
    return snapshot.sequence_number
