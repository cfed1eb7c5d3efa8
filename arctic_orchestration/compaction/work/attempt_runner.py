"""One attempt of a worker at a task: the merge, and its report.

Two rules keep readers from missing a file. Outputs are removed here only while it is certain that
no report was accepted: the committer may otherwise have published them, whatever the answer was,
and only the cleaner, which reads the table, may remove them. And a refused report is looked up: it
may have been accepted the first time, and its answer lost.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.attempt import AttemptState, Claim, Output
from arctic_orchestration.compaction.work.output_paths import directory_of, remove_outputs
from arctic_orchestration.errors import (
    ArcticError,
    CatalogUnavailable,
    DatabaseUnavailable,
    NotFound,
    Refused,
    UnsupportedFile,
    UnsupportedTable,
)
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.java_errors import is_of_java, one_line
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.quantities import format_bytes
from arctic_orchestration.state.database import Database

_log = logging.getLogger("arctic.compaction.worker")

#: the interval between two tries of a report
_RETRY_SECONDS = 1.0

#: why a faultless task is released
_ENDS = "its worker ends"


class _GivenBack(ArcticError):
    """The worker releases its tasks, and the merge has not begun."""


class MergedFiles(Protocol):
    """The outputs of a merge."""

    @property
    def outputs(self) -> Sequence[Output]: ...
    @property
    def rows_in(self) -> int: ...
    @property
    def rows_deleted(self) -> int: ...
    @property
    def rows_out(self) -> int: ...
    @property
    def way(self) -> str: ...
    @property
    def because(self) -> str: ...
    @property
    def sort_order_id(self) -> int | None: ...


class Merge(Protocol):
    """Merges the files of a group into a directory, as ``lake.merging.merge`` does with a Spark."""

    def __call__(
        self, table: Table, group: FileGroup, directory: str, *, target_bytes: int
    ) -> MergedFiles: ...


class What(StrEnum):
    """An event of a task in a worker."""

    CLAIMED = "claimed"
    MERGED = "merged"
    FAILED = "failed"
    LOST = "lost"
    RELEASED = "released"


class Blame(StrEnum):
    """What a failed attempt means for its worker."""

    #: the cause is the task itself, or unknown
    TASK = "task"
    #: a shared service did not answer: it may recover soon
    SURROUNDINGS = "surroundings"
    #: the worker's engine for merging is gone, and will not come back
    WORKER = "worker"


@dataclass(kw_only=True)
class ClaimedTask:
    """A task that a worker has claimed."""

    claim: Claim
    #: until then, by this machine's steady clock, the lease is certainly valid
    trusted_until: float
    lost: threading.Event = field(default_factory=threading.Event)
    #: another thread replaces the one that merges it
    replaced: bool = False


@dataclass(frozen=True, kw_only=True)
class AttemptResult:
    """The result of an attempt, with a text for people."""

    what: What
    text: str
    blame: Blame | None = None


def attempt(
    held: ClaimedTask,
    database: Database,
    catalog: Catalog,
    merge: Merge,
    gives_back: Callable[[], bool],
) -> AttemptResult:
    """Merges the files of a claimed task, and reports the result. Never raises an Exception.

    Args:
        held: the claim; another thread renews its lease meanwhile.
        database: the state database.
        catalog: the catalog of the table.
        merge: merges files.
        gives_back: whether the worker releases its tasks; a failed merge is then released.
    """
    return _Attempt(held, database, catalog, merge, gives_back).outcome()


class _Attempt:
    def __init__(
        self,
        held: ClaimedTask,
        database: Database,
        catalog: Catalog,
        merge: Merge,
        gives_back: Callable[[], bool],
    ) -> None:
        self._held = held
        self._claim = held.claim
        self._database = database
        self._catalog = catalog
        self._merge = merge
        self._gives_back = gives_back
        self._table: Table | None = None
        self._directory = ""

    def outcome(self) -> AttemptResult:
        try:
            done = self._merged()
        except Exception as error:
            # Outputs first: a full disk must not stay full while others try.
            self._remove()
            return self._failed(error)
        if self._held.lost.is_set():
            self._remove()
            return self._lost("its lease was not renewed in time")
        return self._reported(done)

    def _merged(self) -> MergedFiles:
        self._go_on()
        name = self._claim.task.table
        self._table = load_table(self._catalog, name)
        self._directory = directory_of(self._table, self._claim.directory)
        policy = Policy.of(self._table.properties, name)
        self._insist(self._writes)
        self._go_on()
        return self._merge(
            self._table, self._claim.group, self._directory, target_bytes=policy.target_size
        )

    def _go_on(self) -> None:
        """Ends the attempt before its merge, if its worker now releases its tasks."""
        if self._gives_back():
            raise _GivenBack(_ENDS)

    def _writes(self, tx: sa.Connection) -> None:
        claim = self._claim
        if not attempts.writes_to(tx, claim.attempt_id, claim.token, self._directory):
            raise Refused("its lease was over before it began to write")

    def _reported(self, done: MergedFiles) -> AttemptResult:
        claim = self._claim

        def report(tx: sa.Connection) -> None:
            attempts.merged(
                tx,
                claim.attempt_id,
                claim.token,
                outputs=done.outputs,
                rows_in=done.rows_in,
                rows_deleted=done.rows_deleted,
                rows_out=done.rows_out,
                way=done.way,
                because=done.because,
                sort_order_id=done.sort_order_id,
            )

        # From here on it may have been accepted: see the module's text.
        try:
            self._insist(report)
        except Exception as error:
            state = self._state()
            if state is AttemptState.LOST:
                # That state is final, and only a live attempt reaches it.
                self._remove()
            if state not in (AttemptState.MERGED, AttemptState.COMMITTED):
                if not isinstance(error, Refused):
                    _log.error("task %s is not reported", claim.task.id, exc_info=error)
                return self._lost(_text_of(error))
        size = sum(output.size for output in done.outputs)
        return AttemptResult(
            what=What.MERGED,
            text=f"{claim.task.table}: {len(claim.group.files)} files → {len(done.outputs)}, "
            f"{format_bytes(claim.group.bytes)} → {format_bytes(size)} ({done.way})",
        )

    def _state(self) -> AttemptState | None:
        """Returns the attempt's state in the database; none: it does not answer."""
        try:
            with self._database.read() as tx:
                found = attempts.attempts_of(tx, self._claim.task.id)
        except Exception as error:
            _log.warning("the state of task %s is unknown: %s", self._claim.task.id, error)
            return None
        return next((one.state for one in found if one.id == self._claim.attempt_id), None)

    def _failed(self, error: Exception) -> AttemptResult:
        claim, blame = self._claim, _blame_of(error)
        if isinstance(error, Refused) or self._held.lost.is_set():
            return self._lost(_text_of(error))
        text = _text_of(error)
        if not isinstance(error, ArcticError):
            # A JVM's stack helps few people; Python's is for developers.
            stack = None if is_of_java(error) else error
            _log.warning("task %s failed: %s", claim.task.id, text, exc_info=stack)
        try:
            if blame is not Blame.TASK or self._gives_back():
                reason = text if blame is not Blame.TASK else _ENDS
                self._insist(
                    lambda tx: attempts.release(tx, claim.attempt_id, claim.token, reason=reason)
                )
                return AttemptResult(
                    what=What.RELEASED,
                    text=f"{claim.task.table}: given back: {reason}",
                    blame=blame if blame is not Blame.TASK else None,
                )
            bad_files = isinstance(error, UnsupportedFile)
            final = isinstance(error, UnsupportedTable) and not bad_files
            state: list[TaskState] = []

            def report(tx: sa.Connection) -> None:
                state.append(
                    attempts.failed(
                        tx, claim.attempt_id, claim.token, text, final=final, bad_files=bad_files
                    )
                )

            self._insist(report)
        except Exception as unsaid:
            if not isinstance(unsaid, Refused):
                _log.error("task %s is not reported", claim.task.id, exc_info=unsaid)
            return self._lost(_text_of(unsaid))
        return AttemptResult(
            what=What.FAILED, text=f"{claim.task.table}: {state[-1]}: {text}", blame=Blame.TASK
        )

    def _lost(self, text: str) -> AttemptResult:
        return AttemptResult(what=What.LOST, text=f"{self._claim.task.table}: {text}")

    def _insist(self, report: Callable[[sa.Connection], None]) -> None:
        """Retries the report until the database answers or the lease may have expired.

        Errors:
            Refused: the attempt has lost the task, or it could not be reported in time.
        """
        while True:
            try:
                with self._database.begin() as tx:
                    report(tx)
                return
            except DatabaseUnavailable as error:
                if self._held.lost.is_set() or time.monotonic() > self._held.trusted_until:
                    raise Refused(f"it could not be reported in time: {error}") from error
                _log.warning("the report is retried: %s", error)
                self._held.lost.wait(_RETRY_SECONDS)

    def _remove(self) -> None:
        if self._table is None or not self._directory:
            return
        try:
            remove_outputs(self._table, self._directory)
        except Exception as error:
            # The cleaner removes it later.
            _log.warning("%s could not be removed: %s", self._directory, error)


def _blame_of(error: Exception) -> Blame:
    for cause in _causes(error):
        name, text = type(cause).__name__, str(cause)
        if name == "Py4JNetworkError" or any(one in text for one in _GONE):
            return Blame.WORKER
    if isinstance(error, CatalogUnavailable | DatabaseUnavailable | NotFound):
        # The planner handles a missing table, and cancels its tasks.
        return Blame.SURROUNDINGS
    return Blame.TASK


#: The messages of a JVM, a Spark in it, or a Connect server or its session, that has ended.
_GONE = (
    "stopped SparkContext",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "while trying to connect to the Java server",
    "StatusCode.UNAVAILABLE",
    "[INVALID_HANDLE.SESSION_",
    "[NO_ACTIVE_SESSION]",
)


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _text_of(error: Exception) -> str:
    if isinstance(error, ArcticError):
        return one_line(str(error))
    return one_line(f"{type(error).__name__}: {error}")
