"""Compaction: queues, tables, tasks with their attempts, workers, records."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.clock import utc_now
from arctic_orchestration.state.dialect import UtcTime

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "arctic_compaction_queues",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("share", sa.Integer(), nullable=False),
        sa.Column("max_workers", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_arctic_compaction_queues")),
    )
    op.create_table(
        "arctic_compaction_records",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("ways", sa.Text(), nullable=False),
        sa.Column("files_in", sa.Integer(), nullable=False),
        sa.Column("files_out", sa.Integer(), nullable=False),
        sa.Column("delete_files_removed", sa.Integer(), nullable=False),
        sa.Column("bytes_in", sa.BigInteger(), nullable=False),
        sa.Column("bytes_out", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("rows_deleted", sa.BigInteger(), nullable=False),
        sa.Column("merge_seconds", sa.Float(), nullable=False),
        sa.Column("waited_seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_compaction_records")),
        sa.UniqueConstraint(
            "table_name",
            "snapshot_id",
            name=op.f("uq_arctic_compaction_records_table_name_snapshot_id"),
        ),
    )
    with op.batch_alter_table("arctic_compaction_records", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_arctic_compaction_records_at"), ["at"], unique=False)

    op.create_table(
        "arctic_compaction_workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queues", sa.Text(), nullable=False),
        sa.Column("parallelism", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_compaction_workers")),
    )
    op.create_table(
        "arctic_compaction_tables",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("mapped_to", sa.Text(), nullable=True),
        sa.Column("property_queue", sa.Text(), nullable=True),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("queue_reason", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), server_default="0", nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.Column("gone_at", UtcTime(), nullable=True),
        sa.Column("refused", sa.Text(), nullable=True),
        sa.Column("due_since", UtcTime(), nullable=True),
        sa.Column("due_reason", sa.Text(), nullable=True),
        sa.Column("due_number", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("looked_at", UtcTime(), nullable=True),
        sa.Column("looked_snapshot_id", sa.BigInteger(), nullable=True),
        sa.Column("looked_reason", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rests_until", UtcTime(), nullable=True),
        sa.Column("rest_reason", sa.Text(), nullable=True),
        sa.Column("commit_owner", sa.Text(), nullable=True),
        sa.Column("commit_token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("commit_expires_at", UtcTime(), nullable=True),
        sa.Column("next_commit_at", UtcTime(), nullable=True),
        sa.Column("commit_trouble", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["mapped_to"],
            ["arctic_compaction_queues.name"],
            name=op.f("fk_arctic_compaction_tables_mapped_to"),
        ),
        sa.ForeignKeyConstraint(
            ["queue"],
            ["arctic_compaction_queues.name"],
            name=op.f("fk_arctic_compaction_tables_queue"),
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_arctic_compaction_tables")),
    )
    with op.batch_alter_table("arctic_compaction_tables", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_tables_due_since"), ["due_since"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_tables_mapped_to"), ["mapped_to"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_tables_queue"), ["queue"], unique=False
        )

    op.create_table(
        "arctic_compaction_partitions",
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("committed_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_name"],
            ["arctic_compaction_tables.name"],
            name=op.f("fk_arctic_compaction_partitions_table_name"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "table_name", "partition", "kind", name=op.f("pk_arctic_compaction_partitions")
        ),
    )
    op.create_table(
        "arctic_compaction_rests",
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("rests", sa.Integer(), nullable=False),
        sa.Column("rests_until", UtcTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["table_name"],
            ["arctic_compaction_tables.name"],
            name=op.f("fk_arctic_compaction_rests_table_name"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("table_name", "path", name=op.f("pk_arctic_compaction_rests")),
    )
    op.create_table(
        "arctic_compaction_catalog",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_compaction_catalog")),
    )
    op.create_table(
        "arctic_compaction_tasks",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state_at", UtcTime(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("file_group", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("delete_files", sa.Integer(), nullable=False),
        sa.Column("small_files", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("planned_reason", sa.Text(), nullable=False),
        sa.Column("gain", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("offered_at", UtcTime(), nullable=False),
        sa.Column("waiting_since", UtcTime(), nullable=False),
        sa.Column("not_before", UtcTime(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("retry_seconds", sa.Float(), nullable=False),
        sa.Column("token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("attempt_id", sa.String(length=26), nullable=True),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=True),
        sa.Column("forced", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["table_name"],
            ["arctic_compaction_tables.name"],
            name=op.f("fk_arctic_compaction_tasks_table_name"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_compaction_tasks")),
    )
    with op.batch_alter_table("arctic_compaction_tasks", schema=None) as batch_op:
        batch_op.create_index(
            "ix_arctic_compaction_tasks_claimable",
            ["queue", "rank", "id"],
            unique=False,
            sqlite_where=sa.text("state = 'planned'"),
            postgresql_where=sa.text("state = 'planned'"),
        )
        batch_op.create_index(
            "ix_arctic_compaction_tasks_claimed",
            ["queue"],
            unique=False,
            sqlite_where=sa.text("state = 'claimed'"),
            postgresql_where=sa.text("state = 'claimed'"),
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_tasks_ended_at"), ["ended_at"], unique=False
        )
        batch_op.create_index(
            "ix_arctic_compaction_tasks_live",
            ["queue"],
            unique=False,
            sqlite_where=sa.text("ended_at is null"),
            postgresql_where=sa.text("ended_at is null"),
        )
        batch_op.create_index(
            "ix_arctic_compaction_tasks_merged",
            ["table_name", "state_at"],
            unique=False,
            sqlite_where=sa.text("state = 'merged'"),
            postgresql_where=sa.text("state = 'merged'"),
        )
        batch_op.create_index(
            "ix_arctic_compaction_tasks_retried",
            ["not_before"],
            unique=False,
            sqlite_where=sa.text("state = 'failed'"),
            postgresql_where=sa.text("state = 'failed'"),
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_tasks_table_name_state"),
            ["table_name", "state"],
            unique=False,
        )

    op.create_table(
        "arctic_compaction_attempts",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("task_id", sa.String(length=26), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("claimed_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("outputs", sa.Text(), nullable=True),
        sa.Column("rows_in", sa.BigInteger(), nullable=True),
        sa.Column("rows_deleted", sa.BigInteger(), nullable=True),
        sa.Column("rows_out", sa.BigInteger(), nullable=True),
        sa.Column("way", sa.Text(), nullable=True),
        sa.Column("because", sa.Text(), nullable=True),
        sa.Column("sort_order_id", sa.Integer(), nullable=True),
        sa.Column("over_at", UtcTime(), nullable=True),
        sa.Column("cleaned_at", UtcTime(), nullable=True),
        sa.Column("clean_after", UtcTime(), nullable=True),
        sa.Column("clean_trouble", sa.Text(), nullable=True),
        sa.Column("kept_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["arctic_compaction_tasks.id"],
            name=op.f("fk_arctic_compaction_attempts_task_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_compaction_attempts")),
    )
    with op.batch_alter_table("arctic_compaction_attempts", schema=None) as batch_op:
        batch_op.create_index(
            "ix_arctic_compaction_attempts_expires",
            ["expires_at"],
            unique=False,
            sqlite_where=sa.text("state = 'live'"),
            postgresql_where=sa.text("state = 'live'"),
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_attempts_table_name_state"),
            ["table_name", "state"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_attempts_task_id"), ["task_id"], unique=False
        )
        batch_op.create_index(
            "ix_arctic_compaction_attempts_uncleaned",
            ["over_at"],
            unique=False,
            sqlite_where=sa.text(
                "cleaned_at is null and kept_reason is null "
                "and state in ('failed', 'lost', 'released', 'dropped')"
            ),
            postgresql_where=sa.text(
                "cleaned_at is null and kept_reason is null "
                "and state in ('failed', 'lost', 'released', 'dropped')"
            ),
        )
        batch_op.create_index(
            "uq_arctic_compaction_attempts_live",
            ["task_id"],
            unique=True,
            sqlite_where=sa.text("state = 'live'"),
            postgresql_where=sa.text("state = 'live'"),
        )

    op.create_table(
        "arctic_compaction_moves",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task_id", sa.String(length=26), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.String(length=26), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["arctic_compaction_tasks.id"],
            name=op.f("fk_arctic_compaction_moves_task_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_compaction_moves")),
    )
    with op.batch_alter_table("arctic_compaction_moves", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_moves_task_id_id"), ["task_id", "id"], unique=False
        )

    op.create_table(
        "arctic_compaction_task_files",
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("task_id", sa.String(length=26), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["arctic_compaction_tasks.id"],
            name=op.f("fk_arctic_compaction_task_files_task_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("table_name", "path", name=op.f("pk_arctic_compaction_task_files")),
    )
    with op.batch_alter_table("arctic_compaction_task_files", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_arctic_compaction_task_files_task_id"), ["task_id"], unique=False
        )

    _add_default_queue()


def _add_default_queue() -> None:
    """Adds the queue that always exists, and cannot be deleted."""
    queues = sa.table(
        "arctic_compaction_queues",
        sa.column("name", sa.Text()),
        sa.column("capacity", sa.Integer()),
        sa.column("level", sa.Integer()),
        sa.column("share", sa.Integer()),
        sa.column("max_workers", sa.Integer()),
        sa.column("created_at", UtcTime()),
    )
    default = {"name": "default", "capacity": 1000, "level": 0, "share": 1, "max_workers": 1}
    op.bulk_insert(queues, [{**default, "created_at": utc_now()}])
