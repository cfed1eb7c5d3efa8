"""Manifests that the upkeep of tables merges, and the workers of compaction queues."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_upkeep", schema=None) as batch_op:
        batch_op.add_column(sa.Column("manifests_from", sa.Integer(), nullable=True))
    with op.batch_alter_table("arctic_compaction_queues", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("min_workers", sa.Integer(), server_default="0", nullable=False)
        )
        batch_op.add_column(sa.Column("application", sa.Text(), nullable=True))
