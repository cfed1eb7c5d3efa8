"""The tables of freshness dependencies in the state database.

Tasks belong to all clusters that share the database: one row says who may make a task now, under
which token, and when it was made last, so that freshness and right are decided on one locked row.
Who locks several rows does so in this order: submission, location, task; and no transaction locks
the rows of two tasks, or those of live submissions after any of these. So nobody waits in a circle.

==============================  ===========================================================
``arctic_tasks``                lease, token and last success of a task: its lock
``arctic_task_locations``       what each code location has registered, and its trouble; and
                                rows without a cluster, by which they take turns
``arctic_task_definitions``     what each code location declares about a task
``arctic_task_publications``    each success, once for a token
``arctic_skipped_tasks``        tasks that people do not want to be made for now
``arctic_task_submissions``     one wish that a task be fresh, and what has become of it
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
    # Who may make it; null: nobody does.
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
    # When the owner that published it last had acquired it: a forced run must be later.
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
    # Of the definitions that are registered.
    sa.Column("digest", sa.Text),
    sa.Column("ticked_at", UtcTime),
    # Why what the code declares now is not registered; null: it is.
    sa.Column("trouble", EscapedText),
    # Of the Dagster instance whose sensor looks after it; null: none said so yet.
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
    # The key holds the promise: one success for a token.
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
    # Whose location makes it.
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("location", sa.Text, nullable=False),
    sa.Column("batch", sa.Text),
    # What was submitted together.
    sa.Column("group_id", Id, nullable=False),
    sa.Column("by", EscapedText, nullable=False),
    # The submission of a child for which it was made; null: somebody asked for it.
    sa.Column("wanted_by", Id),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("state_at", UtcTime, nullable=False),
    # A success since then is fresh; with force, one that was begun since then.
    sa.Column("required_since", UtcTime, nullable=False),
    sa.Column("force", sa.Boolean, nullable=False),
    # A run that somebody started in Dagster; none is asked for.
    sa.Column("by_hand", sa.Boolean, nullable=False),
    # Whether stale parents of the same location are submitted for it.
    sa.Column("submits_parents", sa.Boolean, nullable=False),
    sa.Column("submitted_at", UtcTime, nullable=False),
    # Null: nothing is to be decided before its run has ended, or ever.
    sa.Column("next_check_at", UtcTime),
    # Until then parents of other locations are waited for; null: none was yet.
    sa.Column("deadline_at", UtcTime),
    # Runs that were asked for.
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    # Those among them that fell silent or did not start: no failures.
    sa.Column("silences", sa.Integer, nullable=False, server_default="0"),
    sa.Column("token", sa.BigInteger),
    sa.Column("run_id", sa.Text),
    # The submission whose run it shares.
    sa.Column("shares", Id),
    sa.Column("ended_at", UtcTime),
    # When the end was reported to Dagster; null: it was not yet.
    sa.Column("reported_at", UtcTime),
    sa.Index("ix_arctic_task_submissions_due", "cluster", "location", "next_check_at",
             sqlite_where=_live, postgresql_where=_live),
    sa.Index("ix_arctic_task_submissions_live", "task",
             sqlite_where=_live, postgresql_where=_live),
    sa.Index("ix_arctic_task_submissions_unreported", "cluster", "ended_at",
             sqlite_where=_unreported, postgresql_where=_unreported),
    sa.Index(None, "task", "submitted_at"),
    sa.Index(None, "group_id"),
    sa.Index(None, "ended_at"),
)  # fmt: skip

#: In the words of the partial indexes above.
is_live = task_submissions.c.ended_at.is_(None)
is_unreported = task_submissions.c.ended_at.is_not(None) & task_submissions.c.reported_at.is_(None)

task_waits = sa.Table(
    "arctic_task_waits",
    metadata,
    sa.Column(
        "submission", sa.ForeignKey(task_submissions.c.id, ondelete="CASCADE"), primary_key=True
    ),
    # "task": a parent; "batch": a place among the tasks of the batch that may run at once.
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    # The submission of the parent that is waited for; null: none of ours.
    sa.Column("parent_submission", Id),
    sa.Column("since", UtcTime, nullable=False),
    sa.Index(None, "kind", "name"),
)

task_events = sa.Table(
    "arctic_task_events",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("task", sa.Text, nullable=False),
    # Not a foreign key: what people do with a task has none.
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
