"""Moments in the names of a consumer's deliveries, and former names of code locations."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    with op.batch_alter_table("arctic_locations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("former_names", sa.Text(), nullable=True))
    with op.batch_alter_table("arctic_consumers", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("moments_from", sa.BigInteger(), server_default="1", nullable=False)
        )
    # Data may have been written under the names of deliveries that are not acknowledged yet.
    op.execute("update arctic_consumers set moments_from = next_number")
