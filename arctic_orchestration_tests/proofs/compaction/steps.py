"""Steps of a task's way at which a planner, a worker or a committer can be killed or stopped.

They are armed and reached as :mod:`arctic_orchestration_tests.proofs.crash_points` says. The code
under test has no hooks: the functions around the steps are replaced in the process that is to die.
A process can also be made without one of its safeties, which shows that a proof would notice.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import sqlalchemy as sa
from pyiceberg.io import FileIO

from arctic_orchestration.compaction.commit import cleaner, commits, committer
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.planning import catalog_planner, table_planner
from arctic_orchestration.compaction.work import attempts, output_paths
from arctic_orchestration.compaction.work.attempt_runner import _Attempt
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.lake import tables
from arctic_orchestration.lake.merging import merge as merging
from arctic_orchestration.lake.replacing import replace as replacing
from arctic_orchestration.lake.replacing.commit_loop import CommitLoop
from arctic_orchestration.lake.upkeep.known_files import KnownFiles
from arctic_orchestration.lake.upkeep.listing import Store
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.proofs.crash_points import DIRECTORY, _replace, reach

#: in the order in which they are passed
PLANNER = (
    "PLANNER_READ",  # the row of a table is read, the table is not
    "PLAN_MADE",  # the table is read and planned, and has tasks
    "OFFER_WRITTEN",  # inside the transaction of the offer, before its commit
    "OFFERED",  # after it
)
WORKER = (
    "CLAIMING",  # nothing is claimed yet
    "CLAIM_WRITTEN",  # inside the transaction, before its commit
    "CLAIMED",  # after it
    "OUTPUTS_BEGUN",  # the directory of the outputs is there, and is written to
    "OUTPUTS_WRITTEN",  # all outputs are there, nothing is reported
    "REPORT_WRITTEN",  # inside the transaction of the report, before its commit
    "REPORTED",  # after it
)
COMMITTER = (
    "COMMITTER_LEASED",  # it has the table, and has not read it
    "SNAPSHOT_WRITTEN",  # manifests and list are written, the catalog does not know
    "SNAPSHOT_COMMITTED",  # the catalog has the snapshot, the state database does not know
    "COMMIT_REPORT_WRITTEN",  # inside the transaction of the report, before its commit
    "COMMIT_REPORTED",  # after it
)
#: of the same process; reached only when a worker was lost before
HOUSEKEEPING = (
    "LOSS_WRITTEN",  # inside the transaction that takes a task from a lost attempt
    "CLEANING",  # a directory is about to be removed
    "CLEANED",  # it is removed, the state database does not know
)


class Without(StrEnum):
    """A safety that a process lacks."""

    NOTHING = ""
    #: the committer does not look for its tasks in the table's history, nor the cleaner for files
    HISTORY = "history"
    #: a report is taken without a look at lease, token and state of its attempt
    LEASE = "lease"


#: No transaction of a process is under way while one is stopped: it would keep its locks, and
#: whoever takes over would not be late but stand still, which says nothing about leases.
_transacting = threading.RLock()


#: SIGSTOP may come to another thread first; the one that sent it must not go on meanwhile.
_STOPPING_SECONDS = 0.3


def _at(step: str) -> None:
    with _transacting:
        is_armed = (Path(os.environ[DIRECTORY]) / step).exists()
        reach(step)
        if is_armed:
            threading.Event().wait(_STOPPING_SECONDS)


def put_in(without: Without = Without.NOTHING) -> None:
    """Puts all steps into this process, and takes a safety out."""
    _hold_transactions()
    _put_into_planner()
    _put_into_worker()
    _put_into_committer()
    _put_into_housekeeping()
    if without is Without.HISTORY:
        _replace(replacing, "made_before", lambda *_: {})
        _replace(KnownFiles, "below", lambda *_: None)
    elif without is Without.LEASE:
        _replace(attempts, "_held", lambda id, token, now: (compaction_attempts.c.id == id,))


def _hold_transactions() -> None:
    begin = Database.begin

    @contextmanager
    def alone(database: Database) -> Iterator[sa.Connection]:
        with _transacting, begin(database) as tx:
            yield tx

    _replace(Database, "begin", alone)


def _before_commit(owner: Any, function: str, step: str, worked: Callable[[Any], bool]) -> None:
    """A step inside the transaction in which the function was called last, where it did something.

    The transaction may write more before its commit; nothing of it is seen by others yet.
    """
    original = getattr(owner, function)

    def called(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if worked(result):
            _at(step)
        return result

    _replace(owner, function, called)


def _put_into_planner() -> None:
    load, plan, on_look = (
        tables.load_table,
        table_planner.plan_loaded,
        catalog_planner.Planner._plan,
    )

    def load_table(*arguments: Any) -> Any:
        _at("PLANNER_READ")
        return load(*arguments)

    def plan_loaded(*arguments: Any, **named: Any) -> Any:
        made = plan(*arguments, **named)
        if made.tasks:
            _at("PLAN_MADE")
        return made

    def planned(*arguments: Any, **named: Any) -> Any:
        counts = on_look(*arguments, **named)
        if counts.offered:
            _at("OFFERED")
        return counts

    _replace(catalog_planner, "load_table", load_table)
    _replace(catalog_planner, "plan_loaded", plan_loaded)
    _replace(catalog_planner.Planner, "_plan", planned)
    _before_commit(catalog_planner, "offer", "OFFER_WRITTEN", lambda offered: bool(offered.taken))


def _put_into_worker() -> None:
    claim, report = DatabaseSource.claim, _Attempt._reported

    def claim_at_steps(*arguments: Any) -> Any:
        _at("CLAIMING")
        claimed = claim(*arguments)
        if claimed is not None:
            _at("CLAIMED")
        return claimed

    def report_at_steps(attempt: _Attempt, *arguments: Any) -> Any:
        _at("OUTPUTS_WRITTEN")
        outcome = report(attempt, *arguments)
        _at("REPORTED")
        return outcome

    _replace(DatabaseSource, "claim", claim_at_steps)
    _replace(_Attempt, "_reported", report_at_steps)
    _replace(merging, "_decoded", _watched(merging._decoded))
    _replace(merging, "_appended", _watched(merging._appended))
    _before_commit(attempts, "claim", "CLAIM_WRITTEN", lambda claimed: claimed is not None)
    _before_commit(attempts, "merged", "REPORT_WRITTEN", lambda _: True)


def _watched(merge: Callable[..., Any]) -> Callable[..., Any]:
    """A step while the outputs are written: as soon as their directory, or an object, is there."""

    def watched(spark: Any, table: Any, group: Any, directory: str, *rest: Any) -> Any:
        written = threading.Event()
        watcher = threading.Thread(target=_while_written, args=(table.io, directory, written))
        watcher.start()
        try:
            return merge(spark, table, group, directory, *rest)
        finally:
            written.set()
            watcher.join()

    return watched


def _while_written(io: FileIO, directory: str, written: threading.Event) -> None:
    while not _is_there(io, directory):
        if written.wait(0.002):
            return
    _at("OUTPUTS_BEGUN")


def _is_there(io: FileIO, directory: str) -> bool:
    place = urlparse(directory)
    if place.scheme in ("", "file"):
        return Path(place.path).exists()
    try:
        return any(True for _ in Store(io, directory).list())
    except Exception:
        # The store may fail on purpose.
        return False


def _put_into_committer() -> None:
    load, attempt, report = tables.load_table, CommitLoop._attempt, Committer._report

    def load_table(*arguments: Any) -> Any:
        _at("COMMITTER_LEASED")
        return load(*arguments)

    def attempt_at_steps(run: CommitLoop, *arguments: Any) -> None:
        table = run._table
        commit = table._do_commit

        def do_commit(*arguments: Any, **named: Any) -> None:
            _at("SNAPSHOT_WRITTEN")
            commit(*arguments, **named)
            _at("SNAPSHOT_COMMITTED")

        table._do_commit = do_commit  # type: ignore[method-assign]
        try:
            attempt(run, *arguments)
        finally:
            del table._do_commit

    def report_at_steps(self: Committer, *arguments: Any) -> Any:
        done = report(self, *arguments)
        _at("COMMIT_REPORTED")
        return done

    _replace(committer, "load_table", load_table)
    _replace(CommitLoop, "_attempt", attempt_at_steps)
    _replace(Committer, "_report", report_at_steps)
    _before_commit(commits, "committed", "COMMIT_REPORT_WRITTEN", lambda made: made is not None)


def _put_into_housekeeping() -> None:
    remove = output_paths.remove_outputs

    def remove_at_steps(*arguments: Any) -> None:
        _at("CLEANING")
        remove(*arguments)
        _at("CLEANED")

    _replace(cleaner, "remove_outputs", remove_at_steps)
    _before_commit(attempts, "expire", "LOSS_WRITTEN", bool)


def stopped(pid: int) -> bool:
    """Whether a process has got SIGSTOP, and all its threads stand."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.rsplit(")", 1)[1].split()[0] == "T"
