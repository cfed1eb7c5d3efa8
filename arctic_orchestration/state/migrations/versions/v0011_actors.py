"""Histories of schedules and jobs: the author."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    for table in ("arctic_schedule_history", "arctic_job_history"):
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.add_column(
                sa.Column("actor", sa.Text(), server_default=sa.text("''"), nullable=False)
            )
