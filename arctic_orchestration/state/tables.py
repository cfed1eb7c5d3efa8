"""The tables of the state database.

A *location* is one code location of one cluster: its feed position, schedules and jobs belong to
it, and its row is the lock of its dispatcher. Resources, by which concurrency is counted, belong to
all clusters that share the database.

===========================  ===============================================================
``arctic_locations``         feed position, digest of the deployed definitions
``arctic_location_inventories`` the jobs, assets and partitions that each location's code has
``arctic_schema_upgrades``   which version of the package upgraded the schema, and when
``arctic_schedules``         the schedules
``arctic_deleted_schedules`` declared schedules that a person deleted, until the code changes
``arctic_schedule_history``  changes of schedules, including deleted ones
``arctic_schedule_keys``     the reverse index: event key → schedule and leaf of its trigger
``arctic_timers``            the next tick of each time leaf of a schedule that takes them
``arctic_events``            each event that a schedule took, once
``arctic_unreadable_events`` events of Dagster's log that could not be stored
``arctic_jobs``              one firing of a schedule on its way to a run
``arctic_job_events``        which events a job has, at which leaf of its trigger
``arctic_job_history``       each move of a job, with its reason
``arctic_runs``              Dagster's active runs that no job requested
``arctic_holders``           which job or run holds which resource
``arctic_launches``          when jobs were admitted and other runs begun, by resource
``arctic_run_ends``          when the last run of a resource ended in a status
``arctic_notices``           messages for people, until they are sent
``arctic_resources``         one row for each resource that is counted: its lock
``arctic_audit``             manual changes and their authors
===========================  ===============================================================

Others: ``partition_tables``, ``adoption_tables``, ``compaction_tables``, ``consumer_tables``,
``freshness_tables``, ``run_queue_tables``, ``service_tables``, ``source_tables``.
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import EscapedText, UtcTime
from arctic_orchestration.state.metadata import Id as _Id
from arctic_orchestration.state.metadata import Serial as _Serial
from arctic_orchestration.state.metadata import metadata as metadata

locations = sa.Table(
    "arctic_locations",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("position", sa.Text),
    # The Dagster storage of the position: another one under this name is refused.
    sa.Column("storage_id", sa.Text),
    sa.Column("definitions_digest", sa.Text),
    sa.Column("next_event", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("ticked_at", UtcTime),
    # The code location and repository that deploy under this name; null: the next to tick is bound.
    sa.Column("owner", sa.Text),
    # Dagster's names of code locations that it was bound to before, as a JSON list: their runs
    # may still end.
    sa.Column("former_names", sa.Text),
    sa.UniqueConstraint("cluster", "name"),
)

location_inventories = sa.Table(
    "arctic_location_inventories",
    metadata,
    sa.Column("location_id", sa.ForeignKey(locations.c.id), primary_key=True),
    # The jobs, assets and partitions of the code, as JSON.
    sa.Column("inventory", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)

schema_upgrades = sa.Table(
    "arctic_schema_upgrades",
    metadata,
    sa.Column("revision", sa.Text, primary_key=True),
    # The version of the package that upgraded the database.
    sa.Column("package", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)

schedules = sa.Table(
    "arctic_schedules",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("location_id", sa.ForeignKey(locations.c.id), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),
    # Why this version of the package cannot read the spec; the schedule then takes no events.
    sa.Column("problem", EscapedText),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("status_at", UtcTime, nullable=False),
    # The code's last declaration, as JSON; null: it was created manually.
    sa.Column("declared", sa.Text),
    sa.Column("declared_digest", sa.Text),
    # Earlier events are not taken. Null: their place in the log decided.
    sa.Column("counts_from", UtcTime),
    # It was handed back to Dagster: it takes no tick of time, and no event with a larger id.
    sa.Column("until_event", sa.BigInteger),
    sa.UniqueConstraint("location_id", "name"),
)

deleted_schedules = sa.Table(
    "arctic_deleted_schedules",
    metadata,
    sa.Column("location_id", sa.ForeignKey(locations.c.id), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("declared_digest", sa.Text, nullable=False),
)

schedule_history = sa.Table(
    "arctic_schedule_history",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("location_id", sa.ForeignKey(locations.c.id), nullable=False),
    # Not a foreign key: the history outlives the object.
    sa.Column("schedule_id", _Id, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    # A person, or the code location that deployed it; empty: unknown.
    sa.Column("actor", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Index(None, "location_id", "name", "id"),
)

schedule_keys = sa.Table(
    "arctic_schedule_keys",
    metadata,
    sa.Column("location_id", sa.ForeignKey(locations.c.id), primary_key=True),
    sa.Column("event_key", sa.Text, primary_key=True),
    sa.Column("schedule_id", sa.ForeignKey(schedules.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("leaf", sa.Integer, primary_key=True),
    sa.Index(None, "schedule_id"),
)

timers = sa.Table(
    "arctic_timers",
    metadata,
    sa.Column("schedule_id", sa.ForeignKey(schedules.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("leaf", sa.Integer, primary_key=True),
    sa.Column("location_id", sa.ForeignKey(locations.c.id), nullable=False),
    sa.Column("due_at", UtcTime, nullable=False),
    # The newest delivered tick: it is not delivered again when a clock is set back.
    sa.Column("last_at", UtcTime),
    sa.Index(None, "location_id", "due_at"),
)

events = sa.Table(
    "arctic_events",
    metadata,
    sa.Column("location_id", sa.ForeignKey(locations.c.id), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("partition", sa.Text),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("taken_at", UtcTime, nullable=False),
    sa.Column("details", sa.Text, nullable=False),
    sa.Index(None, "taken_at"),
)

unreadable_events = sa.Table(
    "arctic_unreadable_events",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("cluster", sa.Text, nullable=False),
    # A location or a consumer: each reads the log separately.
    sa.Column("reader", sa.Text, nullable=False),
    sa.Column("event_id", sa.BigInteger, nullable=False),
    sa.Column("event", EscapedText, nullable=False),
    sa.Column("found_at", UtcTime, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Index(None, "cluster", "id"),
)

_waiting = sa.text("state in ('waiting_trigger', 'waiting_constraints')")
_active = sa.text("state in ('launching', 'launched')")
_constrained = sa.text("state = 'waiting_constraints'")

jobs = sa.Table(
    "arctic_jobs",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("location_id", sa.ForeignKey(locations.c.id), nullable=False),
    sa.Column("schedule_id", sa.ForeignKey(schedules.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("schedule_version", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    # Guarantees "one waiting job": empty on the job that takes events, a partition on a job of
    # one partition, null on a job that shares its schedule with others.
    sa.Column("waiting_for", sa.Text),
    sa.Column("arrivals", sa.Text, nullable=False),
    # The target partition, or the group of upstream partitions, of the job since it was created;
    # null: it takes all events of its schedule.
    sa.Column("scope", sa.Text),
    sa.Column("partition_start", sa.Text),
    sa.Column("partition_end", sa.Text),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("satisfied_at", UtcTime),
    sa.Column("next_check_at", UtcTime),
    sa.Column("deadline_at", UtcTime),
    sa.Column("held_by", sa.Text),
    sa.Column("verdicts", sa.Text),
    # Target, tags, run configuration and properties at the time of its admission.
    sa.Column("launch", sa.Text),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("requested_at", UtcTime),
    sa.Column("requests", sa.Integer, nullable=False, server_default="0"),
    # The tick of Dagster's sensor with the request; the end of its lease, by the database's time.
    sa.Column("requested_tick", sa.Text),
    sa.Column("request_expires_at", UtcTime),
    sa.Column("run_id", sa.Text),
    # The run that claimed the job: only this run counts. Only runs write it.
    sa.Column("begun_run_id", sa.Text),
    sa.Column("ended_at", UtcTime),
    # Why it bypasses its constraints, except limits on concurrency; usually null.
    sa.Column("forced", sa.Text),
    # The constraint that holds it, with its group; null: its state says it.
    sa.Column("cause", sa.Text),
    sa.Index("uq_arctic_jobs_one_waiting", "schedule_id", "waiting_for", unique=True,
             sqlite_where=_waiting, postgresql_where=_waiting),
    sa.Index("ix_arctic_jobs_due", "location_id", "next_check_at"),
    sa.Index("ix_arctic_jobs_active", "location_id", "state", "requested_at",
             sqlite_where=_active, postgresql_where=_active),
    sa.Index("ix_arctic_jobs_held", "held_by",
             sqlite_where=_constrained, postgresql_where=_constrained),
    sa.Index(None, "schedule_id", "created_at"),
    sa.Index(None, "schedule_id", "scope", "created_at"),
    sa.Index(None, "run_id"),
    sa.Index(None, "location_id", "ended_at"),
)  # fmt: skip


def in_state(*states: str) -> sa.ColumnElement[bool]:
    """Returns the condition that a job is in one of the states, written into the statement.

    SQLite uses a partial index only if a condition equals the text of the index. And it prepares a
    statement with a parameter in such a comparison again at each execution.
    """
    words = [sa.literal_column(f"'{state}'", sa.Text) for state in states]
    return jobs.c.state.in_(words) if len(words) > 1 else jobs.c.state == words[0]


#: Literally as in the partial indexes above.
is_waiting = in_state("waiting_trigger", "waiting_constraints")
is_active = in_state("launching", "launched")
is_launching = is_active & in_state("launching")
is_constrained = in_state("waiting_constraints")

job_events = sa.Table(
    "arctic_job_events",
    metadata,
    sa.Column("job_id", sa.ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("leaf", sa.Integer, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("location_id", sa.BigInteger, nullable=False),
    # Empty: the event has no partition.
    sa.Column("partition", sa.Text, nullable=False),
    sa.Index(None, "job_id", "leaf", "partition"),
    sa.Index(None, "location_id", "number"),
)

#: joins events with the jobs that have them
event_of_job = (events.c.location_id == job_events.c.location_id) & (
    events.c.number == job_events.c.number
)

job_history = sa.Table(
    "arctic_job_history",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("job_id", sa.ForeignKey(jobs.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("from_state", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    # The person who did it; empty: the scheduler itself.
    sa.Column("actor", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Index(None, "job_id", "id"),
)

runs = sa.Table(
    "arctic_runs",
    metadata,
    sa.Column("location_id", sa.ForeignKey(locations.c.id), primary_key=True),
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("seen_at", UtcTime, nullable=False),
)

resources = sa.Table(
    "arctic_resources",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
)

holders = sa.Table(
    "arctic_holders",
    metadata,
    sa.Column("resource", sa.Text, primary_key=True),
    # A job's id or, for a run without a job, the run's.
    sa.Column("holder", sa.Text, primary_key=True),
    sa.Column("location_id", sa.ForeignKey(locations.c.id), nullable=False),
    sa.Index(None, "holder"),
)

launches = sa.Table(
    "arctic_launches",
    metadata,
    sa.Column("resource", sa.Text, primary_key=True),
    # A job's id or, for a run without a job, the run's.
    sa.Column("holder", sa.Text, primary_key=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Index(None, "resource", "at"),
    sa.Index(None, "at"),
)

run_ends = sa.Table(
    "arctic_run_ends",
    metadata,
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("status", sa.Text, primary_key=True),
    sa.Column("ended_at", UtcTime, nullable=False),
)

notices = sa.Table(
    "arctic_notices",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("location_id", sa.ForeignKey(locations.c.id), nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("schedule", sa.Text, nullable=False),
    sa.Column("job_id", _Id),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    # Null: it was sent, or given up.
    sa.Column("send_at", UtcTime),
    # The channels that have it, with the moment; null: a message of another notice counted it.
    # And those that failed, as "NAME failed ATTEMPTS", with the moment of the retry; null: none.
    sa.Column("sent_to", sa.Text, nullable=False, server_default="{}"),
    sa.Column("problem", EscapedText),
    sa.Index(None, "location_id", "send_at"),
)

audit = sa.Table(
    "arctic_audit",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("actor", EscapedText, nullable=False),
    sa.Column("feature", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", EscapedText, nullable=False),
    # As JSON.
    sa.Column("details", sa.Text, nullable=False),
    # The object, as JSON. Below: of a request over the network.
    sa.Column("before", sa.Text),
    sa.Column("after", sa.Text),
    sa.Column("address", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("request_id", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Index(None, "at"),
)
