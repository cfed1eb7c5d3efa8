"""The causes of waits as columns: grouping ten thousand of them parses no text."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_jobs = sa.table(
    "arctic_jobs",
    *(sa.column(name, sa.Text) for name in ("id", "state", "reason", "verdicts", "cause")),
)
_SUSPENDED = "the schedule is suspended"
_waits = sa.table(
    "arctic_queue_waits",
    *(sa.column(name, sa.Text) for name in ("cluster", "run_id", "gate", "cause")),
)


def upgrade() -> None:
    with op.batch_alter_table("arctic_jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("cause", sa.Text(), nullable=True))
    with op.batch_alter_table("arctic_queue_waits", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("cause", sa.Text(), server_default=sa.text("''"), nullable=False)
        )
    connection = op.get_bind()
    held = sa.select(_jobs.c.id, _jobs.c.verdicts).where(
        _jobs.c.state == "waiting_constraints", _jobs.c.verdicts.is_not(None)
    )
    for row in connection.execute(held).all():
        new = sa.update(_jobs).where(_jobs.c.id == row.id)
        connection.execute(new.values(cause=_cause_of_job(row.verdicts)))
    # No tick looks at these before they are resumed.
    kept = (_jobs.c.state == "waiting_constraints", _jobs.c.reason.startswith(_SUSPENDED))
    connection.execute(sa.update(_jobs).where(*kept).values(cause="suspended"))
    for row in connection.execute(sa.select(_waits)).all():
        this = (_waits.c.cluster == row.cluster, _waits.c.run_id == row.run_id)
        connection.execute(sa.update(_waits).where(*this).values(cause=_cause_of_run(row.gate)))


def _cause_of_job(text: str) -> str:
    """Returns the first constraint that holds it; its next check adds the group."""
    verdicts: list[dict[str, Any]] = json.loads(text)
    held = (verdict["constraint"] for verdict in verdicts if verdict["decision"] == "hold")
    return next(held, "target")


def _cause_of_run(gate: str) -> str:
    parts = gate.split(":")
    if parts[0] == "tag":
        return "tag"
    return ":".join(parts[:3] if parts[0] == "paused" else parts[:2])
