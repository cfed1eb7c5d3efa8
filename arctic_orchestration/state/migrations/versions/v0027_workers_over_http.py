"""Workers over HTTP: what they report and are to do, and the keys of their claims."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    with op.batch_alter_table("arctic_compaction_workers", schema=None) as batch_op:
        for name, default in (("order", "run"), ("version", ""), ("labels", "{}")):
            batch_op.add_column(
                sa.Column(name, sa.Text(), server_default=sa.text(f"'{default}'"), nullable=False)
            )
        batch_op.add_column(sa.Column("memory", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("arctic_compaction_attempts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("worker_id", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("claim_key", sa.Text(), nullable=True))
    op.create_index(
        "uq_arctic_compaction_attempts_claims",
        "arctic_compaction_attempts",
        ["worker_id", "claim_key"],
        unique=True,
        sqlite_where=sa.text("claim_key is not null"),
        postgresql_where=sa.text("claim_key is not null"),
    )
