"""The first schema that can be migrated; empty databases get that of the package instead."""

revision = "0028"
down_revision = None


def upgrade() -> None:
    pass
