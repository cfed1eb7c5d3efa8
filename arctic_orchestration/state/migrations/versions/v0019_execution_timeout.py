"""Compaction: the execution timeout of a queue's attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_queues", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "execution_timeout_seconds", sa.Integer(), server_default="7200", nullable=False
            )
        )
