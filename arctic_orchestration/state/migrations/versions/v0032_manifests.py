"""Manifests that the upkeep of tables merges."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_upkeep", schema=None) as batch_op:
        batch_op.add_column(sa.Column("manifests_from", sa.Integer(), nullable=True))
