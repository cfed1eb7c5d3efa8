"""All triggers and constraints: launches, ends of runs, history of schedules, notices."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "arctic_launches",
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("resource", "holder", name=op.f("pk_arctic_launches")),
    )
    with op.batch_alter_table("arctic_launches", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_arctic_launches_at"), ["at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_arctic_launches_resource_at"), ["resource", "at"], unique=False
        )

    op.create_table(
        "arctic_run_ends",
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("resource", "status", name=op.f("pk_arctic_run_ends")),
    )
    op.create_table(
        "arctic_notices",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("send_at", UtcTime(), nullable=True),
        sa.Column("sent_to", sa.Text(), server_default="{}", nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["location_id"], ["arctic_locations.id"], name=op.f("fk_arctic_notices_location_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_notices")),
    )
    with op.batch_alter_table("arctic_notices", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_arctic_notices_location_id_send_at"),
            ["location_id", "send_at"],
            unique=False,
        )

    op.create_table(
        "arctic_schedule_history",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("schedule_id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_schedule_history_location_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_schedule_history")),
    )
    with op.batch_alter_table("arctic_schedule_history", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_arctic_schedule_history_location_id_name_id"),
            ["location_id", "name", "id"],
            unique=False,
        )

    with op.batch_alter_table("arctic_jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("forced", sa.Text(), nullable=True))

    with op.batch_alter_table("arctic_timers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("last_at", UtcTime(), nullable=True))
