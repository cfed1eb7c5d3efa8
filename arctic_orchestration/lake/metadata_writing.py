"""Lets pyiceberg's catalogs write the metadata of tables of format 3.

pyiceberg 0.12 reads and updates these metadata completely, and refuses only the last step, the JSON
document that its SQL, Hive and Glue catalogs write. Its refusal protects from snapshots without row
ids; its own writers of manifests still refuse the format. The snapshots here have their row ids,
see :mod:`~arctic_orchestration.lake.snapshot_writing`.
"""

from typing import Any

from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel


def enable_format_3() -> None:
    """Replaces pyiceberg's refusal in this process; a version without it is left unchanged."""
    if "model_dump_json" in vars(TableMetadataV3):
        setattr(TableMetadataV3, "model_dump_json", _json)  # noqa: B010


def _json(metadata: TableMetadataV3, **options: Any) -> str:
    if metadata.next_row_id is None:
        # A table that was just made or upgraded; the specification requires the number.
        metadata = metadata.model_copy(update={"next_row_id": 0})
    return IcebergBaseModel.model_dump_json(metadata, **options)
