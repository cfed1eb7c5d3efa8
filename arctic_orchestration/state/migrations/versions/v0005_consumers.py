"""Partition consumers: their positions, working sets and leases."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "arctic_consumers",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("asset", sa.Text(), nullable=False),
        sa.Column("start", sa.Text(), nullable=False),
        sa.Column("since", UtcTime(), nullable=True),
        sa.Column("until", UtcTime(), nullable=True),
        sa.Column("storage_id", sa.Text(), nullable=True),
        sa.Column("position", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("at_end", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("read_at", UtcTime(), nullable=True),
        sa.Column("next_number", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("next_token", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("retry_seconds", sa.Float(), nullable=False),
        sa.Column("lease_seconds", sa.Float(), nullable=False),
        sa.Column("working_set", sa.Integer(), nullable=False),
        sa.Column("passed_over", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("passed_over_reason", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_consumers")),
        sa.UniqueConstraint("cluster", "name", name=op.f("uq_arctic_consumers_cluster_name")),
    )
    op.create_table(
        "arctic_consumer_leases",
        sa.Column(
            "consumer_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.Column("taken_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["consumer_id"],
            ["arctic_consumers.id"],
            name=op.f("fk_arctic_consumer_leases_consumer_id"),
        ),
        sa.PrimaryKeyConstraint("consumer_id", "token", name=op.f("pk_arctic_consumer_leases")),
    )
    with op.batch_alter_table("arctic_consumer_leases", schema=None) as batch_op:
        batch_op.create_index(
            "ix_arctic_consumer_leases_live",
            ["consumer_id", "expires_at"],
            unique=False,
            sqlite_where=sa.text("state = 'live'"),
            postgresql_where=sa.text("state = 'live'"),
        )

    op.create_table(
        "arctic_consumer_partitions",
        sa.Column(
            "consumer_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_at", UtcTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("arrivals", sa.Integer(), nullable=False),
        sa.Column("first_at", UtcTime(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("next_number", sa.BigInteger(), nullable=True),
        sa.Column("next_arrivals", sa.Integer(), nullable=True),
        sa.Column("next_first_at", UtcTime(), nullable=True),
        sa.Column("next_at", UtcTime(), nullable=True),
        sa.Column("next_details", sa.Text(), nullable=True),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("event_at", UtcTime(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("not_before", UtcTime(), nullable=True),
        sa.Column("existed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("held", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("acknowledged_at", UtcTime(), nullable=True),
        sa.Column("acknowledgements", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["consumer_id"],
            ["arctic_consumers.id"],
            name=op.f("fk_arctic_consumer_partitions_consumer_id"),
        ),
        sa.PrimaryKeyConstraint(
            "consumer_id", "partition", name=op.f("pk_arctic_consumer_partitions")
        ),
    )
    with op.batch_alter_table("arctic_consumer_partitions", schema=None) as batch_op:
        batch_op.create_index(
            "ix_arctic_consumer_partitions_leased",
            ["consumer_id", "token"],
            unique=False,
            sqlite_where=sa.text("state = 'leased'"),
            postgresql_where=sa.text("state = 'leased'"),
        )
        batch_op.create_index(
            "ix_arctic_consumer_partitions_waiting",
            ["consumer_id", "place"],
            unique=False,
            sqlite_where=sa.text("state = 'waiting'"),
            postgresql_where=sa.text("state = 'waiting'"),
        )
