"""Opens the run queue of a Dagster instance, with its rules and the daemon's records.

Dagster is imported when a queue is opened: it takes seconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, cast

from arctic_orchestration.console.dagster_errors import dagster_message
from arctic_orchestration.errors import ArcticError, ConfigurationError
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.run_queue import levels, pauses, waits
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import QueuedRun
from arctic_orchestration.run_queue.dagster.run_records import record_of, records_of
from arctic_orchestration.run_queue.explanation import Outlook, level_of
from arctic_orchestration.run_queue.gates import Gates
from arctic_orchestration.run_queue.history import RunSource, take_census
from arctic_orchestration.run_queue.plan import HELD_BY_DAGSTER
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import PRIORITY
from arctic_orchestration.run_queue.waits import LastPass
from arctic_orchestration.run_queue.windows import OpenWindows
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    from dagster import DagsterInstance, RunRecord

    from arctic_orchestration.event_log.runs import RunView
    from arctic_orchestration.run_queue.dagster.queued_runs import Present, QueuedRuns

#: A pass is recorded every 30 s; a daemon without a record for this long does not run.
SILENT = timedelta(minutes=1)
START_DAEMON = "start it: dagster-daemon run, or dagster dev"
#: gates that do not depend on other runs
_EXACT = ("paused", "window")


class Ruled(Protocol):
    """A run coordinator that has rules."""

    @property
    def rules(self) -> Rules: ...
    @property
    def stock_limits(self) -> list[dict[str, Any]]: ...
    @property
    def max_concurrent_runs(self) -> int: ...
    @property
    def dequeue_interval_seconds(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The run queue of one Dagster instance."""

    instance: "DagsterInstance"
    coordinator: Ruled
    runs: "QueuedRuns"
    database: Database
    cluster: str

    @property
    def rules(self) -> Rules:
        """The rules in ``dagster.yaml``."""
        return self.coordinator.rules

    def last_pass(self) -> LastPass | None:
        """Returns the last pass of the daemon, or None."""
        with self.database.read() as tx:
            return waits.last_pass(tx, self.cluster)

    def outlook(self, now: datetime) -> Outlook:
        """Returns the queue as the next pass would see it now; reads all of it."""
        with self.database.read() as tx:
            paused = pauses.in_force(self.rules, pauses.manual_pauses(tx, self.cluster))
            reported = waits.reported_waits(tx, self.cluster)
            requests = levels.pending_levels(tx, self.cluster)
        return self._outlook(self.runs, paused, reported, requests, now)

    def page(
        self,
        now: datetime,
        *,
        after: tuple[int, int] | None = None,
        queues: Sequence[str] | None = None,
        limit: int = 50,
    ) -> "QueuePage":
        """Returns queued runs in their order, each with what holds it; reads no others.

        What holds a run may be the runs before it, which are not read: that is known as of the
        daemon's last pass. What its own rules say is as of now.

        Args:
            now: the present moment.
            after: the last run of the page before: its number, and its id in Dagster's storage.
            queues: only runs of these queues; none: all runs.
            limit: at most so many.
        """
        with self.database.read() as tx:
            paused = pauses.in_force(self.rules, pauses.manual_pauses(tx, self.cluster))
            requests = levels.pending_levels(tx, self.cluster)
        waiting, in_progress = self.runs.counts()
        placed = self.runs.page(
            self._requested_numbers(requests), after=after, queues=queues, limit=limit + 1
        )
        placed, more = placed[:limit], len(placed) > limit
        queued = {slot.run.run_id: slot for slot in placed if slot.run is not None}
        with self.database.read() as tx:
            reported = waits.reported_to(tx, self.cluster, list(queued))
        outlook = self._outlook(
            _PageOfRuns(self.runs, [slot.run for slot in placed if slot.run is not None]),
            paused,
            {run_id: reason.gate for run_id, reason in reported.items()},
            requests,
            now,
        )
        is_first = after is None and queues is None
        if len(queued) == waiting or (is_first and not self.rules.queues):
            # Nothing that was not read decides.
            reported = {}
        lines = self.lines(outlook, limit)
        for line in lines:
            line["place"] = queued[line["run_id"]].place
            last = reported.get(line["run_id"])
            # A window or a pause holds whatever is before the run, and does not hold it now.
            if line["held_by"] is None and last is not None and last.kind not in _EXACT:
                line["held_by"] = {"gate": last.gate, "reason": last.reason}
        return QueuePage(
            waiting=waiting,
            in_progress=in_progress,
            max_concurrent_runs=outlook.limit,
            lines=lines,
            next_after=placed[-1].after if more else None,
        )

    def _outlook(
        self,
        source: RunSource,
        paused: pauses.Paused,
        reported: Mapping[str, str],
        requests: Sequence[levels.LevelRequest],
        now: datetime,
    ) -> Outlook:
        stock = self.coordinator.stock_limits
        heeded = frozenset(limit["key"] for limit in stock)
        census = take_census(source, self.rules, heeded, now)
        gates = Gates(
            rules=self.rules,
            census=replace(census, queued=self._with_levels(census.queued, requests)),
            paused=paused,
            windows=OpenWindows(),
            now=now,
            stock=stock,
        )
        return Outlook(
            gates,
            max_concurrent_runs=self.coordinator.max_concurrent_runs,
            passed_over=[run for run, gate in reported.items() if gate == HELD_BY_DAGSTER],
        )

    def _requested_numbers(self, requests: Sequence[levels.LevelRequest]) -> dict[str, int]:
        """Returns the numbers that the next pass gives runs, by their ids."""
        requested = {request.run_id: request.level for request in requests}
        numbers = {}
        for record in self.records(list(requested)):
            run = record.dagster_run
            level, at = requested[run.run_id], time_of_queueing(self.instance, record)
            numbers[run.run_id] = int(levels.tags_of(level, run.tags, at, self.rules)[PRIORITY])
        return numbers

    def _with_levels(
        self, queued: Sequence[QueuedRun], requests: Sequence[levels.LevelRequest]
    ) -> Sequence[QueuedRun]:
        """Runs with the levels that the next pass will give them."""
        requested = {request.run_id: request.level for request in requests}
        records = self.records([run.run_id for run in queued if run.run_id in requested])
        queued_at = self._times_of_queueing(records)
        runs = []
        for run in queued:
            if run.run_id in queued_at:
                level, at = requested[run.run_id], queued_at[run.run_id]
                tags = levels.tags_of(level, run.tags, at, self.rules)
                number = int(tags[PRIORITY])
                run = replace(run, tags={**run.tags, **tags}, priority=number)
            runs.append(run)
        return runs

    def _times_of_queueing(self, records: "Sequence[RunRecord]") -> dict[str, datetime]:
        return {
            record.dagster_run.run_id: time_of_queueing(self.instance, record) for record in records
        }

    def lines(self, outlook: Outlook, limit: int) -> list[dict[str, Any]]:
        """Returns the first queued runs in their order, each with what holds it, as values."""
        first = outlook.order[:limit]
        others = [run.run_id for run in first if tagging.queued_at_of(run.tags) is None]
        queued_at_of_others = self._times_of_queueing(self.records(others))
        lines = []
        for run in first:
            wait = outlook.plan.waits.get(run.run_id)
            queued_at = tagging.queued_at_of(run.tags) or queued_at_of_others.get(run.run_id)
            lines.append(
                {
                    "run_id": run.run_id,
                    "job": run.job,
                    "place": outlook.places[run.run_id],
                    "queue": run.tags.get(tagging.QUEUE),
                    "level": level_of(run.tags, self.rules),
                    "priority": run.priority,
                    "queued_at": queued_at,
                    "held_by": wait and {"gate": wait.gate, "reason": wait.reason},
                }
            )
        return lines

    def record(self, part: str) -> "RunRecord":
        """Returns the run whose id begins with ``part``, see :func:`record_of`."""
        return record_of(self.instance, self.runs, part)

    def records(self, run_ids: Sequence[str]) -> "Sequence[RunRecord]":
        """Returns the runs with these ids, in no order; missing ones are left out."""
        return records_of(self.instance, run_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePage:
    """One page of the run queue.

    Attributes:
        waiting: how many runs wait in all.
        in_progress: how many runs are active.
        max_concurrent_runs: Dagster's limit; None: there is none.
        lines: the runs as values, as of :meth:`Opened.lines`.
        next_after: after what the next page begins; None: this is the last one.
    """

    waiting: int
    in_progress: int
    max_concurrent_runs: int | None
    lines: Sequence[dict[str, Any]]
    next_after: tuple[int, int] | None


class _PageOfRuns:
    """Queued runs of a page beside all active and ended ones."""

    def __init__(self, runs: "QueuedRuns", queued: "Sequence[RunView]") -> None:
        self._runs = runs
        self._queued = queued

    def present(self) -> "Present":
        from arctic_orchestration.run_queue.dagster.queued_runs import Present

        return Present(queued=self._queued, active=self._runs.active())

    def ended_since(self, since: datetime, now: datetime) -> "Sequence[RunView]":
        return self._runs.ended_since(since, now)


@contextmanager
def queue_of(instance: "DagsterInstance", database: Database, cluster: str) -> Iterator[Opened]:
    """Opens the run queue of an instance.

    Errors:
        ConfigurationError: its run coordinator has no rules, or cannot be made.
        InvalidInput: a rule of ``dagster.yaml`` is invalid.
    """
    from arctic_orchestration.run_queue.dagster.queued_runs import QueuedRuns

    coordinator = ruled_coordinator(instance)
    runs = QueuedRuns(instance)
    try:
        yield Opened(
            instance=instance,
            coordinator=coordinator,
            runs=runs,
            database=database,
            cluster=cluster,
        )
    finally:
        runs.close()


class NoRules(ConfigurationError):
    """The run coordinator of ``dagster.yaml`` has no rules."""


def ruled_coordinator(instance: "DagsterInstance") -> Ruled:
    """Returns the run coordinator of an instance.

    Errors:
        NoRules: it is not an ``ArcticRunCoordinator``.
        ConfigurationError: it cannot be made.
        InvalidInput: a rule of ``dagster.yaml`` is invalid.
    """
    try:
        coordinator = instance.run_coordinator
    except ArcticError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"dagster.yaml: run_coordinator: {dagster_message(error)}"
        ) from error
    if not isinstance(getattr(coordinator, "rules", None), Rules):
        raise NoRules(
            f"The run coordinator is {type(coordinator).__name__}, which has no queues and no "
            "rules. In dagster.yaml:\n"
            "  run_coordinator:\n"
            "    module: arctic_orchestration.coordinator\n"
            "    class: ArcticRunCoordinator\n"
            "    config: {queues: {...}, groups: {...}}"
        )
    return cast(Ruled, coordinator)


def daemon_trouble(
    coordinator: Ruled, last: LastPass | None, now: datetime
) -> tuple[str, str] | None:
    """Returns the problem of the daemon's passes and its remedy, or None."""
    if coordinator.rules.are_none:
        # Without rules there is nothing to compute, and no pass is recorded.
        return None
    if last is None:
        return "the daemon never went through the queue", START_DAEMON
    if now - last.at > max(SILENT, 3 * timedelta(seconds=coordinator.dequeue_interval_seconds)):
        return f"the daemon went through the queue last at {format_moment(last.at)}", START_DAEMON
    if last.problem is not None:
        return f"the daemon has trouble: {last.problem}", "see the daemon's log"
    return None


def time_of_queueing(instance: "DagsterInstance", record: "RunRecord") -> datetime:
    """Returns when a run was queued according to its tags, else when it was created."""
    from arctic_orchestration.event_log.run_moments import created_at

    return tagging.queued_at_of(record.dagster_run.tags) or created_at(instance, record)
