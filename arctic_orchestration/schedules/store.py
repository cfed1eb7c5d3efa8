"""Stores schedules in the database, with the index by which events find them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.schedules import resources, schedule_history, timers
from arctic_orchestration.schedules.discarded_jobs import Discard, waiting_of
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.run_queue_tags import queue_tags
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_history import Action
from arctic_orchestration.schedules.stored_schedule import (
    Origin,
    ScheduleStatus,
    StoredSchedule,
    takes_events,
)
from arctic_orchestration.schedules.triggers import Leaf, kept_for_all
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.tables import is_active, jobs, schedule_keys, schedules

#: how many parsed schedules a process caches
_KEPT = 200_000


def _same_leaves(old: Sequence[Leaf], new: Sequence[Leaf]) -> dict[int, int]:
    """Maps each old leaf that remains to its number among the new leaves."""
    same: dict[int, int] = {}
    for number, leaf in enumerate(old):
        places = [n for n, other in enumerate(new) if other == leaf and n not in same.values()]
        if places:
            same[number] = number if number in places else places[0]
    return same


def _frozen(schedule: Schedule, trigger: str, *, shadowed: bool) -> str:
    form = schedule.to_form()
    return json.dumps(
        {
            "schedule": schedule.name,
            "trigger": trigger,
            "tags": dict(queue_tags(schedule)),
            **{name: form[name] for name in ("target", "run_config", "properties")},
            **({"shadowed": True} if shadowed else {}),
        }
    )


@cache
def _light(backend: str) -> sa.Select[Any]:
    """Returns the columns that show whether a parsed schedule is still current."""
    return sa.select(
        schedules.c.id,
        schedules.c.name,
        schedules.c.version,
        schedules.c.origin,
        schedules.c.status,
        schedules.c.status_at,
        schedules.c.counts_from,
        schedules.c.until_event,
    ).where(dialect.among_given(backend, schedules.c.id, "ids"))


def _first_status(schedule: Schedule) -> ScheduleStatus:
    return ScheduleStatus.ENABLED if schedule.enabled else ScheduleStatus.SUSPENDED


def _parsed(row: Sequence[Any], spec: str) -> StoredSchedule:
    """Reads a schedule from its light columns and its definition; raises what is wrong in them."""
    id, name, version, origin, status, status_at, counts_from, until = row
    schedule = Schedule.stored(json.loads(spec))
    leaves = schedule.trigger.leaves
    return StoredSchedule(
        id=id,
        name=name,
        version=version,
        origin=Origin(origin),
        status=ScheduleStatus(status),
        schedule=schedule,
        leaves=leaves,
        notes_firings=schedule.trigger.notes_firings,
        is_scoped=schedule.partitions != "none"
        or any(leaf.source.per is not None for leaf in leaves),
        kept=kept_for_all(schedule.trigger),
        restarted=tuple(n for n, leaf in enumerate(leaves) if leaf.restarts_at_launch),
        status_at=status_at,
        counts_from=counts_from,
        until_event=until,
    )


class ScheduleStore:
    """Reads and writes schedules; caches parsed ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], StoredSchedule] = {}
        self._launches: dict[tuple[Any, ...], str] = {}

    def forget(self) -> None:
        """Clears the cache: after a failed transaction its schedules may not be stored."""
        self._known.clear()
        self._launches.clear()

    def by_ids(self, tx: sa.Connection, ids: Iterable[str]) -> dict[str, StoredSchedule]:
        """Returns the schedules with these ids; deleted and unreadable ones are left out."""
        wanted = {"ids": dialect.given(tx, sorted(set(ids)))}
        rows = [tuple(row) for row in tx.execute(_light(tx.dialect.name), wanted)]
        missing = {row[0]: row for row in rows if row not in self._known}
        if missing:
            self._parse(tx, missing)
        return {row[0]: self._known[row] for row in rows if row in self._known}

    def launch_of(self, stored: StoredSchedule, trigger: str) -> str:
        """Returns what a run of the schedule gets, stored with each job at its admission.

        ``trigger`` is what fired, for people.
        """
        key = (stored.id, stored.version, trigger, stored.shadowed)
        if key not in self._launches:
            if len(self._launches) > _KEPT:
                self._launches.clear()
            shadowed = stored.shadowed
            self._launches[key] = _frozen(stored.schedule, trigger, shadowed=shadowed)
        return self._launches[key]

    def in_location(self, tx: sa.Connection, location_id: int) -> list[StoredSchedule]:
        """Returns all schedules of a location, by name."""
        query = sa.select(schedules.c.id).where(schedules.c.location_id == location_id)
        found = self.by_ids(tx, tx.execute(query).scalars())
        return sorted(found.values(), key=lambda stored: stored.name)

    def unreadable(
        self, tx: sa.Connection, location_id: int
    ) -> dict[str, tuple[str, ScheduleStatus]]:
        """Returns the declared schedules that this version cannot read: name and status by id."""
        here = (schedules.c.location_id == location_id) & (schedules.c.origin == Origin.CODE.value)
        query = sa.select(schedules.c.id, schedules.c.name, schedules.c.status).where(here)
        found = {id: (name, ScheduleStatus(status)) for id, name, status in tx.execute(query)}
        readable = self.by_ids(tx, found)
        return {id: known for id, known in found.items() if id not in readable}

    def add(
        self,
        tx: sa.Connection,
        location: Location,
        new: Sequence[Schedule],
        origin: Origin,
        now: datetime,
        *,
        reason: str = "",
        actor: str = "",
        statuses: Mapping[str, ScheduleStatus] | None = None,
    ) -> None:
        """Stores new schedules with their index and timers.

        ``reason`` and ``actor`` go into their history.

        ``statuses`` has the status of names that were stored before and keep it.
        """
        kept = statuses or {}
        with_ids = [(new_id(now), schedule) for schedule in new]
        rows = [
            {
                "id": id,
                "location_id": location.id,
                "name": schedule.name,
                "version": 1,
                "origin": origin.value,
                "status": kept.get(schedule.name, _first_status(schedule)).value,
                "spec": json.dumps(schedule.to_form()),
                "created_at": now,
                "updated_at": now,
                "status_at": now,
            }
            for id, schedule in with_ids
        ]
        if rows:
            tx.execute(sa.insert(schedules), rows)
            schedule_history.record(
                tx,
                location,
                [(id, schedule.name, 1) for id, schedule in with_ids],
                Action.CREATED,
                reason,
                now,
                actor=actor,
            )
            self._index(tx, location, with_ids)
            taking = [
                (id, schedule)
                for id, schedule in with_ids
                if takes_events(kept.get(schedule.name, _first_status(schedule)), schedule)
            ]
            timers.start(tx, location, taking, now)

    def replace_all(
        self,
        tx: sa.Connection,
        location: Location,
        changed: Sequence[tuple[StoredSchedule, Schedule]],
        now: datetime,
        *,
        reason: str = "",
        actor: str = "",
        lost: Mapping[str, Discard] | None = None,
    ) -> None:
        """Gives each schedule a new version with a new index, in few statements.

        Their status stays. An unchanged time leaf keeps its timer, so that a tick missed during
        the change is still made up. ``lost`` has what was discarded with a schedule, by its id.
        """
        if not changed:
            return
        rows = [(old.version + 1, json.dumps(new.to_form()), now, old.id) for old, new in changed]
        bulk_rows.update_rows(tx, schedules, ("version", "spec", "updated_at"), rows)
        these = [(old.id, old.name, old.version + 1) for old, _ in changed]
        schedule_history.record(
            tx, location, these, Action.UPDATED, reason, now, actor=actor, lost=lost
        )
        ids = [old.id for old, _ in changed]
        tx.execute(
            sa.delete(schedule_keys).where(dialect.among(tx, schedule_keys.c.schedule_id, ids))
        )
        self._index(tx, location, [(old.id, new) for old, new in changed])
        taking = {old.id: new for old, new in changed if takes_events(old.status, new)}
        same = {
            old.id: _same_leaves(old.leaves, new.trigger.leaves) if old.id in taking else {}
            for old, new in changed
        }
        timers.carry_over(tx, location, same)
        timers.start(tx, location, list(taking.items()), now)

    def remove(
        self,
        tx: sa.Connection,
        location: Location,
        ids: Sequence[str],
        now: datetime,
        *,
        reason: str = "",
        actor: str = "",
    ) -> Mapping[str, Discard]:
        """Deletes schedules with their jobs; active runs go on and still count.

        Returns what was lost with jobs without a run, by the name of the schedule.
        """
        if not ids:
            return {}
        known = sa.select(schedules.c.id, schedules.c.name, schedules.c.version)
        rows = tx.execute(known.where(dialect.among(tx, schedules.c.id, ids))).all()
        gone = [(row.id, row.name, row.version) for row in rows]
        lost = waiting_of(tx, ids, deleted=True)
        schedule_history.record(
            tx, location, gone, Action.DELETED, reason, now, actor=actor, lost=lost
        )
        active = tx.execute(
            sa.select(jobs.c.id, jobs.c.run_id)
            .where(dialect.among(tx, jobs.c.schedule_id, ids))
            .where(is_active)
        ).all()
        # A run that is not seen yet counts under its job until it is seen or given up.
        to = {job_id: run_id or job_id for job_id, run_id in active}
        resources.hand_over(tx, location.id, to, now)
        tx.execute(sa.delete(schedules).where(dialect.among(tx, schedules.c.id, ids)))
        return {row.name: lost[row.id] for row in rows if row.id in lost}

    def set_status(
        self,
        tx: sa.Connection,
        location: Location,
        stored: StoredSchedule,
        status: ScheduleStatus,
        now: datetime,
        *,
        reason: str = "",
        actor: str = "",
    ) -> None:
        """Writes whether a schedule is enabled."""
        tx.execute(
            sa.update(schedules)
            .where(schedules.c.id == stored.id)
            .values(status=status.value, status_at=now)
        )
        action = Action.SUSPENDED if status is ScheduleStatus.SUSPENDED else Action.ENABLED
        this = (stored.id, stored.name, stored.version)
        schedule_history.record(tx, location, [this], action, reason, now, actor=actor)

    def index_again(self, tx: sa.Connection, location: Location, before: str) -> None:
        """Rewrites the index of a location that was renamed; ``before`` is its former name."""
        stored = self.in_location(tx, location.id)
        mine = dialect.among(tx, schedule_keys.c.schedule_id, [old.id for old in stored])
        tx.execute(sa.delete(schedule_keys).where(mine))
        self._index(tx, location, [(old.id, old.schedule) for old in stored])
        # Of a schedule that this version cannot read, the keys are all that is known.
        own, key = f"run:{before}:", schedule_keys.c.event_key
        others = (schedule_keys.c.location_id == location.id) & ~mine & resources.begins(key, own)
        rest = sa.func.substr(key, len(own) + 1, type_=sa.Text)
        renamed = sa.literal(f"run:{location.name}:") + rest
        tx.execute(sa.update(schedule_keys).where(others).values(event_key=renamed))

    def count_from(
        self, tx: sa.Connection, location: Location, names: Sequence[str], at: datetime | None
    ) -> None:
        """Makes schedules take no event from before a moment; None: any event read from now on."""
        col = schedules.c
        these = (col.location_id == location.id) & dialect.among(tx, col.name, names)
        differ = col.counts_from.is_distinct_from(at)
        tx.execute(sa.update(schedules).where(these, differ).values(counts_from=at))

    def _index(
        self, tx: sa.Connection, location: Location, of: Sequence[tuple[str, Schedule]]
    ) -> None:
        rows = [
            {
                "location_id": location.id,
                "event_key": str(key),
                "schedule_id": id,
                "leaf": number,
            }
            for id, schedule in of
            for number, leaf in enumerate(schedule.trigger.leaves)
            for key in leaf.keys(location.name)
        ]
        if rows:
            tx.execute(sa.insert(schedule_keys), rows)

    def _parse(self, tx: sa.Connection, missing: Mapping[str, tuple[Any, ...]]) -> None:
        if len(self._known) > _KEPT:
            self._known.clear()
        query = sa.select(schedules.c.id, schedules.c.spec)
        wanted = dialect.among(tx, schedules.c.id, list(missing))
        for id, spec in tx.execute(query.where(wanted)).all():
            try:
                self._known[missing[id]] = _parsed(missing[id], spec)
            except Exception as error:
                # Written by another version of the package. The others must not wait for it.
                known = isinstance(error, InvalidDefinition)
                self._set_problem(tx, id, str(error) if known else repr(error))

    def _set_problem(self, tx: sa.Connection, id: str, problem: str) -> None:
        this = (schedules.c.id == id) & schedules.c.problem.is_distinct_from(problem)
        tx.execute(sa.update(schedules).where(this).values(problem=problem))
