"""The tables of compaction in the state database.

Compaction belongs to all clusters that share the database. A lake table has its name in the
catalog: ``lake.flights``. Rows are locked in the order table, queue, task, attempt, budget, which
prevents deadlocks. A claim locks the budget first; it waits for no task that another one has.

================================  =========================================================
``arctic_compaction_queues``      capacity, level and share; its row is the lock for capacity
``arctic_compaction_budgets``     what attempts of a queue's tasks have used of its budget
``arctic_compaction_tables``      one lake table; its row is the lock for offers
``arctic_compaction_tasks``       one group of files on its way to fewer files
``arctic_compaction_task_files``  the files of live tasks; each is in one task only
``arctic_compaction_moves``       each move of a task, with its reason
``arctic_compaction_attempts``    each claim of a task: lease, token, outcome, outputs
``arctic_compaction_partitions``  when a partition was last merged, in each kind
``arctic_compaction_rests``       resting files, and until when they rest
``arctic_compaction_upkeep``      the upkeep that a table requests, and the last one
``arctic_compaction_catalog``     one row: the catalog to which the database is bound
``arctic_compaction_workers``     live workers, and their last heartbeat
``arctic_compaction_records``     one row a commit
================================  =========================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import EscapedText, UtcTime
from arctic_orchestration.state.metadata import Id, Serial, metadata

compaction_queues = sa.Table(
    "arctic_compaction_queues",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("capacity", sa.Integer, nullable=False),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("share", sa.Integer, nullable=False),
    # The number of workers for it, including those that people start.
    sa.Column("max_workers", sa.Integer, nullable=False),
    # The number of workers that are kept without tasks, too.
    sa.Column("min_workers", sa.Integer, nullable=False, server_default="0"),
    # Spark properties, JSON: each worker starts an application of its own with them; null: the
    # session of the code location.
    sa.Column("application", sa.Text),
    sa.Column("state", sa.Text, nullable=False, server_default="open"),
    # The time limit of an attempt at a task.
    sa.Column("execution_timeout_seconds", sa.Integer, nullable=False, server_default="7200"),
    # When workers claim, and how many tasks they merge at once on average; 0: any number.
    sa.Column("hours", sa.Text, nullable=False, server_default="always"),
    sa.Column("budget", sa.Float, nullable=False, server_default="0"),
    sa.Column("created_at", UtcTime, nullable=False),
)

compaction_budgets = sa.Table(
    "arctic_compaction_budgets",
    metadata,
    # Not columns of the queue: that row is locked for its capacity.
    sa.Column("queue", sa.ForeignKey(compaction_queues.c.name, ondelete="CASCADE"),
              primary_key=True),
    # By how much attempts that ended until then overdrew it; less than 0: so much was left.
    sa.Column("spent_seconds", sa.Float),
    sa.Column("spent_at", UtcTime),
    # How long its recent attempts lasted.
    sa.Column("mean_seconds", sa.Float),
)  # fmt: skip

compaction_tables = sa.Table(
    "arctic_compaction_tables",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # The queue mapped by a person, the one in its property, and the effective one.
    sa.Column("mapped_to", sa.ForeignKey(compaction_queues.c.name)),
    sa.Column("property_queue", sa.Text),
    sa.Column("queue", sa.ForeignKey(compaction_queues.c.name), nullable=False),
    sa.Column("queue_reason", EscapedText, nullable=False),
    sa.Column("level", sa.Integer, nullable=False, server_default="0"),
    sa.Column("seen_at", UtcTime, nullable=False),
    sa.Column("gone_at", UtcTime),
    sa.Column("refused", EscapedText),
    sa.Column("due_since", UtcTime),
    sa.Column("due_reason", EscapedText),
    # Counts the events that made it due, so that events during a check are not lost.
    sa.Column("due_number", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("looked_at", UtcTime),
    sa.Column("looked_snapshot_id", sa.BigInteger),
    sa.Column("looked_reason", EscapedText),
    # An observer's plan; null: the planner has checked it since.
    sa.Column("observed_at", UtcTime),
    sa.Column("observed_snapshot_id", sa.BigInteger),
    sa.Column("observed_reason", EscapedText),
    # Counts what makes a plan stale: another plan, a commit of compaction.
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("rests_until", UtcTime),
    sa.Column("rest_reason", EscapedText),
    sa.Column("commit_owner", sa.Text),
    sa.Column("commit_token", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("commit_expires_at", UtcTime),
    sa.Column("next_commit_at", UtcTime),
    # Why the last committer could not commit; null: it could.
    sa.Column("commit_trouble", EscapedText),
    sa.Index(None, "due_since"),
    sa.Index(None, "queue"),
    sa.Index(None, "mapped_to"),
)

compaction_upkeep = sa.Table(
    "arctic_compaction_upkeep",
    metadata,
    # Only tables whose properties request it.
    sa.Column(
        "table_name", sa.ForeignKey(compaction_tables.c.name, ondelete="CASCADE"), primary_key=True
    ),
    # The age of snapshots, and of orphans, that go; null: they stay.
    sa.Column("expire_after_seconds", sa.Float),
    sa.Column("orphans_after_seconds", sa.Float),
    # The number of small manifests that are merged; null: they stay.
    sa.Column("manifests_from", sa.Integer),
    # The next one; null: there was none yet.
    sa.Column("next_at", UtcTime),
    # What the last one did, or why it failed.
    sa.Column("result", EscapedText),
)

_live = sa.text("ended_at is null")
_planned = sa.text("state = 'planned'")
_failed = sa.text("state = 'failed'")
_claimed = sa.text("state = 'claimed'")
_merged = sa.text("state = 'merged'")

compaction_tasks = sa.Table(
    "arctic_compaction_tasks",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("table_name", sa.ForeignKey(compaction_tables.c.name), nullable=False),
    # Not a foreign key: ended tasks outlive their queue.
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("state_at", UtcTime, nullable=False),
    sa.Column("partition", sa.Text, nullable=False),
    sa.Column("file_group", sa.Text, nullable=False),
    # Of the paths of the data files: the same files are the same task.
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("delete_files", sa.Integer, nullable=False),
    sa.Column("small_files", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("planned_reason", sa.Text, nullable=False),
    sa.Column("gain", sa.Text, nullable=False),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("rank", sa.BigInteger, nullable=False),
    sa.Column("offered_at", UtcTime, nullable=False),
    sa.Column("waiting_since", UtcTime, nullable=False),
    # How many tasks of its table were live or offered before it.
    sa.Column("place", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", UtcTime),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("retry_seconds", sa.Float, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
    # The attempt that has it, or whose outputs wait for the committer.
    sa.Column("attempt_id", Id),
    sa.Column("snapshot_id", sa.BigInteger),
    # Requested by a person: automatic plans do not replace it while it waits.
    sa.Column("forced", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("ended_at", UtcTime),
    sa.Index("ix_arctic_compaction_tasks_claimable", "queue", "rank", "id",
             sqlite_where=_planned, postgresql_where=_planned),
    sa.Index("ix_arctic_compaction_tasks_retried", "not_before",
             sqlite_where=_failed, postgresql_where=_failed),
    sa.Index("ix_arctic_compaction_tasks_claimed", "queue",
             sqlite_where=_claimed, postgresql_where=_claimed),
    sa.Index("ix_arctic_compaction_tasks_merged", "table_name", "state_at",
             sqlite_where=_merged, postgresql_where=_merged),
    # Not by state: Postgres would use it in place of the first, and sort the result.
    sa.Index("ix_arctic_compaction_tasks_live", "queue",
             sqlite_where=_live, postgresql_where=_live),
    sa.Index(None, "table_name", "state"),
    sa.Index(None, "ended_at"),
)  # fmt: skip


def in_state(*states: str) -> sa.ColumnElement[bool]:
    """Returns the condition that a task is in one of the states, as in the partial indexes."""
    words = [sa.literal_column(f"'{state}'", sa.Text) for state in states]
    column = compaction_tasks.c.state
    return column.in_(words) if len(words) > 1 else column == words[0]


#: Literally as in the partial indexes above.
is_live = compaction_tasks.c.ended_at.is_(None)
is_waiting = in_state("planned", "failed")
is_planned = in_state("planned")
is_failed = in_state("failed")
is_claimed = in_state("claimed")
is_merged = in_state("merged")

compaction_task_files = sa.Table(
    "arctic_compaction_task_files",
    metadata,
    # The key guarantees that a file is in one live task. Rows are deleted when a task ends.
    sa.Column("table_name", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("task_id", sa.ForeignKey(compaction_tasks.c.id, ondelete="CASCADE"), nullable=False),
    sa.Index(None, "task_id"),
)

compaction_moves = sa.Table(
    "arctic_compaction_moves",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("task_id", sa.ForeignKey(compaction_tasks.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    # Null: it was created.
    sa.Column("from_state", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("attempt_id", Id),
    sa.Index(None, "task_id", "id"),
)

_attempt_live = sa.text("state = 'live'")
_over_http = sa.text("claim_key is not null")
_uncleaned = sa.text(
    "cleaned_at is null and kept_reason is null "
    "and state in ('failed', 'lost', 'released', 'dropped')"
)

compaction_attempts = sa.Table(
    "arctic_compaction_attempts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("task_id", sa.ForeignKey(compaction_tasks.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("worker", sa.Text, nullable=False),
    # The id of the worker, and its key for this claim if it claimed over HTTP: a repeated request
    # is the same claim.
    sa.Column("worker_id", sa.Text),
    sa.Column("claim_key", sa.Text),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("directory", sa.Text, nullable=False),
    # Its whole path; null until the worker reports it.
    sa.Column("location", sa.Text),
    sa.Column("claimed_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("ended_at", UtcTime),
    # The result of a merge; null until then.
    sa.Column("outputs", sa.Text),
    sa.Column("rows_in", sa.BigInteger),
    sa.Column("rows_deleted", sa.BigInteger),
    sa.Column("rows_out", sa.BigInteger),
    sa.Column("way", sa.Text),
    sa.Column("because", EscapedText),
    sa.Column("sort_order_id", sa.Integer),
    # Since when its outputs are orphaned; null: they are needed.
    sa.Column("over_at", UtcTime),
    sa.Column("cleaned_at", UtcTime),
    # When a failed removal is retried, and why it failed.
    sa.Column("clean_after", UtcTime),
    sa.Column("clean_trouble", EscapedText),
    # A snapshot contains a file of it: it stays.
    sa.Column("kept_reason", EscapedText),
    sa.Index("uq_arctic_compaction_attempts_live", "task_id", unique=True,
             sqlite_where=_attempt_live, postgresql_where=_attempt_live),
    sa.Index("ix_arctic_compaction_attempts_expires", "expires_at",
             sqlite_where=_attempt_live, postgresql_where=_attempt_live),
    sa.Index("ix_arctic_compaction_attempts_uncleaned", "over_at",
             sqlite_where=_uncleaned, postgresql_where=_uncleaned),
    sa.Index("uq_arctic_compaction_attempts_claims", "worker_id", "claim_key", unique=True,
             sqlite_where=_over_http, postgresql_where=_over_http),
    sa.Index(None, "task_id"),
    sa.Index(None, "table_name", "state"),
)  # fmt: skip


def attempt_in_state(*states: str) -> sa.ColumnElement[bool]:
    """Returns the condition that an attempt is in one of the states, as in the partial indexes."""
    words = [sa.literal_column(f"'{state}'", sa.Text) for state in states]
    column = compaction_attempts.c.state
    return column.in_(words) if len(words) > 1 else column == words[0]


#: Literally as in the partial indexes above.
attempt_is_live = attempt_in_state("live")
is_uncleaned = (
    compaction_attempts.c.cleaned_at.is_(None)
    & compaction_attempts.c.kept_reason.is_(None)
    & attempt_in_state("failed", "lost", "released", "dropped")
)

compaction_partitions = sa.Table(
    "arctic_compaction_partitions",
    metadata,
    sa.Column(
        "table_name", sa.ForeignKey(compaction_tables.c.name, ondelete="CASCADE"), primary_key=True
    ),
    # Empty: the table is unpartitioned.
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("committed_at", UtcTime, nullable=False),
    # Of a full rewrite: of the snapshot that was planned from, which its outputs have, too.
    sa.Column("sequence_number", sa.BigInteger),
)

compaction_rests = sa.Table(
    "arctic_compaction_rests",
    metadata,
    sa.Column(
        "table_name", sa.ForeignKey(compaction_tables.c.name, ondelete="CASCADE"), primary_key=True
    ),
    # Of a data file: the next plan may combine it with other files.
    sa.Column("path", sa.Text, primary_key=True),
    # How many of its tasks were quarantined.
    sa.Column("rests", sa.Integer, nullable=False),
    sa.Column("rests_until", UtcTime, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
)

compaction_catalog = sa.Table(
    "arctic_compaction_catalog",
    metadata,
    # Always 1: there is one row.
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
)

compaction_workers = sa.Table(
    "arctic_compaction_workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    # The names of its queues as JSON; the empty list: all queues.
    sa.Column("queues", sa.Text, nullable=False),
    sa.Column("parallelism", sa.Integer, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
    # What it is to do: run, quiet, stop.
    sa.Column("order", sa.Text, nullable=False, server_default="run"),
    # Bytes; null: unknown.
    sa.Column("memory", sa.BigInteger),
    sa.Column("version", sa.Text, nullable=False, server_default=sa.text("''")),
    # JSON, texts by name.
    sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
)

compaction_records = sa.Table(
    "arctic_compaction_records",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("snapshot_id", sa.BigInteger, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    # The ids of the tasks, and the number of tasks by way of merging, as JSON.
    sa.Column("tasks", sa.Text, nullable=False),
    sa.Column("ways", sa.Text, nullable=False),
    sa.Column("files_in", sa.Integer, nullable=False),
    sa.Column("files_out", sa.Integer, nullable=False),
    sa.Column("delete_files_removed", sa.Integer, nullable=False),
    sa.Column("bytes_in", sa.BigInteger, nullable=False),
    sa.Column("bytes_out", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("rows_deleted", sa.BigInteger, nullable=False),
    sa.Column("merge_seconds", sa.Float, nullable=False),
    # From the first task's offer to the commit.
    sa.Column("waited_seconds", sa.Float, nullable=False),
    # A commit that is recognized after a crash is not recorded twice.
    sa.UniqueConstraint("table_name", "snapshot_id"),
    sa.Index(None, "at"),
)
