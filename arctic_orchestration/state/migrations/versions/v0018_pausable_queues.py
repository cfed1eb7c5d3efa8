"""Compaction: queues can be paused and drained."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_queues", schema=None) as batch_op:
        batch_op.add_column(sa.Column("state", sa.Text(), server_default="open", nullable=False))
