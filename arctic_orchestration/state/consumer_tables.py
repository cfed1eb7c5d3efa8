"""The tables of partition consumers in the state database.

A consumer belongs to a cluster: it reads the event log of that Dagster instance. Rows are locked in
the order lease, consumer, partitions. A transaction that has locked the consumer first skips leases
that others have locked, which prevents deadlocks.

==============================  ===========================================================
``arctic_consumers``            one consumer: its position; its row is the lock under
                                which its working set changes
``arctic_consumer_partitions``  one known partition; the *working set* are those that are
                                not acknowledged
``arctic_consumer_leases``      each lease of partitions: owner, token, expiry, outcome
==============================  ===========================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import EscapedText, UtcTime
from arctic_orchestration.state.metadata import Serial, metadata

consumers = sa.Table(
    "arctic_consumers",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # Empty: the consumer was deleted. Its row keeps its counters, so that a new consumer of the
    # same name reuses neither a token nor a delivery name.
    sa.Column("asset", sa.Text, nullable=False),
    # Where it began, for people: from_beginning, from_now or a moment.
    sa.Column("start", sa.Text, nullable=False),
    # Arrivals before the first and from the second on are excluded.
    sa.Column("since", UtcTime),
    sa.Column("until", UtcTime),
    sa.Column("storage_id", sa.Text),
    sa.Column("position", sa.Text),
    # Counts reads, so that one of two concurrent reads is accepted.
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("resets", sa.BigInteger, nullable=False, server_default="0"),
    # Whether the last read reached the end, and when one last did; null: never.
    sa.Column("at_end", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("read_at", UtcTime),
    sa.Column("next_number", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("next_token", sa.BigInteger, nullable=False, server_default="1"),
    # The last declaration of the code: for commands, which do not have it.
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("retry_seconds", sa.Float, nullable=False),
    sa.Column("lease_seconds", sa.Float, nullable=False),
    sa.Column("working_set", sa.Integer, nullable=False),
    # Arrivals without a partition, or with one that no database can store, were skipped.
    sa.Column("passed_over", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("passed_over_reason", EscapedText),
    sa.Column("created_at", UtcTime, nullable=False),
    # The first number whose delivery has the moment of the arrival in its name.
    sa.Column("moments_from", sa.BigInteger, nullable=False, server_default="1"),
    # The dynamic partitions in which its keys were looked up; null: none, or before revision 0035.
    sa.Column("keys_of", EscapedText),
    sa.UniqueConstraint("cluster", "name"),
)

_waiting = sa.text("state = 'waiting'")
_leased = sa.text("state = 'leased'")
_live = sa.text("state = 'live'")

consumer_partitions = sa.Table(
    "arctic_consumer_partitions",
    metadata,
    sa.Column("consumer_id", sa.ForeignKey(consumers.c.id), primary_key=True),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("state_at", UtcTime, nullable=False),
    # Why its last attempt failed, or what a person did.
    sa.Column("reason", EscapedText, nullable=False),
    # Its place in the order of delivery, by its first unacknowledged arrival.
    sa.Column("place", sa.BigInteger, nullable=False),
    # Identifies the delivery: the same in each attempt, another one when it arrives again.
    sa.Column("number", sa.BigInteger, nullable=False),
    # Unacknowledged arrivals: how many, and the moments of the first and the last.
    sa.Column("arrivals", sa.Integer, nullable=False),
    sa.Column("first_at", UtcTime, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    # The newest event, as JSON.
    sa.Column("details", sa.Text, nullable=False),
    # Arrivals during the lease; all null: none.
    sa.Column("next_number", sa.BigInteger),
    sa.Column("next_arrivals", sa.Integer),
    sa.Column("next_first_at", UtcTime),
    sa.Column("next_at", UtcTime),
    sa.Column("next_details", sa.Text),
    # The newest event, which identifies repeated ones.
    sa.Column("event_id", sa.BigInteger, nullable=False),
    sa.Column("event_at", UtcTime, nullable=False),
    sa.Column("token", sa.BigInteger),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", UtcTime),
    # Whether the partition existed in Dagster: only then can it be deleted there.
    sa.Column("existed", sa.Boolean, nullable=False, server_default=sa.false()),
    # It does not exist in Dagster yet: it waits for that.
    sa.Column("held", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("acknowledged_at", UtcTime),
    sa.Column("acknowledgements", sa.Integer, nullable=False, server_default="0"),
    sa.Index(
        "ix_arctic_consumer_partitions_waiting", "consumer_id", "place",
        sqlite_where=_waiting, postgresql_where=_waiting,
    ),
    sa.Index(
        "ix_arctic_consumer_partitions_leased", "consumer_id", "token",
        sqlite_where=_leased, postgresql_where=_leased,
    ),
)  # fmt: skip

consumer_leases = sa.Table(
    "arctic_consumer_leases",
    metadata,
    sa.Column("consumer_id", sa.ForeignKey(consumers.c.id), primary_key=True),
    sa.Column("token", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("partitions", sa.Integer, nullable=False),
    sa.Column("taken_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("ended_at", UtcTime),
    sa.Index(
        "ix_arctic_consumer_leases_live", "consumer_id", "expires_at",
        sqlite_where=_live, postgresql_where=_live,
    ),
)  # fmt: skip
