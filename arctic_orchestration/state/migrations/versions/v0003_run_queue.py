"""The run queue: pauses, manual levels, what runs wait for, and the last pass."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "arctic_queue_pauses",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "kind", "name", name=op.f("pk_arctic_queue_pauses")),
    )
    op.create_table(
        "arctic_queue_levels",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "run_id", name=op.f("pk_arctic_queue_levels")),
    )
    op.create_table(
        "arctic_queue_waits",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "run_id", name=op.f("pk_arctic_queue_waits")),
    )
    op.create_table(
        "arctic_queue_passes",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("passed_at", UtcTime(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_arctic_queue_passes")),
    )
