"""Tokens of the REST API; states and requests in the audit log; what the code declared."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "arctic_tokens",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=True),
        sa.Column("revoked_at", UtcTime(), nullable=True),
        sa.Column("used_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_tokens")),
        sa.UniqueConstraint("cluster", "name", name=op.f("uq_arctic_tokens_cluster_name")),
    )
    with op.batch_alter_table("arctic_schedules", schema=None) as batch_op:
        batch_op.add_column(sa.Column("declared", sa.Text(), nullable=True))
    with op.batch_alter_table("arctic_audit", schema=None) as batch_op:
        batch_op.add_column(sa.Column("before", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("after", sa.Text(), nullable=True))
        for name in ("address", "request_id"):
            batch_op.add_column(
                sa.Column(name, sa.Text(), server_default=sa.text("''"), nullable=False)
            )
