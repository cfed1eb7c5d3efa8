"""Adds the rows of a Spark DataFrame to an Iceberg table, atomically and once.

An append writes its files first and then retries their commit until it is first:

1. Load the table's head. If it contains this append, or its ``once`` key, the work is done.
2. Plan the replaced rows, against exactly this head.
3. Commit on the condition that the head is unchanged. A refusal leads back to 1.

A lost answer also leads back to 1, and that is safe: the lost commit and the next one each require
their own head, and the later one finds the other in the history. Files are removed only when it is
known that no snapshot contains them.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import ROWS_MUST_MATCH, _StrictMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId, AssertTableUUID
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    UnsupportedTable,
)
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.appending import AppendFiles
from arctic_orchestration.lake.catalog_answers import REFUSED_COMMIT, TRIES, answered, wait_seconds
from arctic_orchestration.lake.data_files import remove_directory, write_files
from arctic_orchestration.lake.filters import filter_column, null_matches_nothing
from arctic_orchestration.lake.partitioning import require_supported_spec
from arctic_orchestration.lake.refs import keeping_retention
from arctic_orchestration.lake.row_lineage import FIRST_VERSION
from arctic_orchestration.lake.schema import require_fitting, require_supported
from arctic_orchestration.lake.session import require_lake_session
from arctic_orchestration.lake.snapshot_history import SharedMetadataTransaction, ancestors
from arctic_orchestration.lake.supported_formats import require_supported_metadata
from arctic_orchestration.lake.table_properties import bool_property, require_commit_properties
from arctic_orchestration.lake.table_reader import plan, require_whole_files, rows_of
from arctic_orchestration.lake.tables import is_locked

#: Keys of the snapshot's summary.
APPEND_ID = "arctic.append.id"
ONCE = "arctic.append.once"
_FILES, _ROWS, _BYTES = "arctic.append.files", "arctic.append.rows", "arctic.append.bytes"

_ATTEMPTS = 100
_LOST_ANSWERS = 5
_LONGEST_WAIT_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Appended:
    """The result of an append."""

    snapshot_id: int
    files: int
    rows: int
    bytes: int
    #: False: the ``once`` key was in the table's history, and nothing was written.
    written: bool


def append(
    spark: SparkSession,
    dataframe: DataFrame,
    table: Table,
    *,
    replacing: BooleanExpression | None = None,
    once: str | None = None,
    before_commit: Callable[[], object] | None = None,
) -> Appended:
    """Appends the rows in one snapshot; ``table`` is refreshed. One Spark job.

    Args:
        dataframe: its columns have the names of the table's, in any order; optional ones may be
            missing, smaller numbers are widened.
        replacing: matching rows of the table are deleted in the same snapshot, including rows that
            other processes add meanwhile. A null matches no comparison.
        once: an append does nothing if its key is in the history of the table's head. The key is
            forgotten when its snapshot expires.
        before_commit: called when everything is written, right before each attempt to commit. An
            exception ends the append: a run that lost its lease while Spark worked commits nothing.

    Errors:
        UnsupportedTable: the format, a column's type or a transform is unsupported, rows to replace
            are in a file with deletes, or rows of a table of format 3 are to be replaced. Nothing
            was written.
        InvalidInput: a property of the table cannot be read. Nothing was committed.
        SchemaMismatch: the rows do not fit the columns, or a year by which the table is partitioned
            is not from 1 to 9999. Nothing was committed.
        CommitConflict: columns or partitions were changed meanwhile, or other writers were first
            for too long. Nothing was committed; retrying is safe.
        CatalogUnavailable: the catalog did not answer, or refused the commit, again and again.
            Nothing was committed.
        CommitUnknown: the catalog neither confirmed nor refused the commit. The files still exist;
            appending again is safe with the same ``once`` key.
    """
    require_lake_session(spark)
    name = ".".join(table.name())
    answered(table.refresh, name)
    require_supported_metadata(table)
    require_supported(table.schema(), name)
    require_supported_spec(table.spec(), table.schema(), name)
    require_commit_properties(table.properties)
    if replacing is not None and table.format_version >= FIRST_VERSION:
        raise UnsupportedTable(
            f"{name}: rows of a table of format 3 cannot be replaced: the others in their files "
            "would lose their row ids"
        )
    require_fitting(dataframe.schema, table.schema(), name)
    if once is not None and (earlier := _recorded(table, ONCE, once)):
        return _appended(earlier, written=False)
    run = _Append(spark, table, replacing, once, before_commit)
    try:
        return run.commit(write_files(dataframe, table, f"{run.directory}/rows"))
    finally:
        if not run.landed and not run.in_doubt:
            remove_directory(table, run.directory)


class _Append:
    """One append, from its files to its snapshot."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        replacing: BooleanExpression | None,
        once: str | None,
        before_commit: Callable[[], object] | None,
    ) -> None:
        self.landed = False
        #: A commit was sent, and its result is unknown.
        self.in_doubt = False
        self._id = new_id(utc_now())
        self.directory = table.location_provider().new_data_location(f"append-{self._id}")
        self._spark = spark
        self._table = table
        self._planned = table.metadata
        self._replacing = None if replacing is None else null_matches_nothing(replacing)
        self._once = once
        self._before_commit = before_commit
        self._forbidden: Exception | None = None
        self._rewritten: tuple[frozenset[str], str, list[DataFile]] = (frozenset(), "", [])

    def commit(self, added: list[DataFile]) -> Appended:
        """Commits the files; retries after commits of other writers."""
        lost_answers = refusals = 0
        doubted_head: int | None = None
        for attempt in range(_ATTEMPTS):
            self._refresh()
            if snapshot := _recorded(self._table, APPEND_ID, self._id):
                self.landed = True
                return _appended(snapshot, written=True)
            if self._table.metadata.current_snapshot_id != doubted_head:
                # It required a head that is gone, so it can no longer be accepted.
                self.in_doubt = False
            if self._once is not None and (other := _recorded(self._table, ONCE, self._once)):
                return _appended(other, written=False)
            self._require_same_plan()
            try:
                self._attempt(added)
            except (CommitFailedException, ValidationException) as error:
                if error is self._forbidden:
                    raise
                # Of a client that was ended, it lasts for minutes.
                refusals += isinstance(error, CommitFailedException) and is_locked(error)
                self._require_patience(refusals, error)
            except REFUSED_COMMIT as error:
                refusals += 1
                self._require_patience(refusals, error)
                time.sleep(wait_seconds(refusals))
            except Exception as error:
                if not self.in_doubt or error is self._forbidden:
                    raise
                doubted_head = self._table.metadata.current_snapshot_id
                lost_answers += 1
                if lost_answers == _LOST_ANSWERS:
                    self._refuse_to_guess(error)
            time.sleep(random.uniform(0.005, min(_LONGEST_WAIT_SECONDS, 0.05 * 1.5**attempt)))
        raise CommitConflict(
            f"{'.'.join(self._table.name())}: other writers were first {_ATTEMPTS} times"
        )

    def _attempt(self, added: list[DataFile]) -> None:
        removed, kept = self._replaced()
        self._run_before_commit()
        table = self._table
        transaction = SharedMetadataTransaction(table)
        producer = self._producer(transaction, self._summary(added), overwrites=bool(removed))
        for file in removed:
            producer.delete_data_file(file)
        for file in (*added, *kept):
            producer.append_data_file(file)
        refused = True
        doubted_before = self.in_doubt
        try:
            producer.commit()
            requirements = (
                *transaction._requirements,
                AssertTableUUID(uuid=self._planned.table_uuid),
                AssertCurrentSchemaId(**{"current-schema-id": self._planned.current_schema_id}),
                AssertDefaultSpecId(**{"default-spec-id": self._planned.default_spec_id}),
            )
            self.in_doubt, refused = True, False
            updates = keeping_retention(transaction._updates, table.metadata)
            table._do_commit(updates=updates, requirements=requirements)
        except (CommitFailedException, *REFUSED_COMMIT):
            self.in_doubt, refused = doubted_before, True
            raise
        finally:
            if refused:
                producer._clean_all_uncommitted()

    def _producer(
        self, transaction: Transaction, summary: dict[str, str], *, overwrites: bool
    ) -> _SnapshotProducer[Any]:
        if self._table.format_version >= FIRST_VERSION:
            assert not overwrites
            return AppendFiles(transaction, summary)
        update = transaction.update_snapshot(snapshot_properties=summary)
        merging = bool_property(
            self._table.properties,
            TableProperties.MANIFEST_MERGE_ENABLED,
            TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
        )
        if overwrites:
            return update.overwrite()
        return update.merge_append() if merging else update.fast_append()

    def _run_before_commit(self) -> None:
        if self._before_commit is None:
            return
        try:
            self._before_commit()
        except Exception as error:
            self._forbidden = error
            raise

    def _replaced(self) -> tuple[list[DataFile], list[DataFile]]:
        """Returns the replaced files, and the files with their remaining rows."""
        if self._replacing is None:
            return [], []
        tasks = plan(self._table, self._replacing)
        schema = self._table.schema()
        strict = _StrictMetricsEvaluator(schema, self._replacing).eval
        partial = [
            task
            for task in tasks
            if task.residual != AlwaysTrue() and not _matches_whole(strict, task.file)
        ]
        return [task.file for task in tasks], self._rows_that_stay(partial)

    def _rows_that_stay(self, partial: list[FileScanTask]) -> list[DataFile]:
        assert self._replacing is not None
        # Another writer may have deleted rows of files that an earlier attempt has rewritten.
        require_whole_files(self._table, partial)
        paths = frozenset(task.file.file_path for task in partial)
        known, directory, files = self._rewritten
        if paths != known:
            if directory:
                remove_directory(self._table, directory)
            directory = f"{self.directory}/stay-{new_id(utc_now())}"
            schema = self._table.schema()
            rows = rows_of(self._spark, self._table, schema, partial)
            stay = rows.where(~filter_column(self._replacing, schema))
            files = write_files(stay, self._table, directory) if partial else []
            self._rewritten = (paths, directory, files)
        return files

    def _summary(self, added: list[DataFile]) -> dict[str, str]:
        properties = {
            APPEND_ID: self._id,
            _FILES: str(len(added)),
            _ROWS: str(sum(file.record_count for file in added)),
            _BYTES: str(sum(file.file_size_in_bytes for file in added)),
        }
        return properties if self._once is None else properties | {ONCE: self._once}

    def _refresh(self) -> None:
        try:
            answered(self._table.refresh, ".".join(self._table.name()))
        except Exception as error:
            if self.in_doubt:
                self._refuse_to_guess(error)
            raise

    def _require_patience(self, refusals: int, error: Exception) -> None:
        """Gives up on a catalog that has refused too many commits."""
        if error is self._forbidden:
            raise error
        if refusals < TRIES:
            return
        if self.in_doubt:
            self._refuse_to_guess(error)
        raise CatalogUnavailable(
            f"{'.'.join(self._table.name())}: the catalog refused the commit, tried {TRIES} "
            f"times: {error}"
        ) from error

    def _refuse_to_guess(self, error: Exception) -> None:
        raise CommitUnknown(
            f"{'.'.join(self._table.name())}: the catalog neither confirmed nor refused the commit "
            f"of append {self._id}: {error}. A snapshot whose summary has {APPEND_ID}={self._id} "
            f"holds it; otherwise no table owns the files in {self.directory}"
        ) from error

    def _require_same_plan(self) -> None:
        now, then = self._table.metadata, self._planned
        if now.table_uuid != then.table_uuid:
            what = "the table was dropped and made again"
        elif now.current_schema_id != then.current_schema_id:
            what = "the columns were changed"
        elif now.default_spec_id != then.default_spec_id:
            what = "the partitions were changed"
        else:
            return
        raise CommitConflict(f"{'.'.join(self._table.name())}: {what} during the append; try again")


def _matches_whole(strict: Callable[[DataFile], bool], file: DataFile) -> bool:
    """Returns whether all rows of a file are known to match, by its statistics."""
    try:
        return strict(file) == ROWS_MUST_MATCH
    except ValueError:
        # pyiceberg does not find the fields of structs: the rows decide.
        return False


def _recorded(table: Table, key: str, value: str) -> Snapshot | None:
    """Returns the snapshot in the head's history whose summary has the key with that value."""
    for snapshot in ancestors(table.metadata, table.metadata.current_snapshot_id):
        if snapshot.summary and snapshot.summary.additional_properties.get(key) == value:
            return snapshot
    return None


def _appended(snapshot: Snapshot, *, written: bool) -> Appended:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return Appended(
        snapshot_id=snapshot.snapshot_id,
        files=int(summary.get(_FILES, 0)),
        rows=int(summary.get(_ROWS, 0)),
        bytes=int(summary.get(_BYTES, 0)),
        written=written,
    )
