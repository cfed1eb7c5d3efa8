"""The authors of manual changes."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import EscapedText, UtcTime

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "arctic_audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("actor", EscapedText(), nullable=False),
        sa.Column("feature", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", EscapedText(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_audit")),
    )
    with op.batch_alter_table("arctic_audit", schema=None) as batch_op:
        batch_op.create_index(op.f("ix_arctic_audit_at"), ["at"])
    with op.batch_alter_table("arctic_queue_pauses", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("actor", sa.Text(), server_default=sa.text("''"), nullable=False)
        )
