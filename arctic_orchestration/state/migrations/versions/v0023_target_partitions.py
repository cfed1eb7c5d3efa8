"""Jobs, firings and arrivals by the partitions of the target."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0023"
down_revision = "0022"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ID = sa.String(26)


def upgrade() -> None:
    op.add_column("arctic_jobs", sa.Column("scope", sa.Text()))
    op.create_index(
        op.f("ix_arctic_jobs_schedule_id_scope_created_at"),
        "arctic_jobs",
        ["schedule_id", "scope", "created_at"],
    )
    op.create_table(
        "arctic_schedule_partitions",
        sa.Column("schedule_id", _ID, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("fired_at", UtcTime(), nullable=False),
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("common_number", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["arctic_schedules.id"],
            name=op.f("fk_arctic_schedule_partitions_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("schedule_id", "scope", name=op.f("pk_arctic_schedule_partitions")),
    )
    op.create_table(
        "arctic_deferred_arrivals",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("location_id", _SERIAL, nullable=False),
        sa.Column("schedule_id", _ID, nullable=False),
        sa.Column("leaf", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("waits_for", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_deferred_arrivals_location_id"),
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["arctic_schedules.id"],
            name=op.f("fk_arctic_deferred_arrivals_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_deferred_arrivals")),
        sa.UniqueConstraint(
            "schedule_id",
            "leaf",
            "number",
            name=op.f("uq_arctic_deferred_arrivals_schedule_id_leaf_number"),
        ),
    )
    op.create_index(
        op.f("ix_arctic_deferred_arrivals_location_id_waits_for_id"),
        "arctic_deferred_arrivals",
        ["location_id", "waits_for", "id"],
    )
