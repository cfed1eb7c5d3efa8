"""The package version that upgraded the schema, for the message of an older one."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "arctic_schema_upgrades",
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("package", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_arctic_schema_upgrades")),
    )
