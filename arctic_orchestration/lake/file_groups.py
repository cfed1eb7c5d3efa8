"""Groups of a table's files that are merged together, as values that a task can carry.

A group contains everything that its merge needs: a worker reads no manifest, however large the
table is.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID


class DeleteKind(StrEnum):
    """How a delete file identifies the deleted rows."""

    #: by file and position in it
    POSITION = "position"
    #: by the values of some columns
    EQUALITY = "equality"
    #: by a bitmap of the positions in one file, in a part of a Puffin file
    VECTOR = "vector"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteFile:
    """A file with deletes; sizes in bytes."""

    path: str
    kind: DeleteKind
    size: int
    rows: int
    sequence_number: int
    #: the ids of the compared columns; of a position delete: none
    equality_ids: tuple[int, ...] = ()
    #: of a deletion vector: the offset of its ``size`` bytes, and its data file
    offset: int | None = None
    referenced: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Distinguishes the deletion vectors of one Puffin file."""
        return self.path, self.offset or 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveFile:
    """A data file of a snapshot, with the deletes that apply to it; sizes in bytes."""

    path: str
    size: int
    rows: int
    #: the data sequence number: later deletes apply to the file
    sequence_number: int
    spec_id: int
    #: the values of the partition fields of its spec, in their order
    partition: tuple[Any, ...] = ()
    #: ``parquet``, ``orc`` or ``avro``
    file_format: str = "parquet"
    sort_order_id: int | None = None
    #: format 3: the id of its first row; None: the rows have no ids yet
    first_row_id: int | None = None
    deletes: tuple[DeleteFile, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FileGroup:
    """Files of one partition in one snapshot that are merged into fewer files."""

    #: the planned snapshot, and its sequence number
    snapshot_id: int
    sequence_number: int
    #: the partition spec of all of them
    spec_id: int
    files: tuple[LiveFile, ...]

    @property
    def partition(self) -> tuple[Any, ...]:
        """The values of the partition fields of the spec, in their order; none: unknown."""
        return self.files[0].partition if self.files else ()

    @property
    def bytes(self) -> int:
        """The size of the files and of the deletes that apply to them, each counted once."""
        return sum(file.size for file in self.files) + sum(
            delete.size for delete in self.delete_files
        )

    @property
    def rows(self) -> int:
        """The number of rows, deleted ones included."""
        return sum(file.rows for file in self.files)

    @property
    def delete_files(self) -> tuple[DeleteFile, ...]:
        """The deletes that apply to any of the files, sorted by path and offset."""
        found = {delete.key: delete for file in self.files for delete in file.deletes}
        return tuple(found[key] for key in sorted(found))

    def to_json(self) -> str:
        """Returns the group as text."""
        deletes = self.delete_files
        place = {delete.key: number for number, delete in enumerate(deletes)}
        return json.dumps(
            {
                "snapshot_id": self.snapshot_id,
                "sequence_number": self.sequence_number,
                "spec_id": self.spec_id,
                "partition": [_value_json(one) for one in self.partition],
                "deletes": [
                    {name: getattr(delete, name) for name in DeleteFile.__slots__}
                    for delete in deletes
                ],
                "files": [
                    {
                        **{name: getattr(file, name) for name in _OF_FILE},
                        "deletes": [place[delete.key] for delete in file.deletes],
                    }
                    for file in self.files
                ],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> "FileGroup":
        """Returns the group in text of :meth:`to_json`.

        Errors:
            ValueError: it is not.
        """
        try:
            return cls._from_form(json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    @classmethod
    def _from_form(cls, found: Any) -> "FileGroup":
        deletes = [
            DeleteFile(
                path=one["path"],
                kind=DeleteKind(one["kind"]),
                size=one["size"],
                rows=one["rows"],
                sequence_number=one["sequence_number"],
                equality_ids=tuple(one["equality_ids"]),
                offset=one.get("offset"),
                referenced=one.get("referenced"),
            )
            for one in found["deletes"]
        ]
        # Absent from tasks of earlier versions.
        partition = tuple(_value(one) for one in found.get("partition", ()))
        return cls(
            snapshot_id=found["snapshot_id"],
            sequence_number=found["sequence_number"],
            spec_id=found["spec_id"],
            files=tuple(_file(one, found["spec_id"], partition, deletes) for one in found["files"]),
        )


#: The fields of a data file that its text has as they are; the others are the group's.
_OF_FILE = (
    "path", "size", "rows", "sequence_number", "file_format", "sort_order_id", "first_row_id"
)  # fmt: skip


def _value_json(value: Any) -> Any:
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case UUID():
            return {"uuid": str(value)}
        case bytes():
            return {"hex": value.hex()}
        case float() if value - value != 0:
            return {"float": str(value)}
    return value


def _value(found: Any) -> Any:
    match found:
        case {"decimal": text}:
            return Decimal(text)
        case {"uuid": text}:
            return UUID(text)
        case {"hex": text}:
            return bytes.fromhex(text)
        case {"float": text}:
            return float(text)
    return found


def _file(
    found: Mapping[str, Any],
    spec_id: int,
    partition: tuple[Any, ...],
    deletes: Sequence[DeleteFile],
) -> LiveFile:
    return LiveFile(
        path=found["path"],
        size=found["size"],
        rows=found["rows"],
        sequence_number=found["sequence_number"],
        spec_id=spec_id,
        partition=partition,
        file_format=found["file_format"],
        sort_order_id=found["sort_order_id"],
        first_row_id=found.get("first_row_id"),
        deletes=tuple(deletes[number] for number in found["deletes"]),
    )
