"""Plain sensors of Dagster as sources of requests."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0031"
down_revision = "0030"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "arctic_sources",
        sa.Column("location_id", _SERIAL, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=True),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.Column("last_run_key", sa.Text(), nullable=True),
        sa.Column("evaluated_at", UtcTime(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_sources_location_id"),
        ),
        sa.PrimaryKeyConstraint("location_id", "name", name=op.f("pk_arctic_sources")),
    )
    op.create_table(
        "arctic_source_requests",
        sa.Column("location_id", _SERIAL, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("run_key", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_source_requests_location_id"),
        ),
        sa.PrimaryKeyConstraint(
            "location_id", "source", "run_key", name=op.f("pk_arctic_source_requests")
        ),
    )
