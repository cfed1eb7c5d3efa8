"""The live files of one partition, sorted by what can be done about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arctic_orchestration.compaction.planning.packing import in_order, too_large
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, LiveFile
from arctic_orchestration.lake.file_sizes import outputs_wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionFiles:
    """Files of one partition of one spec, in the order in which the table got them."""

    files: tuple[LiveFile, ...]
    fragments: tuple[LiveFile, ...]
    undersized: tuple[LiveFile, ...]
    oversized: tuple[LiveFile, ...]
    with_deletes: tuple[LiveFile, ...]
    #: distinct delete files that apply to any of them
    deletes: tuple[DeleteFile, ...]
    #: files that are in none of the others but the first: see :meth:`for_tasks`
    too_large: tuple[LiveFile, ...] = ()

    @classmethod
    def of(cls, files: Sequence[LiveFile], policy: Policy) -> "PartitionFiles":
        """Sorts the files by the sizes of the policy."""
        ordered = in_order(files)
        return cls(
            files=tuple(ordered),
            fragments=tuple(file for file in ordered if file.size < policy.fragment_size),
            undersized=tuple(
                file for file in ordered if policy.fragment_size <= file.size < policy.done_size
            ),
            oversized=tuple(
                file
                for file in ordered
                if file.size > policy.split_size
                # One row cannot be split.
                and file.rows > 1
                and outputs_wanted(file.size, policy.target_size, files=1) > 1
            ),
            with_deletes=tuple(file for file in ordered if file.deletes),
            deletes=distinct_deletes(ordered),
        )

    def for_tasks(self, policy: Policy) -> "PartitionFiles":
        """Without those that no task may read, which stay as they are whatever is planned.

        Were they a reason for a major, they would be one at each plan, and the small files beside
        them would be written anew each time.
        """
        large = too_large(self.files, policy.max_task_size)
        if not large:
            return self
        paths = {file.path for file in large}
        others = PartitionFiles.of([file for file in self.files if file.path not in paths], policy)
        # The share of deleted rows is that of the whole partition.
        return replace(others, files=self.files, too_large=large)

    @property
    def bytes(self) -> int:
        """The size of the data files."""
        return sum(file.size for file in self.files)

    @property
    def deleted_share(self) -> float:
        """Which share of the rows is deleted; an estimate.

        The rows of delete files are counted: an equality delete may delete several rows or none.
        """
        rows = sum(file.rows for file in self.files)
        deleted = sum(delete.rows for delete in self.deletes)
        return min(1.0, deleted / rows) if rows else 0.0

    @property
    def is_estimate(self) -> bool:
        """Whether :attr:`deleted_share` rests on equality deletes."""
        return any(delete.kind is DeleteKind.EQUALITY for delete in self.deletes)


def distinct_deletes(files: Sequence[LiveFile]) -> tuple[DeleteFile, ...]:
    """The delete files that apply to any of the files, in the order of their paths."""
    # Files of one commit often have the very same tuple of deletes, thousands of them.
    tuples = {id(file.deletes): file.deletes for file in files if file.deletes}
    found = {delete.path: delete for deletes in tuples.values() for delete in deletes}
    return tuple(found[path] for path in sorted(found))
