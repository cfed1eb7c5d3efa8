"""Jobs: which of their runs began."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    with op.batch_alter_table("arctic_jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("begun_run_id", sa.Text(), nullable=True))
