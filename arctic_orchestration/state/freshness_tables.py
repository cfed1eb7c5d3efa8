"""The tables of freshness dependencies in the state database.

Tasks belong to all clusters that share the database: one row has the owner of a task, the token and
the last success, so that one locked row decides both freshness and ownership. Rows are locked in
the order submission, location, task; no transaction locks the rows of two tasks, or those of live
submissions after any of these. This prevents deadlocks.

==============================  ===========================================================
``arctic_tasks``                lease, token and last success of a task: its lock
``arctic_task_locations``       the registration of each code location, and its error; and
                                rows without a cluster that serialize registrations
``arctic_task_definitions``     what each code location declares about a task
``arctic_task_publications``    each success, once for a token
``arctic_skipped_tasks``        tasks that are not to run for now
``arctic_task_submissions``     one request to bring a task up to date, and its state
``arctic_task_waits``           what a submission waits for, so that its end wakes it
``arctic_task_events``          each step of a submission, with its reason
==============================  ===========================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import EscapedText, UtcTime
from arctic_orchestration.state.metadata import Id, Serial, metadata

tasks = sa.Table(
    "arctic_tasks",
    metadata,
    sa.Column("task", sa.Text, primary_key=True),
    # Its owner; null: none.
    sa.Column("owner", sa.Text),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("acquired_at", UtcTime),
    sa.Column("expires_at", UtcTime),
    # When the owner's process began; until then its location renews the lease.
    sa.Column("begun_at", UtcTime),
    sa.Column("cluster", sa.Text),
    sa.Column("location", sa.Text),
    sa.Column("run_id", sa.Text),
    sa.Column("submission", Id),
    sa.Column("last_success_at", UtcTime),
    # When the last publishing owner had acquired it: a forced run must be later.
    sa.Column("last_acquired_at", UtcTime),
    sa.Column("last_success_run", sa.Text),
    sa.Column("last_success_cluster", sa.Text),
    sa.Column("last_token", sa.BigInteger),
)

task_locations = sa.Table(
    "arctic_task_locations",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("location", sa.Text, primary_key=True),
    # Of the registered definitions.
    sa.Column("digest", sa.Text),
    sa.Column("ticked_at", UtcTime),
    # Why the code's present declarations are not registered; null: they are.
    sa.Column("trouble", EscapedText),
    # Of the Dagster instance whose sensor processes it; null: not reported yet.
    sa.Column("storage_id", sa.Text),
)

task_definitions = sa.Table(
    "arctic_task_definitions",
    metadata,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("location", sa.Text, primary_key=True),
    sa.Column("batch", sa.Text),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("declared_at", UtcTime, nullable=False),
    sa.Index(None, "cluster", "location"),
    sa.Index(None, "batch"),
)

task_publications = sa.Table(
    "arctic_task_publications",
    metadata,
    # The key guarantees one success for a token.
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("submission", Id),
    sa.Column("run_id", sa.Text),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Index(None, "at"),
)

skipped_tasks = sa.Table(
    "arctic_skipped_tasks",
    metadata,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("by", EscapedText, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)

_live = sa.text("ended_at is null")
_unreported = sa.text("ended_at is not null and reported_at is null")

task_submissions = sa.Table(
    "arctic_task_submissions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("task", sa.Text, nullable=False),
    # The location that runs it.
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("location", sa.Text, nullable=False),
    sa.Column("batch", sa.Text),
    # What was submitted together.
    sa.Column("group_id", Id, nullable=False),
    sa.Column("by", EscapedText, nullable=False),
    # The submission of the child that required it; null: it was requested directly.
    sa.Column("wanted_by", Id),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("state_at", UtcTime, nullable=False),
    # A success since then is fresh; with force, one that was begun since then.
    sa.Column("required_since", UtcTime, nullable=False),
    sa.Column("force", sa.Boolean, nullable=False),
    # A run that a person started in Dagster; none is requested.
    sa.Column("by_hand", sa.Boolean, nullable=False),
    # Whether stale parents of the same location are submitted for it.
    sa.Column("submits_parents", sa.Boolean, nullable=False),
    sa.Column("submitted_at", UtcTime, nullable=False),
    # Null: nothing to decide before its run has ended, or ever.
    sa.Column("next_check_at", UtcTime),
    # The deadline for parents of other locations; null: none is waited for yet.
    sa.Column("deadline_at", UtcTime),
    # Requested runs.
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    # Runs among them that fell silent or did not start: no failures.
    sa.Column("silences", sa.Integer, nullable=False, server_default="0"),
    sa.Column("token", sa.BigInteger),
    sa.Column("run_id", sa.Text),
    # The submission with the run that it shares.
    sa.Column("shares", Id),
    sa.Column("ended_at", UtcTime),
    # When the end was reported to Dagster; null: not yet.
    sa.Column("reported_at", UtcTime),
    sa.Index("ix_arctic_task_submissions_due", "cluster", "location", "next_check_at",
             sqlite_where=_live, postgresql_where=_live),
    sa.Index("ix_arctic_task_submissions_live", "task",
             sqlite_where=_live, postgresql_where=_live),
    # Counts the tasks of a batch that run.
    sa.Index("ix_arctic_task_submissions_batch", "batch", "state",
             sqlite_where=_live, postgresql_where=_live),
    sa.Index("ix_arctic_task_submissions_unreported", "cluster", "ended_at",
             sqlite_where=_unreported, postgresql_where=_unreported),
    sa.Index(None, "task", "submitted_at"),
    sa.Index(None, "group_id"),
    sa.Index(None, "ended_at"),
)  # fmt: skip

#: Literally as in the partial indexes above.
is_live = task_submissions.c.ended_at.is_(None)
is_unreported = task_submissions.c.ended_at.is_not(None) & task_submissions.c.reported_at.is_(None)

task_waits = sa.Table(
    "arctic_task_waits",
    metadata,
    sa.Column(
        "submission", sa.ForeignKey(task_submissions.c.id, ondelete="CASCADE"), primary_key=True
    ),
    # "task": a parent; "batch": a slot among the tasks of the batch that may run at once.
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    # The parent's submission that is waited for; null: it has none here.
    sa.Column("parent_submission", Id),
    # How many tasks of the batch may run at once; null: a parent.
    sa.Column("slots", sa.Integer),
    sa.Column("since", UtcTime, nullable=False),
    sa.Index(None, "kind", "name"),
)

task_events = sa.Table(
    "arctic_task_events",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("task", sa.Text, nullable=False),
    # Not a foreign key: manual actions on a task have no submission.
    sa.Column("submission", Id),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("location", sa.Text),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("details", sa.Text, nullable=False),
    sa.Index(None, "task", "id"),
    sa.Index(None, "submission", "id"),
    sa.Index(None, "at"),
)
