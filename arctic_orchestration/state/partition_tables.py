"""The tables of schedules whose jobs belong to partitions of the target.

==============================  ============================================================
``arctic_schedule_partitions``  the partitions of targets for which schedules have fired
``arctic_deferred_arrivals``    arrivals that no job has yet, and what each waits for
==============================  ============================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import EscapedText, UtcTime
from arctic_orchestration.state.metadata import Id as _Id
from arctic_orchestration.state.metadata import Serial as _Serial
from arctic_orchestration.state.metadata import metadata
from arctic_orchestration.state.tables import events


def _of_schedule() -> sa.ForeignKey:
    return sa.ForeignKey("arctic_schedules.id", ondelete="CASCADE")


schedule_partitions = sa.Table(
    "arctic_schedule_partitions",
    metadata,
    sa.Column("schedule_id", _of_schedule(), primary_key=True),
    # A target partition, or a group of upstream partitions.
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("fired_at", UtcTime, nullable=False),
    # The job that fired last.
    sa.Column("job_id", _Id, nullable=False),
    # The last counted event without a partition.
    sa.Column("common_number", sa.BigInteger, nullable=False),
)

deferred_arrivals = sa.Table(
    "arctic_deferred_arrivals",
    metadata,
    sa.Column("id", _Serial, primary_key=True),
    sa.Column("location_id", sa.ForeignKey("arctic_locations.id"), nullable=False),
    sa.Column("schedule_id", _of_schedule(), nullable=False),
    sa.Column("leaf", sa.Integer, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    # What it waits for: "code" (the next tick of the dispatcher maps it), "match" (it maps to no
    # partition of the target), "checks" (a check of the asset has not passed).
    sa.Column("waits_for", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.UniqueConstraint("schedule_id", "leaf", "number"),
    sa.Index(None, "location_id", "waits_for", "id"),
)

#: joins events with their deferred arrivals
event_of_arrival = (events.c.location_id == deferred_arrivals.c.location_id) & (
    events.c.number == deferred_arrivals.c.number
)
