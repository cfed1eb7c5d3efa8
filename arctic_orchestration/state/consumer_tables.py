"""The tables of partition consumers in the state database.

A consumer belongs to a cluster: it reads the event log of that Dagster instance. Who locks several
rows does so in this order: lease, consumer, partitions. Whoever has locked the consumer first
passes over leases that another one has locked; so nobody waits in a circle.

==============================  ===========================================================
``arctic_consumers``            one consumer: how far it has read; its row is the lock under
                                which its working set changes
``arctic_consumer_partitions``  one partition it knows: the *working set* are those that are
                                not acknowledged
``arctic_consumer_leases``      each taking of partitions: owner, token, until when, outcome
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
    # Empty: the consumer was deleted. Its row stays with the numbers it has reached, so that one
    # that is made anew under the name gives out no token, and no name of a delivery, once more.
    sa.Column("asset", sa.Text, nullable=False),
    # Where it began, for people: from_beginning, from_now or a moment.
    sa.Column("start", sa.Text, nullable=False),
    # Arrivals before the one and from the other on are not its own.
    sa.Column("since", UtcTime),
    sa.Column("until", UtcTime),
    sa.Column("storage_id", sa.Text),
    sa.Column("position", sa.Text),
    # Counts readings, so that of two that read the same one is taken.
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
    # Whether the last reading left nothing, and when that was; null: it never came so far.
    sa.Column("at_end", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("read_at", UtcTime),
    sa.Column("next_number", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("next_token", sa.BigInteger, nullable=False, server_default="1"),
    # As the code said last: for commands, which do not have it.
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("retry_seconds", sa.Float, nullable=False),
    sa.Column("lease_seconds", sa.Float, nullable=False),
    sa.Column("working_set", sa.Integer, nullable=False),
    # Arrivals that named no partition, or one that no database can hold, were passed over.
    sa.Column("passed_over", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("passed_over_reason", EscapedText),
    sa.Column("created_at", UtcTime, nullable=False),
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
    # Its place in the order of delivery, by its first arrival that is not acknowledged.
    sa.Column("place", sa.BigInteger, nullable=False),
    # Names what is delivered: the same in each attempt, another one when it arrives again.
    sa.Column("number", sa.BigInteger, nullable=False),
    # Arrivals that are not acknowledged: how many, the moments of the first and the last.
    sa.Column("arrivals", sa.Integer, nullable=False),
    sa.Column("first_at", UtcTime, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    # The newest event, as JSON.
    sa.Column("details", sa.Text, nullable=False),
    # What arrived while it is leased; all null: nothing did.
    sa.Column("next_number", sa.BigInteger),
    sa.Column("next_arrivals", sa.Integer),
    sa.Column("next_first_at", UtcTime),
    sa.Column("next_at", UtcTime),
    sa.Column("next_details", sa.Text),
    # The newest event by which it is told whether one is new.
    sa.Column("event_id", sa.BigInteger, nullable=False),
    sa.Column("event_at", UtcTime, nullable=False),
    sa.Column("token", sa.BigInteger),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", UtcTime),
    # Whether Dagster has had it among the asset's partitions: only then it can be deleted there.
    sa.Column("existed", sa.Boolean, nullable=False, server_default=sa.false()),
    # Dagster does not have it among the asset's partitions yet: it waits for that.
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
