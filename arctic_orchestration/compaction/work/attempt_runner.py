"""One attempt of a worker at a task: the merge, and its report.

Two rules keep readers from missing a file. Outputs are removed here only while it is certain that
no report was accepted: the committer may otherwise have published them, whatever the answer was,
and only the cleaner, which reads the table, may remove them. And a refused report is looked up: it
may have been accepted the first time, and its answer lost.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol, TypeVar

from pyiceberg.table import Table

from arctic_orchestration.compaction.queue.claim_order import WORKER_ENDS
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.compaction.work.output_paths import remove_outputs
from arctic_orchestration.compaction.work.task_source import (
    ClaimedTask,
    MergedFiles,
    Place,
    TaskSource,
)
from arctic_orchestration.errors import (
    ArcticError,
    CatalogUnavailable,
    ConfigurationError,
    DatabaseUnavailable,
    InvalidInput,
    NotFound,
    Refused,
    RequestRefused,
    StoreRefused,
    UnsupportedFile,
    UnsupportedTable,
    causes,
    described,
)
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.java_errors import is_of_java, one_line
from arctic_orchestration.lake.store_errors import explained
from arctic_orchestration.quantities import format_bytes

_log = logging.getLogger("arctic.compaction.worker")
_T = TypeVar("_T")

#: the interval between two tries of a report
_RETRY_SECONDS = 1.0

#: the answers of a service to a report that is refused for what it says
_INVALID = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


class _GivenBack(ArcticError):
    """The worker releases its tasks, and the merge has not begun."""


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


@dataclass(frozen=True, kw_only=True)
class AttemptResult:
    """The result of an attempt, with a text for people."""

    what: What
    text: str
    blame: Blame | None = None


def attempt(
    held: ClaimedTask,
    source: TaskSource,
    merge: Merge,
    gives_back: Callable[[], bool],
) -> AttemptResult:
    """Merges the files of a claimed task, and reports the result. Never raises an Exception.

    Args:
        held: the claim; another thread renews its lease meanwhile.
        source: gave the task, and takes the report.
        merge: merges files.
        gives_back: whether the worker releases its tasks; a failed merge is then released.
    """
    return _Attempt(held, source, merge, gives_back).outcome()


@dataclass
class _Attempt:
    _held: ClaimedTask
    _source: TaskSource
    _merge: Merge
    _gives_back: Callable[[], bool]
    _place: Place | None = None

    def __post_init__(self) -> None:
        self._claim = self._held.claim

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
        place = self._place = self._insist(lambda: self._source.place(self._claim))
        self._go_on()
        return self._merge(
            place.table, self._claim.group, place.directory, target_bytes=place.target_bytes
        )

    def _go_on(self) -> None:
        """Ends the attempt before its merge, if its worker now releases its tasks."""
        if self._gives_back():
            raise _GivenBack(WORKER_ENDS)

    def _reported(self, done: MergedFiles) -> AttemptResult:
        claim = self._claim
        # From here on it may have been accepted: see the module's text.
        try:
            self._insist(lambda: self._source.merged(claim, done))
        except Exception as error:
            state = self._state()
            if state is AttemptState.LOST:
                # That state is final, and only a live attempt reaches it.
                self._remove()
            if state is AttemptState.LIVE and _is_invalid(error):
                # Not repeated, it would count as silent, and be merged again without this reason.
                return self._failed(error)
            if state not in (AttemptState.MERGED, AttemptState.COMMITTED):
                if not isinstance(error, Refused):
                    _log.error("task %s is not reported", claim.task.id, exc_info=error)
                return self._lost(text_of(error))
        size = sum(output.size for output in done.outputs)
        return AttemptResult(
            what=What.MERGED,
            text=f"{claim.task.table}: {len(claim.group.files)} files → {len(done.outputs)}, "
            f"{format_bytes(claim.group.bytes)} → {format_bytes(size)} ({done.way})",
        )

    def _state(self) -> AttemptState | None:
        """Returns the attempt's state in the database; none: it is unknown."""
        try:
            return self._source.state(self._claim)
        except Exception as error:
            _log.warning("the state of task %s is unknown: %s", self._claim.task.id, error)
            return None

    def _failed(self, error: Exception) -> AttemptResult:
        if self._place is not None:
            error = explained(error, self._place.table.io)
        claim, blame = self._claim, blame_of(error)
        if isinstance(error, Refused) or self._held.lost.is_set():
            return self._lost(text_of(error))
        text = text_of(error)
        if not isinstance(error, ArcticError):
            # A JVM's stack helps few people; Python's is for developers.
            stack = None if is_of_java(error) else error
            _log.warning("task %s failed: %s", claim.task.id, text, exc_info=stack)
        try:
            if blame is not Blame.TASK or self._gives_back():
                reason = text if blame is not Blame.TASK else WORKER_ENDS
                self._insist(lambda: self._source.release(claim, reason))
                return AttemptResult(
                    what=What.RELEASED,
                    text=f"{claim.task.table}: given back: {reason}",
                    blame=blame if blame is not Blame.TASK else None,
                )
            bad_files = isinstance(error, UnsupportedFile)
            final = isinstance(error, UnsupportedTable) and not bad_files
            state = self._insist(
                lambda: self._source.failed(claim, text, final=final, bad_files=bad_files)
            )
        except Exception as unsaid:
            if not isinstance(unsaid, Refused):
                _log.error("task %s is not reported", claim.task.id, exc_info=unsaid)
            return self._lost(text_of(unsaid))
        return AttemptResult(
            what=What.FAILED, text=f"{claim.task.table}: {state}: {text}", blame=Blame.TASK
        )

    def _lost(self, text: str) -> AttemptResult:
        return AttemptResult(what=What.LOST, text=f"{self._claim.task.table}: {text}")

    def _insist(self, report: Callable[[], _T]) -> _T:
        """Retries the report until it is answered or the lease may have expired.

        Errors:
            Refused: the attempt has lost the task, or it could not be reported in time.
        """
        while True:
            try:
                return report()
            except (DatabaseUnavailable, RequestRefused) as error:
                # The token of the worker may be replaced at this moment.
                if isinstance(error, RequestRefused) and error.status != HTTPStatus.UNAUTHORIZED:
                    raise
                if self._held.lost.is_set() or time.monotonic() > self._held.trusted_until:
                    raise Refused(f"it could not be reported in time: {error}") from error
                _log.warning("the report is retried: %s", error)
                self._held.lost.wait(_RETRY_SECONDS)

    def _remove(self) -> None:
        if self._place is None:
            return
        try:
            remove_outputs(self._place.table, self._place.directory)
        except Exception as error:
            # The cleaner removes it later.
            _log.warning("%s could not be removed: %s", self._place.directory, error)


def _is_invalid(error: Exception) -> bool:
    """Returns whether a report was refused for what it says."""
    if isinstance(error, RequestRefused):
        return error.status in _INVALID
    return isinstance(error, InvalidInput)


def blame_of(error: Exception) -> Blame:
    """Returns what an error of an attempt is the fault of."""
    for cause in causes(error):
        name, text = type(cause).__name__, str(cause)
        if name == "Py4JNetworkError" or any(one in text for one in _GONE):
            return Blame.WORKER
    if isinstance(error, _SURROUNDINGS):
        return Blame.SURROUNDINGS
    return Blame.TASK


#: The planner handles a missing table, and cancels its tasks.
_SURROUNDINGS = (
    CatalogUnavailable,
    ConfigurationError,
    DatabaseUnavailable,
    NotFound,
    StoreRefused,
)

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


def text_of(error: Exception) -> str:
    """Returns an error as one line for people."""
    return one_line(described(error))
