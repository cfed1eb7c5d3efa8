"""The ``arctic`` resource, which gives a run the job and events that caused it."""

import json
from collections.abc import Mapping
from contextlib import closing
from functools import cached_property
from typing import Any

import dagster as dg
import sqlalchemy as sa
from pydantic import PrivateAttr

from arctic_orchestration.errors import NotFound
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.run_tags import JOB_TAG
from arctic_orchestration.schedules.launch_requests import SCHEDULE_TAG
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import event_of_job, events, job_events, jobs


class RunCause:
    """The cause of a run: its job's events. Read from the state database on first use.

    A run without a schedule has no job: all fields are empty, and no database is opened.
    """

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._tags = tags

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that requested the run, or None."""
        return self._tags.get(SCHEDULE_TAG)

    @property
    def job_id(self) -> str | None:
        """The id of the job, or None if the run has none."""
        return self._tags.get(JOB_TAG)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The events of the job, in the order of their arrival.

        Errors:
            NotFound: the state database does not have the job.
            DatabaseUnavailable: the state database did not answer.
        """
        return self._loaded[0]

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties of the schedule, as they were when the job was admitted."""
        return self._loaded[2]

    @property
    def partitions(self) -> list[str]:
        """The different partitions of the run, in the order of their first arrival.

        These are the partitions that arrived and those of the runs in the trigger; for a job that
        was split, its own.
        """
        return self._loaded[1]

    @property
    def upstream_partitions(self) -> Mapping[str, list[str]]:
        """The partitions that arrived, by their asset, each in the order of first arrival."""
        found: dict[str, dict[str, None]] = {}
        for event in self.events:
            if event.kind is EventKind.PARTITION and event.partition is not None:
                found.setdefault(event.subject, {})[event.partition] = None
        return {asset: list(keys) for asset, keys in found.items()}

    @property
    def upstream_run_ids(self) -> list[str]:
        """The runs whose end triggered the schedule."""
        ids = (e.run_id for e in self.events if e.kind is EventKind.RUN and e.run_id)
        return list(dict.fromkeys(ids))

    @cached_property
    def _loaded(self) -> tuple[tuple[Event, ...], list[str], Mapping[str, Any]]:
        if self.job_id is None:
            return (), [], {}
        url = Settings.from_environment().database_url
        with closing(Database.open(url)) as database, database.read() as tx:
            found = tx.execute(
                sa.select(events.c.details, job_events.c.partition)
                .join(job_events, event_of_job)
                .where(job_events.c.job_id == self.job_id)
                .order_by(events.c.number, job_events.c.leaf)
            ).all()
            this = jobs.c.id == self.job_id
            job = tx.execute(sa.select(jobs.c.launch).where(this)).one_or_none()
        if job is None:
            # Without partitions, the run would succeed and read nothing.
            raise NotFound(
                f"job {self.job_id} of this run is not in the state database, "
                f"{database.shown}: it was deleted with its schedule, or is too old, or "
                "ARCTIC_DATABASE_URL is not the daemon's in this process"
            )
        # An event that two leaves took is one event.
        details = dict.fromkeys(row.details for row in found)
        taken = tuple(Event.parse(text) for text in details)
        partitions = list(dict.fromkeys(row.partition for row in found if row.partition))
        return taken, partitions, json.loads(job.launch)["properties"] if job.launch else {}


class ArcticResource(dg.ConfigurableResource[Any]):
    """The resource ``arctic`` of every location that has schedules.

    ``arctic.partitions`` are the partition keys of a run, ``arctic.events`` its events with their
    metadata, ``arctic.upstream_run_ids`` the runs that triggered it, and ``arctic.properties`` the
    properties that the schedule gives to its runs.
    """

    _cause: RunCause = PrivateAttr(default_factory=lambda: RunCause({}))

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        run = context.run
        self._cause = RunCause(run.tags if run is not None else {})

    @property
    def cause(self) -> RunCause:
        """The job behind the run, with all its data."""
        return self._cause

    @property
    def partitions(self) -> list[str]:
        """The different partitions that arrived for this run."""
        return self._cause.partitions

    @property
    def upstream_partitions(self) -> Mapping[str, list[str]]:
        """The partitions that arrived for this run, by their asset."""
        return self._cause.upstream_partitions

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that caused this run."""
        return self._cause.events

    @property
    def upstream_run_ids(self) -> list[str]:
        """The runs whose end caused this run."""
        return self._cause.upstream_run_ids

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties of the schedule that requested this run."""
        return self._cause.properties
