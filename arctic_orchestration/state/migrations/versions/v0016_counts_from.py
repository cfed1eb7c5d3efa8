"""Schedules: the moment from which events count, if their place in the log was unknown."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    with op.batch_alter_table("arctic_schedules", schema=None) as batch_op:
        batch_op.add_column(sa.Column("counts_from", UtcTime(), nullable=True))
