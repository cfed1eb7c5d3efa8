"""The dynamic partitions in which a consumer looked up its keys: only these delete a key."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    with op.batch_alter_table("arctic_consumers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("keys_of", sa.Text(), nullable=True))
