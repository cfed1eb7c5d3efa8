"""Freshness dependencies: tasks, their definitions, submissions, events."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "arctic_skipped_tasks",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("task", name=op.f("pk_arctic_skipped_tasks")),
    )
    op.create_table(
        "arctic_task_definitions",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("declared_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint(
            "task", "cluster", "location", name=op.f("pk_arctic_task_definitions")
        ),
    )
    with op.batch_alter_table("arctic_task_definitions", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_arctic_task_definitions_batch"), ["batch"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_task_definitions_cluster_location"),
            ["cluster", "location"],
            unique=False,
        )

    op.create_table(
        "arctic_task_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("submission", sa.String(length=26), nullable=True),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_task_events")),
    )
    with op.batch_alter_table("arctic_task_events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_arctic_task_events_at"), ["at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_arctic_task_events_submission_id"), ["submission", "id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_task_events_task_id"), ["task", "id"], unique=False
        )

    op.create_table(
        "arctic_task_locations",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("ticked_at", UtcTime(), nullable=True),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "location", name=op.f("pk_arctic_task_locations")),
    )
    op.create_table(
        "arctic_task_publications",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submission", sa.String(length=26), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("task", "token", name=op.f("pk_arctic_task_publications")),
    )
    with op.batch_alter_table("arctic_task_publications", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_arctic_task_publications_at"), ["at"], unique=False)

    op.create_table(
        "arctic_task_submissions",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=True),
        sa.Column("group_id", sa.String(length=26), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("wanted_by", sa.String(length=26), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state_at", UtcTime(), nullable=False),
        sa.Column("required_since", UtcTime(), nullable=False),
        sa.Column("force", sa.Boolean(), nullable=False),
        sa.Column("by_hand", sa.Boolean(), nullable=False),
        sa.Column("submits_parents", sa.Boolean(), nullable=False),
        sa.Column("submitted_at", UtcTime(), nullable=False),
        sa.Column("next_check_at", UtcTime(), nullable=True),
        sa.Column("deadline_at", UtcTime(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("shares", sa.String(length=26), nullable=True),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_task_submissions")),
    )
    with op.batch_alter_table("arctic_task_submissions", schema=None) as batch_op:
        batch_op.create_index(
            "ix_arctic_task_submissions_due",
            ["cluster", "location", "next_check_at"],
            unique=False,
            sqlite_where=sa.text("ended_at is null"),
            postgresql_where=sa.text("ended_at is null"),
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_task_submissions_ended_at"), ["ended_at"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_task_submissions_group_id"), ["group_id"], unique=False
        )
        batch_op.create_index(
            "ix_arctic_task_submissions_live",
            ["task"],
            unique=False,
            sqlite_where=sa.text("ended_at is null"),
            postgresql_where=sa.text("ended_at is null"),
        )
        batch_op.create_index(
            batch_op.f("ix_arctic_task_submissions_task_submitted_at"),
            ["task", "submitted_at"],
            unique=False,
        )

    op.create_table(
        "arctic_tasks",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("acquired_at", UtcTime(), nullable=True),
        sa.Column("expires_at", UtcTime(), nullable=True),
        sa.Column("begun_at", UtcTime(), nullable=True),
        sa.Column("cluster", sa.Text(), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("submission", sa.String(length=26), nullable=True),
        sa.Column("last_success_at", UtcTime(), nullable=True),
        sa.Column("last_acquired_at", UtcTime(), nullable=True),
        sa.Column("last_success_run", sa.Text(), nullable=True),
        sa.Column("last_success_cluster", sa.Text(), nullable=True),
        sa.Column("last_token", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("task", name=op.f("pk_arctic_tasks")),
    )
    op.create_table(
        "arctic_task_waits",
        sa.Column("submission", sa.String(length=26), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("parent_submission", sa.String(length=26), nullable=True),
        sa.Column("since", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["submission"],
            ["arctic_task_submissions.id"],
            name=op.f("fk_arctic_task_waits_submission"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("submission", "kind", "name", name=op.f("pk_arctic_task_waits")),
    )
    with op.batch_alter_table("arctic_task_waits", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_arctic_task_waits_kind_name"), ["kind", "name"], unique=False
        )
