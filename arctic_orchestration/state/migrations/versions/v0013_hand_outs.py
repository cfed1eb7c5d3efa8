"""Jobs: the tick of Dagster that holds a launch request, and until when."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    with op.batch_alter_table("arctic_jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("requested_tick", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("request_expires_at", UtcTime(), nullable=True))
