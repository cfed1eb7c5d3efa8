"""The engine: one tick turns events and time into jobs, and jobs into launch requests.

A tick is four transactions. Each locks the location's row first, so that two dispatchers of one
location take turns:

1. *deploy and subscribe*: the feed position moves together with the jobs made from the events;
2. *look up*: confirms launches, and verifies active runs whose end event may have been missed;
3. *check*: evaluates constraints; admitted jobs hold their resources from then on;
4. *hand out*: gives each request of an admitted job to one tick of Dagster at a time.

Sources that are due are evaluated after the first, each in a transaction of its own. The second and
third are separate because the second releases resources, which updates jobs of other locations, and
the third locks resources, for which other locations may be waiting.

A crash between them, or before Dagster has stored the requests, loses nothing: the next tick
continues from what was committed, and a request that is handed out twice has the same run key.
"""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.feed import LookedUpFeed, Position
from arctic_orchestration.event_log.narrowing import Narrowing
from arctic_orchestration.event_log.run_lookup import RetryLookup
from arctic_orchestration.notifications import outbox
from arctic_orchestration.schedules import (
    abandoned_locations,
    clock_jumps,
    deferred_arrivals,
    deployment,
    due_work,
    launch_requests,
    location_binding,
    refused_requests,
    retention,
    schedule,
    timers,
)
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.checker import Checker
from arctic_orchestration.schedules.collector_pause import collector_paused
from arctic_orchestration.schedules.due_work import Due, Work, has_work
from arctic_orchestration.schedules.event_intake import EVENTS_AT_ONCE, begin, read
from arctic_orchestration.schedules.facts import Surroundings
from arctic_orchestration.schedules.hand_out_leases import NoTicks, Ticks
from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import JobMove, JobState
from arctic_orchestration.schedules.launch_requests import LaunchRequest
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.mismatches import take_inventory
from arctic_orchestration.schedules.missing_partitions import count_again
from arctic_orchestration.schedules.request_hooks import (
    NoHooks,
    RequestHooks,
    decide,
    in_turn,
    questions,
    undecided,
)
from arctic_orchestration.schedules.runs import RunTracker
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.source_intake import SourceIntake
from arctic_orchestration.schedules.sources import NoSources, Sources
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.target_partitions import TooManyRows
from arctic_orchestration.schedules.targets import Targets
from arctic_orchestration.schedules.tick_result import TickResult
from arctic_orchestration.state import dialect
from arctic_orchestration.state.database import Database

#: events set aside in one tick, to keep a tick short
_ASIDE_PER_TICK = 100
#: a tick asks no further request hook after this time
_HOOK_SECONDS = 10.0


@dataclass(kw_only=True)
class Engine:
    """The scheduler of one code location of one cluster."""

    database: Database
    cluster: str
    location: str
    feed: LookedUpFeed
    lookup: RetryLookup
    targets: Targets
    #: the code location and repository that declare the schedules; None: not checked
    owner: str | None = None
    #: the inventory of the code, for commands that load none; None: not stored
    inventory: Inventory | None = None
    #: the declared schedules; None: nothing is deployed
    declared: Sequence[Schedule] | None = None
    #: whether a deployment changes what is stored, or only deletes schedules without a target
    update_schedules: bool = True
    surroundings: Surroundings = field(default_factory=Surroundings)
    #: the tick of Dagster that gets the requests, and the ticks before it
    ticks: Ticks = field(default_factory=NoTicks)
    #: the functions that decide about requests
    hooks: RequestHooks = field(default_factory=NoHooks)
    #: the sensors whose run requests are events
    sources: Sources = field(default_factory=NoSources)
    #: how often a tick also records its heartbeat, deletes rows past their retention, and
    #: reconciles what silent locations left behind
    keep_house_every: timedelta = timedelta(minutes=5)
    store: ScheduleStore = field(default_factory=ScheduleStore)
    #: whether events that cannot be stored are set aside; false: the error is raised
    sets_aside: bool = True
    #: transactions of events in one tick; the rest of a backlog is left to the next
    readings_per_tick: int = 5
    _digest: str | None = None
    _deployed: bool = False
    _remarks: tuple[str, ...] = ()
    _kept_at: datetime | None = None
    _unwanted: list[str] = field(default_factory=list)
    #: runs whose end this tick has read
    _ended: set[str] = field(default_factory=set)
    #: jobs that only the next tick can decide on
    _unsure: set[str] = field(default_factory=set)
    _notes: dict[str, str] = field(default_factory=dict)
    #: the schedules at whose hooks the time of a tick ended
    _slow_hooks: list[str] = field(default_factory=list)

    def tick(self, now: datetime) -> TickResult:
        """Runs one round at ``now``.

        Errors:
            DatabaseUnavailable: a database did not answer; what was committed stands, and the next
                tick continues from there.
        """
        try:
            return self._tick(now)
        except BaseException:
            self.store.forget()
            raise

    def _tick(self, now: datetime) -> TickResult:
        counts: Counter[str] = Counter()
        moves: list[JobMove] = []
        lags: list[timedelta] = []
        self._unwanted.clear()
        self._ended.clear()
        self._unsure.clear()
        self._notes.clear()
        narrowing = Narrowing(most=EVENTS_AT_ONCE)
        reads, more, self._remarks = 0, True, ()
        with collector_paused():
            while (
                more and reads < self.readings_per_tick and counts["unreadable"] < _ASIDE_PER_TICK
            ):
                last = reads == self.readings_per_tick - 1
                is_whole = narrowing.limit == narrowing.most
                try:
                    position, more, work = self._subscribe(
                        now, counts, moves, lags, narrowing, last=last
                    )
                except DatabaseUnavailable:
                    raise
                except TooManyRows as error:
                    self.store.forget()
                    narrowing.cap(error.fits)
                    continue
                except Exception as error:
                    self.store.forget()
                    if not (self.sets_aside and narrowing.narrow(error)):
                        raise
                    continue
                reads += is_whole or last
        # An idle tick is one transaction, and one more where there are sources.
        keeps_house = self._keeps_house(now)
        # While a deployment waits for earlier events, the old schedules launch nothing.
        waits = self.declared is not None and not self._deployed
        requested = not waits and not more and self._take_requests(now, counts, moves)
        requests: list[LaunchRequest] = []
        if not waits and (any(work) or keeps_house or requested):
            ended: Collection[str] = ()
            if work.runs or keeps_house:
                ended = self._look_up(now, counts, moves, keeps_house=keeps_house)
            # The constraints of a job fired by time are evaluated in the next round.
            for due in due_work.rounds():
                checked, fired = self._check(now, counts, moves, due, behind=more)
                if checked < due_work.CHECKED_AT_ONCE and not fired:
                    break
            if work.runs or counts["admitted"]:
                requests = self._hand_out(now, moves, ended)
        counts["requested"] = len(requests)
        return TickResult(
            counts=counts,
            requests=requests,
            position=position,
            moves=moves,
            lags=lags,
            unwanted=list(dict.fromkeys(self._unwanted)),
            remarks=self._remarks,
            notes=dict(self._notes),
        )

    def _subscribe(
        self,
        now: datetime,
        counts: Counter[str],
        moves: list[JobMove],
        lags: list[timedelta],
        narrowing: Narrowing,
        *,
        last: bool,
    ) -> tuple[Position, bool, Work]:
        """Reads and stores events; returns the position, whether there are more, and the work."""
        done: Counter[str] = Counter()
        with self.database.begin() as tx:
            location = self._locked(tx)
            if clock_jumps.was_set_back(location, now):
                clock_jumps.reset_moments(tx, location, self.store, now)
            deploys = self._is_to_deploy(location)
            if location.position is None:
                # Events from before the first tick are ignored.
                reading = begin(tx, location, self.feed)
            else:
                # Events from before a deployment are the old schedules', ticks the new ones'.
                ticks = not deploys
                reading = read(
                    tx, location, self.feed, self.lookup, self.store, now, narrowing,
                    last=last, ticks=ticks, targets=self.targets,
                )  # fmt: skip
            done += reading.counts
            if deploys and not reading.more:
                self._deploy(tx, location, now, done)
            queue = JobQueue(tx, now)
            if not (self._deployed or reading.more):
                timers.begin_again(tx, location, self.store, now)
                deferred_arrivals.try_again(queue, location, self.store, self.targets, self.feed)
                fired = count_again(queue, reading.location, self.store, self.targets, self.feed)
                done["fired"] += fired
            if self.inventory is not None and not (self._deployed or reading.more):
                self._remarks += take_inventory(tx, self.store, location, self.inventory, now)
            work = has_work(tx, location, now)
            # The last step before the commit: a failed transaction is not counted.
            counts.update(done)
        if not reading.more:
            self._deployed = True
        moves += [*reading.moves, *queue.moves]
        lags += reading.lags
        self._unwanted += reading.unwanted
        self._ended |= set(reading.ended)
        return reading.position, reading.more or deploys, work

    def _is_to_deploy(self, location: Location) -> bool:
        """Returns whether the declared schedules differ from the last deployment."""
        if location.definitions_digest is None:
            # The location is new, even if this process knew another one of its name.
            self._deployed, self._kept_at = False, None
        if self.declared is None or self._deployed:
            return False
        if self._digest is None:
            # A declaration recorded without updates is still to be deployed.
            mode = "" if self.update_schedules else "kept:"
            self._digest = mode + schedule.digest(self.declared)
        # Without updates a target may be gone although the declaration is unchanged.
        return self._digest != location.definitions_digest or not self.update_schedules

    def _deploy(
        self, tx: sa.Connection, location: Location, now: datetime, counts: Counter[str]
    ) -> None:
        """Deploys what the code declares."""
        assert self.declared is not None and self._digest is not None
        deployed = deployment.deploy(
            tx,
            self.store,
            location,
            self.declared,
            self._digest,
            now,
            update_schedules=self.update_schedules,
            exists=self.targets.exists,
        )
        counts.update(deployed.counts)
        self._remarks = deployed.remarks

    def _keeps_house(self, now: datetime) -> bool:
        # A clock may be set back: a moment in the future does not delay this.
        if self._kept_at is None:
            return True
        return not timedelta(0) <= now - self._kept_at < self.keep_house_every

    def _take_requests(self, now: datetime, counts: Counter[str], moves: list[JobMove]) -> bool:
        """Evaluates the sources that are due; returns whether they requested runs."""
        if not self.sources.intervals:
            return False
        intake = SourceIntake(
            self.database, self._locked, self.store, self.feed, self.targets, self.sources
        )
        taken = intake.take(now)
        counts.update(taken.counts)
        moves += taken.moves
        self._remarks += taken.remarks
        self._notes.update(taken.notes)
        return bool(taken.counts["run requests"])

    def _look_up(
        self, now: datetime, counts: Counter[str], moves: list[JobMove], *, keeps_house: bool
    ) -> Collection[str]:
        """Confirms launches and verifies runs; returns the ticks that had ended before."""
        with self.database.begin() as tx:
            location = self._locked(tx)
            queue = JobQueue(tx, now)
            # Read before runs are looked up, so that the look-up sees every run of an ended tick.
            ended = self.ticks.ended(launch_requests.leased_ticks(tx, location))
            tracker = RunTracker(queue, location, self.lookup)
            self._unsure = tracker.confirm(self._ended)
            tracker.verify_jobs()
            tracker.verify_others()
            queue.flush()
            if keeps_house:
                locations.update(tx, location, ticked_at=now)
                pruned = retention.prune(tx, location, now)
                counts["pruned"] += pruned.jobs
                # What ends in five minutes may be more than one tick deletes.
                more = outbox.prune(tx, location.id, now) >= outbox.PRUNED_AT_ONCE or pruned.more
                self._kept_at = None if more else now
                counts["abandoned"] += abandoned_locations.reconcile(tx, location, self.lookup, now)
                counts["abandoned"] += abandoned_locations.let_go(tx, location, now)
        moves += queue.moves
        return ended

    def _check(
        self, now: datetime, counts: Counter[str], moves: list[JobMove], due: Due, *, behind: bool
    ) -> tuple[int, int]:
        with self.database.begin() as tx:
            location = self._locked(tx)
            queue = JobQueue(tx, now)
            checked = Checker(
                queue, location, self.store, self.targets, self.surroundings, behind=behind
            ).check(due)
            queue.flush()
            counts.update(checked)
        moves += queue.moves
        return checked["checked"], checked["fired"]

    def _hand_out(
        self, now: datetime, moves: list[JobMove], ended: Collection[str]
    ) -> list[LaunchRequest]:
        launched = {move.job.requested_tick for move in moves if move.is_launch}
        self._ask_hooks(now, moves, ended)
        with self.database.begin() as tx:
            location = self._locked(tx)
            launch_requests.renew(tx, location, [tick for tick in launched if tick is not None])
            queue = JobQueue(tx, now)
            refused = refused_requests.fail_refused(queue, location, self.ticks)
            queue.flush()
            requests = launch_requests.hand_out(
                queue, location, self.targets, self.ticks.current, ended, later=self._unsure,
                unless=undecided(self.hooks.names),
            )  # fmt: skip
            requests = refused_requests.put_last(queue, requests, refused)
            queue.flush()
        moves += queue.moves
        return requests

    def _ask_hooks(self, now: datetime, moves: list[JobMove], ended: Collection[str]) -> None:
        """Asks the request hooks of jobs that are handed out next, without a transaction."""
        until = time.monotonic() + _HOOK_SECONDS
        for names in in_turn(self.hooks.names, self._slow_hooks):
            with self.database.begin() as tx:
                location = self._locked(tx)
                query = launch_requests.unleased(tx, location, ended, dialect.database_time(tx))
                asked = questions(JobQueue(tx, now), query.where(undecided(names)))
            for question in asked:
                answer = self.hooks.ask(question)
                with self.database.begin() as tx:
                    self._locked(tx)
                    queue = JobQueue(tx, now)
                    decide(queue, question.job_id, answer)
                    queue.flush()
                moves += queue.moves
                if time.monotonic() >= until:
                    self._slow_hooks.append(question.schedule)
                    return

    def refuse(self, job_id: str, problem: str, now: datetime) -> None:
        """Ends a launching job whose run Dagster refused."""
        with self.database.begin() as tx:
            self._locked(tx)
            queue = JobQueue(tx, now)
            job = queue.by_ids([job_id]).get(job_id)
            if job is not None and job.state is JobState.LAUNCHING:
                launch_requests.fail_launch(queue, job, problem)
            queue.flush()

    def _locked(self, tx: sa.Connection) -> Location:
        """Locks this location's row; see :func:`location_binding.bound`."""
        return location_binding.bound(
            tx, self.cluster, self.location, storage_id=self.feed.storage_id, owner=self.owner
        )
