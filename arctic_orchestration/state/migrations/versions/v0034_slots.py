"""How many tasks of a batch may run at once, with each wait for a slot, and an index to count them.

Waits from before have no number, until their submissions are checked the next time.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    with op.batch_alter_table("arctic_task_waits", schema=None) as batch_op:
        batch_op.add_column(sa.Column("slots", sa.Integer(), nullable=True))
    op.create_index(
        "ix_arctic_task_submissions_batch",
        "arctic_task_submissions",
        ["batch", "state"],
        sqlite_where=sa.text("ended_at is null"),
        postgresql_where=sa.text("ended_at is null"),
    )
