"""Schedules: the last declaration of the code, and schedules that a person deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "arctic_deleted_schedules",
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("declared_digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_deleted_schedules_location_id"),
        ),
        sa.PrimaryKeyConstraint("location_id", "name", name=op.f("pk_arctic_deleted_schedules")),
    )
    with op.batch_alter_table("arctic_schedules", schema=None) as batch_op:
        batch_op.add_column(sa.Column("declared_digest", sa.Text(), nullable=True))
