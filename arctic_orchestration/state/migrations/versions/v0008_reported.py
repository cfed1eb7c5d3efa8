"""Tasks: which ends of submissions were reported to Dagster; earlier ends never are."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    with op.batch_alter_table("arctic_task_submissions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("reported_at", UtcTime(), nullable=True))
        batch_op.create_index(
            "ix_arctic_task_submissions_unreported",
            ["cluster", "ended_at"],
            unique=False,
            sqlite_where=sa.text("ended_at is not null and reported_at is null"),
            postgresql_where=sa.text("ended_at is not null and reported_at is null"),
        )
    op.execute(
        "update arctic_task_submissions set reported_at = ended_at where ended_at is not null"
    )
