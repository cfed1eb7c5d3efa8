"""The hours and budgets of compaction queues, full rewrites, and the upkeep of tables."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import EscapedText, UtcTime

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_queues", schema=None) as batch_op:
        batch_op.add_column(sa.Column("hours", sa.Text(), server_default="always", nullable=False))
        batch_op.add_column(sa.Column("budget", sa.Float(), server_default="0", nullable=False))
    with op.batch_alter_table("arctic_compaction_partitions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sequence_number", sa.BigInteger(), nullable=True))
    op.create_table(
        "arctic_compaction_budgets",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("spent_seconds", sa.Float(), nullable=True),
        sa.Column("spent_at", UtcTime(), nullable=True),
        sa.Column("mean_seconds", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["queue"],
            ["arctic_compaction_queues.name"],
            name=op.f("fk_arctic_compaction_budgets_queue"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("queue", name=op.f("pk_arctic_compaction_budgets")),
    )
    op.create_table(
        "arctic_compaction_upkeep",
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("expire_after_seconds", sa.Float(), nullable=True),
        sa.Column("orphans_after_seconds", sa.Float(), nullable=True),
        sa.Column("next_at", UtcTime(), nullable=True),
        sa.Column("result", EscapedText(), nullable=True),
        sa.ForeignKeyConstraint(
            ["table_name"],
            ["arctic_compaction_tables.name"],
            name=op.f("fk_arctic_compaction_upkeep_table_name"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("table_name", name=op.f("pk_arctic_compaction_upkeep")),
    )
