"""The table of Dagster's schedules and sensors that were adopted.

===========================  ===============================================================
``arctic_adoptions``         the journal: how far each cut-over, and each way back, has come
===========================  ===============================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import UtcTime
from arctic_orchestration.state.metadata import Serial as _Serial
from arctic_orchestration.state.metadata import metadata

adoptions = sa.Table(
    "arctic_adoptions",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("location_id", sa.ForeignKey("arctic_locations.id"), nullable=False),
    # Dagster's name of the schedule or sensor, and the name of ours.
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("schedule", sa.Text, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    # Whether Dagster's was running, by its own default or not, or stopped.
    sa.Column("was", sa.Text, nullable=False),
    # Whether the schedule was created for the adoption, and is deleted on the way back.
    sa.Column("created", sa.Boolean, nullable=False),
    # What belongs to the one and not to the other: ticks up to a moment, or events up to an id.
    sa.Column("boundary_at", UtcTime),
    sa.Column("boundary_event", sa.BigInteger),
    sa.Column("at", UtcTime, nullable=False),
    sa.UniqueConstraint("location_id", "name"),
)
