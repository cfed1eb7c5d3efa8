"""Whether files can still be replaced: the changes by other writers since the merge was planned.

The outputs of a merge keep the data sequence number of the planned snapshot. So:

- Appends are no conflict, nor are later equality deletes: they apply to the outputs.
- A position delete names a file and would no longer find it. A later one that names an input, in
  any form, is a conflict.
- A deletion vector is a position delete in this sense.
- A row id of an input is kept by the outputs. The rows of an upgraded table get theirs with the
  next commit; if that came after the merge, the outputs lack them.
- A missing input is a conflict: its rows were deleted, or another merge replaced it.

The sequence number shows what came later as long as the planned snapshot is an ancestor of the
head. After a rollback, or when the snapshot has expired, it does not: then exactly the planned
deletes must be present, apart from newer equality deletes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.replacing.delete_targets import LiveDelete, Reach
from arctic_orchestration.lake.replacing.path_matching import file_key
from arctic_orchestration.lake.replacing.table_head import Head, Place


def conflict(group: FileGroup, head: Head, reach: Reach) -> str | None:
    """Returns why the files of the group cannot be replaced in this head; None: they can."""
    if group.spec_id not in head.metadata.specs():
        return f"partition spec {group.spec_id} is no longer in the table"
    places: dict[str, Place] = {}
    for file in group.files:
        found = head.places.get(file.path, [])
        if not found:
            return f"{file.path} is no longer in the table"
        if len(found) > 1:
            return f"{file.path} is in the table {len(found)} times"
        place = places[file.path] = found[0]
        planned = (file.sequence_number, file.rows, group.spec_id)
        if (place.sequence_number, place.file.record_count, place.file.spec_id) != planned:
            return f"{file.path} was removed and added again"
        if place.first_row_id != file.first_row_id:
            return (
                f"the first row of {file.path} has the id {place.first_row_id}, "
                f"and had {file.first_row_id} when it was merged"
            )
    return _deletes_conflict(group, _Inputs.of(places), head, reach)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The files of a group by their paths, and the paths by their keys for comparison."""

    places: Mapping[str, Place]
    by_key: Mapping[str, list[str]]

    @classmethod
    def of(cls, places: Mapping[str, Place]) -> "_Inputs":
        by_key: dict[str, list[str]] = {}
        for path in places:
            by_key.setdefault(file_key(path), []).append(path)
        return cls(places, by_key)


def _deletes_conflict(group: FileGroup, inputs: _Inputs, head: Head, reach: Reach) -> str | None:
    if group.snapshot_id in head.ancestors:
        for delete in head.deletes(after=group.sequence_number):
            if delete.sequence_number > group.sequence_number and delete.is_position:
                for path in _named(delete, inputs, reach):
                    return f"rows of {path} were deleted later, by {delete.path}"
        return None
    planned = {file.path: {one.key for one in file.deletes} for file in group.files}
    there = set()
    live = list(head.deletes())
    vectors = {reach.only(delete.file) for delete in live if delete.is_vector}
    for delete in live:
        there.add(delete.key)
        for path in _applying(delete, group, inputs, reach):
            if delete.is_position and not delete.is_vector and file_key(path) in vectors:
                # The vector has replaced it.
                continue
            if delete.key not in planned[path]:
                return f"{delete.path} deletes rows of {path} and was not planned with"
    for path, deletes in planned.items():
        if lacking := deletes - there:
            return f"{min(lacking)[0]}, which deletes rows of {path}, is no longer in the table"
    return None


def _applying(delete: LiveDelete, group: FileGroup, inputs: _Inputs, reach: Reach) -> Iterator[str]:
    """Yields the inputs that a delete applies to, unless it will also apply to the outputs."""
    if delete.is_position:
        for path in _named(delete, inputs, reach):
            if delete.sequence_number >= inputs.places[path].sequence_number:
                yield path
    elif delete.sequence_number <= group.sequence_number:
        for path, place in inputs.places.items():
            if delete.may_delete_by_value(place.partition, place.sequence_number):
                yield path


def _named(delete: LiveDelete, inputs: _Inputs, reach: Reach) -> Iterator[str]:
    """Yields the inputs that a position delete names, by any reader's interpretation."""
    only = reach.only(delete.file)
    if only is not None:
        # Readers ignore the partition then.
        yield from inputs.by_key.get(only, ())
        return
    for path, place in inputs.places.items():
        if place.partition == delete.partition and reach.names(delete.file, path):
            yield path
