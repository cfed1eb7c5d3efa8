"""Replaces the inputs of merges by their outputs; readers see no difference.

One snapshot of operation ``replace`` contains all possible replacements. Each attempt
(``commit_loop``) checks at the table's head whether each replacement is still possible, from its
planned snapshot on (``conflicts``). Impossible ones are dropped. After another writer's commit,
what was read and written for the refused attempt is reused.

The summary names the replacements, so that a commit with a lost answer, or before the process was
killed, is recognized and not repeated.
"""

from collections.abc import Callable, Mapping, Sequence

from pyiceberg.table import Table

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifest_fields import key_of
from arctic_orchestration.lake.replacing.applied_replacements import (
    TASKS,
    HistoryUnreadable,
    made_before,
    tasks_of,
)
from arctic_orchestration.lake.replacing.commit_loop import CommitLoop
from arctic_orchestration.lake.replacing.conflicts import conflict
from arctic_orchestration.lake.replacing.delete_targets import Reach
from arctic_orchestration.lake.replacing.obsolete_deletes import NeedlessDeletes
from arctic_orchestration.lake.replacing.outputs import (
    Outputs,
    UnreadableFile,
    WrongOutputs,
    checked_outputs,
    schema_conflict,
)
from arctic_orchestration.lake.replacing.producer import Change
from arctic_orchestration.lake.replacing.replacement import Replaced, Replacement, require_names
from arctic_orchestration.lake.replacing.table_head import Head, Place, ReadManifests, Sought
from arctic_orchestration.lake.schema import require_supported_table

__all__ = ["TASKS", "Replaced", "Replacement", "replace_files"]


def replace_files(
    table: Table,
    replacements: Sequence[Replacement],
    *,
    properties: Mapping[str, str] | None = None,
    before_commit: Callable[[], None] | None = None,
) -> Replaced:
    """Commits all possible replacements in one snapshot; ``table`` is refreshed.

    The same snapshot removes deletes that only the replaced files needed.

    Args:
        properties: more entries for the summary of the snapshot.
        before_commit: called right before each commit is sent. When it raises, that commit is not
            sent, and its exception is passed on. An earlier commit of the same call may then have
            succeeded, if its answer was lost; calling again with the same replacements finds out.

    Errors:
        UnsupportedTable: its format or a column's type. Nothing was committed.
        CommitConflict: other writers were first for too long. Nothing was committed; retrying is
            safe.
        CommitUnknown: the catalog neither confirmed nor refused the commit. Calling again with the
            same replacements finds out.
        InvalidInput: ids that are empty, contain a comma or are repeated; a group without files; a
            property of the table that cannot be read.
        CatalogUnavailable: the catalog is down. Nothing was committed.
        LakeError: the storage does not answer, or manifests cannot be read or written. Nothing was
            committed.
    """
    require_names(replacements)
    if not replacements:
        return Replaced(snapshot_id=None, committed=(), conflicts={}, wrong={}, already={})
    require_supported_table(table)
    run = _Replace(table, replacements, dict(properties or {}), before_commit)
    run.commit()
    return run.result()


class _Replace(CommitLoop):
    """One call, from the planned snapshots to the committed one."""

    _again = "Replacing the same files again finds out"

    def __init__(
        self,
        table: Table,
        replacements: Sequence[Replacement],
        properties: dict[str, str],
        before_commit: Callable[[], None] | None,
    ) -> None:
        super().__init__(table, ReadManifests(table.io, _sought(replacements)), before_commit)
        self._replacements = {one.id: one for one in replacements}
        self._properties = properties
        self._conflicts: dict[str, str] = {}
        self._wrong: dict[str, str] = {}
        self._already: dict[str, int] = {}
        self._unreadable: dict[str, str] = {}
        self._outputs: dict[str, Outputs] = {}
        self._reach = Reach(table.io, table.metadata_location)
        self._needless = NeedlessDeletes(table.io, self._reach)

    def _change(self, head: Head) -> tuple[Change, dict[str, str]] | None:
        self._recognise(head)
        chosen = self._possible(head)
        if not chosen:
            return None
        added = [one for each in chosen for one in self._outputs[each.id].added]
        groups = [each.group for each in chosen]
        change = Change(
            added=added,
            removed={
                key_of(place.file): place.manifest
                for group in groups
                for place in self._places(group, head).values()
            }
            | self._needless.find(head, groups, added),
        )
        return change, {**self._properties, TASKS: ",".join(each.id for each in chosen)}

    def _table_is_gone(self, reason: str) -> None:
        for each in self._pending():
            self._conflicts[each.id] = reason

    def _recognise(self, head: Head) -> None:
        try:
            self._already |= made_before(self._table, self._pending(), head, self._read)
        except HistoryUnreadable as error:
            self._already |= error.found
            self._unreadable |= dict.fromkeys(error.unknown, str(error))

    def _possible(self, head: Head) -> list[Replacement]:
        """Returns the possible replacements in this head; records the others with the reason."""
        inputs: set[str] = set()
        outputs: set[str] = set()
        possible = []
        for each in self._pending():
            mine = {file.path for file in each.group.files}
            if reason := self._conflict(each.group, head, inputs):
                self._conflicts[each.id] = reason
                continue
            places = self._places(each.group, head)
            try:
                self._require_new(each, head, outputs)
                if each.id not in self._outputs:
                    self._outputs[each.id] = checked_outputs(
                        self._table,
                        each.group,
                        each.outputs,
                        each.rows_deleted,
                        places,
                        each.sort_order_id,
                    )
                reason = schema_conflict(self._table, self._outputs[each.id], places)
            except WrongOutputs as error:
                self._wrong[each.id] = str(error)
                continue
            except UnreadableFile as error:
                self._unreadable[each.id] = str(error)
                continue
            if reason:
                self._conflicts[each.id] = reason
                continue
            inputs |= mine
            outputs |= set(each.outputs)
            possible.append(each)
        return possible

    def _conflict(self, group: FileGroup, head: Head, taken: set[str]) -> str | None:
        for file in group.files:
            if file.path in taken:
                return f"{file.path} is replaced by another replacement of the same commit"
        return conflict(group, head, self._reach)

    def _require_new(self, each: Replacement, head: Head, taken: set[str]) -> None:
        for path in each.outputs:
            if path in head.places:
                raise WrongOutputs(f"{path} is in the table already")
            if path in taken:
                raise WrongOutputs(f"{path} is an output of another replacement")

    def _pending(self) -> list[Replacement]:
        known = {key for each in self._decided() for key in each}
        return [each for key, each in self._replacements.items() if key not in known]

    def _decided(self) -> tuple[dict[str, str] | dict[str, int], ...]:
        return self._conflicts, self._wrong, self._already, self._unreadable

    def _places(self, group: FileGroup, head: Head) -> dict[str, Place]:
        return {file.path: head.places[file.path][0] for file in group.files}

    def result(self) -> Replaced:
        """Returns what became of each replacement."""
        committed: tuple[str, ...] = ()
        if self._landed is not None:
            # By its summary: an attempt before the last one may have succeeded, with others in it.
            named = tasks_of(self._landed)
            committed = tuple(key for key in self._replacements if key in named)
            for key in committed:
                for other in self._decided():
                    other.pop(key, None)
        return Replaced(
            snapshot_id=None if self._landed is None else self._snapshot_id,
            committed=committed,
            conflicts=self._conflicts,
            wrong=self._wrong,
            already=self._already,
            unreadable=self._unreadable,
        )


def _sought(replacements: Sequence[Replacement]) -> list[Sought]:
    return [
        Sought(path=path, spec_id=each.group.spec_id, sequence_number=number)
        for each in replacements
        for path, number in [
            *((file.path, file.sequence_number) for file in each.group.files),
            *((path, each.group.sequence_number) for path in each.outputs),
        ]
    ]
