"""The tables of the plain sensors of Dagster that are sources of requests.

==========================  ================================================================
``arctic_sources``          how far each sensor has been evaluated: its cursor, and its tick
``arctic_source_requests``  the run keys that were requested, each once for ever
==========================  ================================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import UtcTime
from arctic_orchestration.state.metadata import metadata

sources = sa.Table(
    "arctic_sources",
    metadata,
    sa.Column("location_id", sa.ForeignKey("arctic_locations.id"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("cursor", sa.Text),
    # The number of the next evaluation: the requests of each are stored once.
    sa.Column("tick", sa.BigInteger, nullable=False),
    sa.Column("last_run_key", sa.Text),
    sa.Column("evaluated_at", UtcTime),
    # The last result, for people.
    sa.Column("note", sa.Text, nullable=False),
)

source_requests = sa.Table(
    "arctic_source_requests",
    metadata,
    sa.Column("location_id", sa.ForeignKey("arctic_locations.id"), primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("run_key", sa.Text, primary_key=True),
    sa.Column("at", UtcTime, nullable=False),
)
