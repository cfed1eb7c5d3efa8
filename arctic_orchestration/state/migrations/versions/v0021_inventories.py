"""Locations: the jobs, assets and partitions of the last loaded code."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "arctic_location_inventories",
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("inventory", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_location_inventories_location_id"),
        ),
        sa.PrimaryKeyConstraint("location_id", name=op.f("pk_arctic_location_inventories")),
    )
