"""Where a worker gets its tasks, and where it reports: the state database, or a server over HTTP.

The worker's loop is the same for both. Each method may raise ``DatabaseUnavailable``: the other
side did not answer, and the call can be repeated, because a repeated report changes nothing.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work.attempt import AttemptState, Output
from arctic_orchestration.compaction.work.output_paths import directory_of
from arctic_orchestration.compaction.work.workers import Order, WorkerInfo
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.tables import load_table


class WorkTask(Protocol):
    """The task of a claim."""

    @property
    def id(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def gain(self) -> str: ...


class Work(Protocol):
    """What a worker has to know of its claim."""

    @property
    def task(self) -> WorkTask: ...
    @property
    def group(self) -> FileGroup: ...
    @property
    def attempt_id(self) -> str: ...
    @property
    def token(self) -> int: ...


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


@dataclass(kw_only=True)
class ClaimedTask:
    """A task that a worker has claimed."""

    claim: Work
    #: until then, by this machine's steady clock, the lease is certainly valid
    trusted_until: float
    lost: threading.Event = field(default_factory=threading.Event)
    #: another thread replaces the one that merges it
    replaced: bool = False


@dataclass(frozen=True, kw_only=True)
class Beat:
    """The answer to a heartbeat."""

    #: what the worker is to do
    order: Order = Order.RUN
    #: the attempts whose leases were renewed; the others are lost
    renewed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Place:
    """The table of a task, and where its merge writes."""

    table: Table
    #: of this attempt alone
    directory: str
    target_bytes: int


def place_of(catalog: Catalog, table: str, directory: str) -> Place:
    """Returns the place of an attempt.

    Args:
        catalog: the catalog of the table.
        table: its name there.
        directory: the last component of the attempt's directory.

    Errors:
        NotFound: the table does not exist.
        CatalogUnavailable: the catalog did not answer, after several tries.
        LakeError: the table's metadata cannot be read.
        InvalidInput: a property of the table is invalid.
    """
    loaded = load_table(catalog, table)
    return Place(
        table=loaded,
        directory=directory_of(loaded, directory),
        target_bytes=Policy.of(loaded.properties, table).target_size,
    )


class TaskSource(Protocol):
    """Gives tasks to one worker, and takes its reports."""

    @property
    def life(self) -> timedelta:
        """The duration of a lease."""

    def start(self, worker: WorkerInfo) -> None:
        """Registers the worker.

        Errors:
            ConfigurationError: the state database is bound to another catalog.
            RequestRefused: the server does not admit the worker.
        """

    def claim(self, wait: timedelta | None) -> ClaimedTask | None:
        """Claims a task; a server is waited for, at most so long if a limit is given."""

    def order(self) -> Order:
        """Returns what the worker is to do, by the last answer."""

    def place(self, work: Work) -> Place:
        """Returns where to merge, which is recorded, so that the outputs can be found.

        Errors:
            Refused: the lease has expired; nothing may be written.
        """

    def beat(self, held: Sequence[ClaimedTask]) -> Beat:
        """Renews the leases of the worker's attempts, and its own row."""

    def merged(self, work: Work, done: MergedFiles) -> None:
        """Reports a merge.

        Errors:
            Refused: the attempt has lost the task.
        """

    def failed(self, work: Work, reason: str, *, final: bool, bad_files: bool) -> TaskState:
        """Reports a failure, as ``attempts.failed``; returns the task's state.

        Errors:
            Refused: the attempt has lost the task.
        """

    def release(self, work: Work, reason: str) -> None:
        """Releases the task; does not count as an attempt.

        Errors:
            Refused: the attempt has lost the task.
        """

    def state(self, work: Work) -> AttemptState | None:
        """Returns the state of an attempt; none: there is no such attempt."""

    def interrupt(self) -> None:
        """Ends claims that wait. Returns at once."""

    def end(self) -> None:
        """Records the end of the worker, which has no task any more."""
