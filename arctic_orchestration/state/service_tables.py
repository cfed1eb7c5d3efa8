"""The tables of the service.

========================  ============================================================
``arctic_tokens``         tokens of the REST API: their scopes and a hash, never the token
``arctic_announcements``  announcements of arrivals, each of which is written once
========================  ============================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import UtcTime
from arctic_orchestration.state.metadata import Id, metadata

tokens = sa.Table(
    "arctic_tokens",
    metadata,
    # The public part of the token, by which its row is found.
    sa.Column("id", Id, primary_key=True),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # SHA-256 of the whole token, as hexadecimal digits.
    sa.Column("digest", sa.Text, nullable=False),
    # The written scopes, as a JSON list.
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
    # With an error of a few minutes.
    sa.Column("used_at", UtcTime),
    sa.UniqueConstraint("cluster", "name"),
)

announcements = sa.Table(
    "arctic_announcements",
    metadata,
    # A tag of its materializations in Dagster's event log.
    sa.Column("id", Id, primary_key=True),
    # SHA-256 of the cluster, the caller and the key of the request, as hexadecimal digits.
    sa.Column("key", sa.Text, nullable=False, unique=True),
    # SHA-256 of the body.
    sa.Column("digest", sa.Text, nullable=False),
    # The last event of Dagster's log before it.
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("begun_at", UtcTime, nullable=False),
    # Null: not known to be in Dagster's log.
    sa.Column("written_at", UtcTime),
    sa.Index(None, "begun_at"),
)
