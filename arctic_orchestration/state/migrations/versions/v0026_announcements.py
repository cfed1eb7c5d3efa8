"""Announcements of arrivals over REST, each written once; how often a consumer was reset."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.create_table(
        "arctic_announcements",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", UtcTime(), nullable=False),
        sa.Column("written_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_announcements")),
        sa.UniqueConstraint("key", name=op.f("uq_arctic_announcements_key")),
    )
    op.create_index(op.f("ix_arctic_announcements_begun_at"), "arctic_announcements", ["begun_at"])
    with op.batch_alter_table("arctic_consumers", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("resets", sa.BigInteger(), server_default="0", nullable=False)
        )
