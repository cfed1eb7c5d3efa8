"""Events of Dagster's log that could not be stored."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "arctic_unreadable_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("found_at", UtcTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_unreadable_events")),
    )
    op.create_index(
        op.f("ix_arctic_unreadable_events_cluster_id"),
        "arctic_unreadable_events",
        ["cluster", "id"],
    )
