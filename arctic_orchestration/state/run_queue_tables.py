"""The tables of the run queue.

========================  ============================================================
``arctic_queue_pauses``   queues and groups of the run queue that a person paused or resumed
``arctic_queue_levels``   manual levels of queued runs, until a pass has written them
``arctic_queue_waits``    the last reported reason of each queued run's wait
``arctic_queue_passes``   the last pass of each cluster's run queue, and its error
========================  ============================================================
"""

import sqlalchemy as sa

from arctic_orchestration.state.dialect import EscapedText, UtcTime
from arctic_orchestration.state.metadata import metadata

queue_pauses = sa.Table(
    "arctic_queue_pauses",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    # The person; empty: unknown.
    sa.Column("actor", sa.Text, nullable=False, server_default=sa.text("''")),
)

queue_levels = sa.Table(
    "arctic_queue_levels",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)

queue_waits = sa.Table(
    "arctic_queue_waits",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("run_id", sa.Text, primary_key=True),
    # The reason's key, which detects changes; the reason is the text for people.
    sa.Column("gate", EscapedText, nullable=False),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("cause", sa.Text, nullable=False, server_default=sa.text("''")),
    # What it runs, for people.
    sa.Column("program", sa.Text, nullable=False, server_default=sa.text("''")),
)

queue_passes = sa.Table(
    "arctic_queue_passes",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("passed_at", UtcTime, nullable=False),
    sa.Column("problem", EscapedText),
)
