"""The journal of adopted schedules and sensors of Dagster, and where a schedule ends."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0029"
down_revision = "0028"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "arctic_adoptions",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("location_id", _SERIAL, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("was", sa.Text(), nullable=False),
        sa.Column("created", sa.Boolean(), nullable=False),
        sa.Column("boundary_at", UtcTime(), nullable=True),
        sa.Column("boundary_event", sa.BigInteger(), nullable=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_adoptions_location_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_adoptions")),
        sa.UniqueConstraint(
            "location_id", "name", name=op.f("uq_arctic_adoptions_location_id_name")
        ),
    )
    with op.batch_alter_table("arctic_schedules", schema=None) as batch_op:
        batch_op.add_column(sa.Column("until_event", sa.BigInteger(), nullable=True))
