"""Replaces the inputs of merges by their outputs; readers see no difference.

One snapshot of operation ``replace`` contains all possible replacements. Each attempt loads the
table's head and checks whether each replacement is still possible, from its planned snapshot on
(``conflicts``). Impossible ones are dropped, the others are committed on the condition that the
head is unchanged. After another writer's commit it starts again at the new head; what was read and
written for the refused attempt is reused.

The summary names the replacements, so that a commit with a lost answer, or before the process was
killed, is recognized and not repeated.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertCurrentSchemaId, AssertTableUUID

from arctic_orchestration.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    LakeError,
)
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifest_fields import key_of
from arctic_orchestration.lake.refs import keeping_retention
from arctic_orchestration.lake.replacing.applied_replacements import (
    TASKS,
    HistoryUnreadable,
    made_before,
    tasks_of,
)
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
from arctic_orchestration.lake.replacing.producer import Change, ReplaceFiles, WrittenManifests
from arctic_orchestration.lake.replacing.replacement import Replaced, Replacement, require_names
from arctic_orchestration.lake.replacing.table_head import Head, Place, ReadManifests, Sought
from arctic_orchestration.lake.schema import require_supported_table
from arctic_orchestration.lake.snapshot_history import SharedMetadataTransaction
from arctic_orchestration.lake.supported_formats import require_supported_format
from arctic_orchestration.lake.tables import REFUSED_COMMIT, TRIES, answered, wait_seconds

__all__ = ["TASKS", "Replaced", "Replacement", "replace_files"]

_ATTEMPTS = 100
_LOST_ANSWERS = 5
_LONGEST_WAIT_SECONDS = 2.0


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
        InvalidInput: ids that are empty, contain a comma or are repeated; a group without files.
        CatalogUnavailable: the catalog is down. Nothing was committed.
        LakeError: the storage does not answer, or manifests cannot be read or written. Nothing was
            committed.
    """
    require_names(replacements)
    if not replacements:
        return Replaced(snapshot_id=None, committed=(), conflicts={}, wrong={}, already={})
    require_supported_table(table)
    run = _Replace(table, replacements, dict(properties or {}), before_commit)
    try:
        return run.commit()
    finally:
        run.remove_needless_manifests()


class _NotSent(Exception):
    """The caller prevented the commit; its exception is the cause."""


class _Replace:
    """One call, from the planned snapshots to the committed one."""

    def __init__(
        self,
        table: Table,
        replacements: Sequence[Replacement],
        properties: dict[str, str],
        before_commit: Callable[[], None] | None,
    ) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._uuid = table.metadata.table_uuid
        self._replacements = {one.id: one for one in replacements}
        self._properties = properties
        self._before_commit = before_commit
        self._snapshot_id = table.metadata.new_snapshot_id()
        self._conflicts: dict[str, str] = {}
        self._wrong: dict[str, str] = {}
        self._already: dict[str, int] = {}
        self._unreadable: dict[str, str] = {}
        self._outputs: dict[str, Outputs] = {}
        self._reach = Reach(table.io, table.metadata_location)
        self._needless = NeedlessDeletes(table.io, self._reach)
        self._read = ReadManifests(table.io, _sought(replacements))
        self._manifests: WrittenManifests | None = None
        self._paths: list[str] = []
        self._landed: Snapshot | None = None
        #: A commit was sent, and its result is unknown.
        self._in_doubt = False

    def commit(self) -> Replaced:
        """Commits what is possible, and retries after commits of other writers."""
        lost_answers = refusals = 0
        doubted_head: int | None = None
        for attempt in range(_ATTEMPTS):
            if not self._refresh():
                return self._result()
            self._landed = self._table.snapshot_by_id(self._snapshot_id)
            if self._landed is not None:
                self._in_doubt = False
                return self._result()
            if self._table.metadata.current_snapshot_id != doubted_head:
                # It required a head that is gone, so it can no longer be accepted.
                self._in_doubt = False
            head = Head(self._table, self._read)
            self._recognise(head)
            chosen = self._possible(head)
            if not chosen:
                if self._in_doubt:
                    self._refuse_to_guess(None)
                return self._result()
            try:
                self._attempt(head, chosen)
                self._landed = self._table.snapshot_by_id(self._snapshot_id)
                return self._result()
            except _NotSent as stopped:
                assert stopped.__cause__ is not None
                raise stopped.__cause__
            except CommitFailedException:
                pass
            except REFUSED_COMMIT as error:
                refusals += 1
                self._require_patience(refusals, error)
                time.sleep(wait_seconds(refusals))
            except Exception as error:
                if not self._in_doubt:
                    raise
                doubted_head = self._table.metadata.current_snapshot_id
                lost_answers += 1
                if lost_answers == _LOST_ANSWERS:
                    self._refuse_to_guess(error)
            time.sleep(random.uniform(0.005, min(_LONGEST_WAIT_SECONDS, 0.05 * 1.5**attempt)))
        raise CommitConflict(f"{self._name}: other writers were first {_ATTEMPTS} times")

    def remove_needless_manifests(self) -> None:
        """Removes manifests of refused attempts, unless a commit may still need them."""
        if self._in_doubt:
            return
        needed = set()
        if self._landed is not None:
            needed = {self._landed.manifest_list}
            needed |= {one.manifest_path for one in self._landed.manifests(self._table.io)}
        for path in self._paths:
            if path not in needed:
                try:
                    self._table.io.delete(path)
                except OSError:
                    # It stays as an orphan; the replacements are unaffected.
                    continue

    def _recognise(self, head: Head) -> None:
        try:
            self._already |= made_before(self._table, self._pending(), head, self._read)
        except HistoryUnreadable as error:
            self._already |= error.found
            self._unreadable |= dict.fromkeys(error.unknown, str(error))

    def _attempt(self, head: Head, chosen: Sequence[Replacement]) -> None:
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
        transaction = SharedMetadataTransaction(self._table)
        producer = ReplaceFiles(
            transaction,
            head,
            change,
            {**self._properties, TASKS: ",".join(each.id for each in chosen)},
            snapshot_id=self._snapshot_id,
            earlier=self._manifests,
        )
        try:
            producer.commit()
        except OSError as error:
            raise LakeError(f"{self._name}: manifests cannot be written: {error}") from error
        finally:
            self._paths.extend(producer.paths)
        self._manifests = producer.written
        requirements = (
            *transaction._requirements,
            AssertTableUUID(uuid=self._uuid),
            # These columns were used to check how readers see the outputs.
            AssertCurrentSchemaId(**{"current-schema-id": self._table.metadata.current_schema_id}),
        )
        updates = keeping_retention(transaction._updates, self._table.metadata)
        if self._before_commit is not None:
            try:
                self._before_commit()
            except Exception as error:
                raise _NotSent from error
        doubted_before, self._in_doubt = self._in_doubt, True
        try:
            self._table._do_commit(updates=updates, requirements=requirements)
        except (CommitFailedException, *REFUSED_COMMIT):
            self._in_doubt = doubted_before
            raise
        self._in_doubt = False

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

    def _refresh(self) -> bool:
        """Loads the head; False: the table is not the planned one."""
        gone = "the table was dropped"
        try:
            fresh = answered(lambda: self._table.catalog.load_table(self._table.name()), self._name)
            if fresh.metadata.table_uuid != self._uuid:
                gone = "the table was dropped and made again"
                raise NoSuchTableError(self._name)
        except NoSuchTableError:
            # A commit to a table that is gone can no longer be accepted.
            self._in_doubt = False
            for each in self._pending():
                self._conflicts[each.id] = gone
            return False
        except CatalogUnavailable as error:
            if self._in_doubt:
                self._refuse_to_guess(error)
            raise
        require_supported_format(fresh.metadata.format_version, self._name)
        self._table.metadata = fresh.metadata
        self._table.io = fresh.io
        self._table.metadata_location = fresh.metadata_location
        self._table.config = fresh.config
        return True

    def _require_patience(self, refusals: int, error: Exception) -> None:
        """Gives up on a catalog that has refused too many commits."""
        if refusals < TRIES:
            return
        if self._in_doubt:
            self._refuse_to_guess(error)
        raise CatalogUnavailable(
            f"{self._name}: the catalog refused the commit, tried {TRIES} times: {error}"
        ) from error

    def _refuse_to_guess(self, error: Exception | None) -> None:
        raise CommitUnknown(
            f"{self._name}: the catalog neither confirmed nor refused the commit of snapshot "
            f"{self._snapshot_id}: {error}. Replacing the same files again finds out"
        ) from error

    def _result(self) -> Replaced:
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
