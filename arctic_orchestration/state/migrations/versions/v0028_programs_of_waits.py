"""What a queued run runs, so that people need not know its id."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    with op.batch_alter_table("arctic_queue_waits", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("program", sa.Text(), server_default=sa.text("''"), nullable=False)
        )
