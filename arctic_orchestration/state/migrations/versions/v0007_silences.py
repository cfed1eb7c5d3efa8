"""Tasks: silent runs are counted, and a location belongs to one Dagster storage."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    with op.batch_alter_table("arctic_task_submissions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("silences", sa.Integer(), server_default="0", nullable=False))

    with op.batch_alter_table("arctic_task_locations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("storage_id", sa.Text(), nullable=True))
