"""Compaction: the place of a task among those of its table; earlier tasks have the first."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_tasks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("place", sa.Integer(), server_default="0", nullable=False))
