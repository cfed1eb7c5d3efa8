"""The live files of one partition, classified by what can be done with them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arctic_orchestration.compaction.planning.packing import in_order, too_large
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, LiveFile
from arctic_orchestration.lake.file_sizes import outputs_wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionFiles:
    """Files of one partition of one spec, in the order in which the table received them."""

    files: tuple[LiveFile, ...]
    fragments: tuple[LiveFile, ...]
    undersized: tuple[LiveFile, ...]
    oversized: tuple[LiveFile, ...]
    with_deletes: tuple[LiveFile, ...]
    #: distinct delete files that apply to any of the files
    deletes: tuple[DeleteFile, ...]
    #: files that are in no other field than ``files``: see :meth:`for_tasks`
    too_large: tuple[LiveFile, ...] = ()

    @classmethod
    def of(cls, files: Sequence[LiveFile], policy: Policy) -> "PartitionFiles":
        """Classifies the files by the sizes of the policy."""
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
        """Returns the files without those that no task may read, which stay unchanged in any plan.

        If they counted for a major, each plan would contain one, and the small files beside them
        would be rewritten each time.
        """
        large = too_large(self.files, policy.max_task_size)
        if not large:
            return self
        paths = {file.path for file in large}
        others = PartitionFiles.of([file for file in self.files if file.path not in paths], policy)
        # The share of deleted rows is that of the whole partition.
        return replace(others, files=self.files, too_large=large)

    @property
    def deleted_share(self) -> float:
        """The share of deleted rows; an estimate.

        The rows of delete files are counted: an equality delete may delete several rows or none.
        """
        rows = sum(file.rows for file in self.files)
        deleted = sum(delete.rows for delete in self.deletes)
        return min(1.0, deleted / rows) if rows else 0.0

    @property
    def is_estimate(self) -> bool:
        """Whether :attr:`deleted_share` includes equality deletes."""
        return any(delete.kind is DeleteKind.EQUALITY for delete in self.deletes)


def distinct_deletes(files: Sequence[LiveFile]) -> tuple[DeleteFile, ...]:
    """Returns the delete files that apply to any of the files, sorted by path and offset."""
    # Files of one commit often share the very same tuple of deletes, thousands of them.
    tuples = {id(file.deletes): file.deletes for file in files if file.deletes}
    found = {delete.key: delete for deletes in tuples.values() for delete in deletes}
    return tuple(found[key] for key in sorted(found))
