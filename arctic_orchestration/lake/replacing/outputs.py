"""Verifies the outputs of a merge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.types import IcebergType

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_metrics import columns_of, described, unreadable
from arctic_orchestration.lake.replacing.obsolete_deletes import Added
from arctic_orchestration.lake.replacing.read_errors import Why, why_unreadable
from arctic_orchestration.lake.replacing.table_head import Place
from arctic_orchestration.lake.row_lineage import FIRST_VERSION, lacks_lineage
from arctic_orchestration.lake.schema import without_unknown


class WrongOutputs(Exception):
    """The outputs must not replace the inputs; the message contains the reason."""


class UnreadableFile(Exception):
    """The outputs cannot be verified now; the message contains the reason."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The files of a merge, as they are committed."""

    added: tuple[Added, ...]
    #: id and type of the leaf columns, one mapping a file
    columns: tuple[Mapping[int, IcebergType], ...]


def checked_outputs(
    table: Table,
    group: FileGroup,
    paths: tuple[str, ...],
    rows_deleted: int,
    places: Mapping[str, Place],
    sort_order_id: int | None = None,
) -> Outputs:
    """Describes the outputs and counts their rows, by their footers.

    Args:
        places: the places of the inputs, by their paths.

    Errors:
        WrongOutputs: one is missing, is not a complete Parquet file, is outside the table, contains
            a column that the table cannot read, or more nulls than the inputs, or their rows are
            not those of the inputs without the deleted ones.
        UnreadableFile: one exists and cannot be opened or read, while other files can.
        LakeError: the storage did not answer.
    """
    if len({place.partition for place in places.values()}) != 1:
        raise WrongOutputs("the inputs are of several partitions")
    if young := [one.path for one in group.files if one.sequence_number > group.sequence_number]:
        raise WrongOutputs(f"{young[0]} is younger than the snapshot that was planned from")
    if len(set(paths)) < len(paths):
        raise WrongOutputs("an output is named twice")
    first = next(iter(places.values())).file
    found = []
    for path in paths:
        _require_inside(table, path)
        try:
            found.append(
                described(
                    table,
                    path,
                    spec_id=group.spec_id,
                    partition=first.partition,
                    sort_order_id=sort_order_id,
                )
            )
        except LakeError as error:
            # It names the file.
            raise WrongOutputs(str(error)) from error
        except pa.ArrowInvalid as error:
            raise WrongOutputs(f"{path}: {error}") from error
        except OSError as error:
            raise _named_error(table, path, error, group) from error
        except MemoryError:
            raise
        except Exception as error:
            # Of this file alone: the other replacements of the table are committed.
            raise WrongOutputs(f"{path}: {type(error).__name__}: {error}") from error
    if empty := [one.file.file_path for one in found if not one.file.record_count]:
        raise WrongOutputs(f"{empty[0]} has no rows")
    has_ids = any(file.first_row_id is not None for file in group.files)
    if nameless := [one.file.file_path for one in found if has_ids and lacks_lineage(one.columns)]:
        raise WrongOutputs(f"{nameless[0]} lacks the columns of the row lineage of format 3")
    rows = sum(one.file.record_count for one in found)
    before = sum(place.file.record_count for place in places.values())
    if rows != before - rows_deleted:
        raise WrongOutputs(
            f"got {rows} rows in the outputs, expected {before - rows_deleted}: "
            f"{before} in the inputs without {rows_deleted} deleted ones"
        )
    _require_values(table, [place.file for place in places.values()], [one.file for one in found])
    return Outputs(
        added=tuple(Added(file=one.file, sequence_number=group.sequence_number) for one in found),
        columns=tuple(one.columns for one in found),
    )


def _require_values(table: Table, inputs: Sequence[DataFile], outputs: Sequence[DataFile]) -> None:
    """Requires that no value has become null, as far as the metrics of all files have counts.

    Those of nested columns are left out: what they count differs from writer to writer.
    """
    for field in table.schema().fields:
        before = [(file.null_value_counts or {}).get(field.field_id) for file in inputs]
        after = [(file.null_value_counts or {}).get(field.field_id) for file in outputs]
        if not field.field_type.is_primitive or None in before or None in after:
            continue
        expected, nulls = sum(filter(None, before)), sum(filter(None, after))
        if nulls > expected:
            raise WrongOutputs(
                f"got {nulls} nulls in {field.name} of the outputs, expected at most {expected}, "
                "as many as in the inputs"
            )


def _named_error(table: Table, path: str, error: OSError, group: FileGroup) -> Exception:
    match why_unreadable(table.io, path, error, others=_others(table, group.files[0].path)):
        case Why.MISSING:
            return WrongOutputs(f"{path} is missing")
        case Why.BROKEN:
            return WrongOutputs(f"{path}: {error}")
        case Why.CLOSED:
            return UnreadableFile(f"{path} cannot be read: {error}")
        case Why.STORAGE:
            return LakeError(f"{path} cannot be read: {error}")


def _others(table: Table, *paths: str) -> tuple[str, ...]:
    """Returns files that were read, or at least existed, a moment ago."""
    return (*paths, table.metadata_location)


def schema_conflict(table: Table, outputs: Outputs, places: Mapping[str, Place]) -> str | None:
    """Returns why the table's current columns would change what readers see; None: they would not.

    Columns that were added, dropped, widened or renamed are no conflict. A column that the inputs
    contain and an output lacks is: it was dropped before the merge and restored.

    Errors:
        UnreadableFile: an input cannot be read, while other files can.
        LakeError: the storage did not answer.
    """
    schema = table.schema()
    if table.format_version >= FIRST_VERSION and any(map(lacks_lineage, outputs.columns)):
        return "the outputs lack the row ids that format 3 has brought meanwhile"
    for columns in outputs.columns:
        if problem := unreadable(columns, schema):
            return f"the columns were changed: {problem}"
    if not outputs.columns:
        return None
    leaves = {
        field_id
        for field_id, field in without_unknown(schema)._lazy_id_to_field.items()
        if field.field_type.is_primitive
    }
    everywhere = frozenset.intersection(*(frozenset(one) for one in outputs.columns))
    lacking = leaves - everywhere
    for path, place in places.items() if lacking else ():
        held = frozenset(place.file.column_sizes or {}) or _columns_of_input(table, path)
        if lost := lacking & held:
            name = schema.find_column_name(min(lost))
            return f"the columns were changed: {path} holds {name}, and an output does not"
    return None


def _columns_of_input(table: Table, path: str) -> frozenset[int]:
    try:
        return columns_of(table, path)
    except (LakeError, pa.ArrowInvalid) as error:
        raise UnreadableFile(f"{path}, an input: {error}") from error
    except OSError as error:
        message = f"{path}, an input, cannot be read: {error}"
        if why_unreadable(table.io, path, error, others=_others(table)) is Why.STORAGE:
            raise LakeError(message) from error
        raise UnreadableFile(message) from error


def _require_inside(table: Table, path: str) -> None:
    roots = [table.location()]
    if chosen := table.properties.get(TableProperties.WRITE_DATA_PATH):
        roots.append(chosen)
    if not any(path.startswith(f"{root.rstrip('/')}/") for root in roots):
        raise WrongOutputs(f"{path} is outside the table, {table.location()}")
