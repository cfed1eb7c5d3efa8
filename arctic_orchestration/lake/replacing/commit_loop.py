"""Commits a snapshot of operation ``replace``, and tries again after commits of other writers.

Each attempt loads the table's head and asks what to change in it. The commit is sent on the
condition that the head is unchanged. A commit with a lost answer is recognized by its snapshot's
id, which all attempts share.
"""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

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
from arctic_orchestration.lake.catalog_answers import REFUSED_COMMIT, TRIES, answered, wait_seconds
from arctic_orchestration.lake.refs import keeping_retention
from arctic_orchestration.lake.replacing.producer import Change, ReplaceFiles, WrittenManifests
from arctic_orchestration.lake.replacing.table_head import Head, ReadManifests
from arctic_orchestration.lake.snapshot_history import SharedMetadataTransaction
from arctic_orchestration.lake.supported_formats import require_supported_format
from arctic_orchestration.lake.tables import is_locked

_ATTEMPTS = 100
_LOST_ANSWERS = 5
_LONGEST_WAIT_SECONDS = 2.0


class _NotSent(Exception):
    """The caller prevented the commit; its exception is the cause."""


class CommitLoop(ABC):
    """The attempts of one call to commit one snapshot.

    Args:
        table: refreshed by each attempt.
        read: the cache of the table's manifests.
        before_commit: called right before each commit is sent; an exception prevents it.
    """

    #: of the message of ``CommitUnknown``: what the caller can do
    _again: ClassVar[str]

    def __init__(
        self, table: Table, read: ReadManifests, before_commit: Callable[[], None] | None
    ) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._uuid = table.metadata.table_uuid
        self._read = read
        self._before_commit = before_commit
        self._snapshot_id = table.metadata.new_snapshot_id()
        self._manifests: WrittenManifests | None = None
        self._paths: list[str] = []
        self._landed: Snapshot | None = None
        #: A commit was sent, and its result is unknown.
        self._in_doubt = False

    @abstractmethod
    def _change(self, head: Head) -> tuple[Change, dict[str, str]] | None:
        """Returns what to change in a head, and entries for the summary; None: nothing."""

    @abstractmethod
    def _table_is_gone(self, reason: str) -> None:
        """Records that the table was dropped."""

    def commit(self) -> None:
        """Commits what is possible, and removes the manifests of refused attempts.

        Errors:
            CommitConflict: other writers were first for too long. Nothing was committed.
            CommitUnknown: the catalog neither confirmed nor refused the commit.
            CatalogUnavailable: the catalog is down. Nothing was committed.
            LakeError: manifests cannot be read or written. Nothing was committed.
        """
        try:
            self._commit()
        finally:
            self._remove_needless_manifests()

    def _commit(self) -> None:
        lost_answers = refusals = 0
        doubted_head: int | None = None
        for attempt in range(_ATTEMPTS):
            if not self._refresh():
                return
            self._landed = self._table.snapshot_by_id(self._snapshot_id)
            if self._landed is not None:
                self._in_doubt = False
                return
            if self._table.metadata.current_snapshot_id != doubted_head:
                # It required a head that is gone, so it can no longer be accepted.
                self._in_doubt = False
            head = Head(self._table, self._read)
            wanted = self._change(head)
            if wanted is None:
                if self._in_doubt:
                    self._refuse_to_guess(None)
                return
            try:
                self._attempt(head, *wanted)
                self._landed = self._table.snapshot_by_id(self._snapshot_id)
                return
            except _NotSent as stopped:
                assert stopped.__cause__ is not None
                raise stopped.__cause__
            except CommitFailedException as error:
                # Of a client that was ended, it lasts for minutes.
                refusals += is_locked(error)
                self._require_patience(refusals, error)
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

    def _remove_needless_manifests(self) -> None:
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
                    # It stays as an orphan; the table is unaffected.
                    continue

    def _attempt(self, head: Head, change: Change, properties: dict[str, str]) -> None:
        transaction = SharedMetadataTransaction(self._table)
        producer = ReplaceFiles(
            transaction,
            head,
            change,
            properties,
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
            # Outputs of merges were checked by these columns.
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
            self._table_is_gone(gone)
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
            f"{self._snapshot_id}: {error}. {self._again}"
        ) from error
