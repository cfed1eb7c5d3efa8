"""Compaction: an observer's plan of a table."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_tables", schema=None) as batch_op:
        batch_op.add_column(sa.Column("observed_at", UtcTime(), nullable=True))
        batch_op.add_column(sa.Column("observed_snapshot_id", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("observed_reason", sa.Text(), nullable=True))
