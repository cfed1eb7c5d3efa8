"""The state database of the first release."""

import sqlalchemy as sa
from alembic import op

from arctic_orchestration.state.dialect import UtcTime

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "arctic_locations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Text(), nullable=True),
        sa.Column("storage_id", sa.Text(), nullable=True),
        sa.Column("definitions_digest", sa.Text(), nullable=True),
        sa.Column("next_event", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("ticked_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_locations")),
        sa.UniqueConstraint("cluster", "name", name=op.f("uq_arctic_locations_cluster_name")),
    )
    op.create_table(
        "arctic_resources",
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_arctic_resources")),
    )
    op.create_table(
        "arctic_events",
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("taken_at", UtcTime(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"], ["arctic_locations.id"], name=op.f("fk_arctic_events_location_id")
        ),
        sa.PrimaryKeyConstraint("location_id", "number", name=op.f("pk_arctic_events")),
    )
    op.create_index(op.f("ix_arctic_events_taken_at"), "arctic_events", ["taken_at"], unique=False)
    op.create_table(
        "arctic_holders",
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["location_id"], ["arctic_locations.id"], name=op.f("fk_arctic_holders_location_id")
        ),
        sa.PrimaryKeyConstraint("resource", "holder", name=op.f("pk_arctic_holders")),
    )
    op.create_index(op.f("ix_arctic_holders_holder"), "arctic_holders", ["holder"], unique=False)
    op.create_table(
        "arctic_runs",
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"], ["arctic_locations.id"], name=op.f("fk_arctic_runs_location_id")
        ),
        sa.PrimaryKeyConstraint("location_id", "run_id", name=op.f("pk_arctic_runs")),
    )
    op.create_table(
        "arctic_schedules",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("status_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"], ["arctic_locations.id"], name=op.f("fk_arctic_schedules_location_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_schedules")),
        sa.UniqueConstraint(
            "location_id", "name", name=op.f("uq_arctic_schedules_location_id_name")
        ),
    )
    op.create_table(
        "arctic_jobs",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("schedule_id", sa.String(length=26), nullable=False),
        sa.Column("schedule_version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("arrivals", sa.Text(), nullable=False),
        sa.Column("partition_start", sa.Text(), nullable=True),
        sa.Column("partition_end", sa.Text(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("satisfied_at", UtcTime(), nullable=True),
        sa.Column("next_check_at", UtcTime(), nullable=True),
        sa.Column("deadline_at", UtcTime(), nullable=True),
        sa.Column("held_by", sa.Text(), nullable=True),
        sa.Column("verdicts", sa.Text(), nullable=True),
        sa.Column("launch", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("requested_at", UtcTime(), nullable=True),
        sa.Column("requests", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["location_id"], ["arctic_locations.id"], name=op.f("fk_arctic_jobs_location_id")
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["arctic_schedules.id"],
            name=op.f("fk_arctic_jobs_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_jobs")),
    )
    op.create_index(
        "ix_arctic_jobs_active",
        "arctic_jobs",
        ["location_id", "state", "requested_at"],
        unique=False,
        sqlite_where=sa.text("state in ('launching', 'launched')"),
        postgresql_where=sa.text("state in ('launching', 'launched')"),
    )
    op.create_index(
        "ix_arctic_jobs_due", "arctic_jobs", ["location_id", "next_check_at"], unique=False
    )
    op.create_index(
        "ix_arctic_jobs_held",
        "arctic_jobs",
        ["held_by"],
        unique=False,
        sqlite_where=sa.text("state = 'waiting_constraints'"),
        postgresql_where=sa.text("state = 'waiting_constraints'"),
    )
    op.create_index(
        op.f("ix_arctic_jobs_location_id_ended_at"),
        "arctic_jobs",
        ["location_id", "ended_at"],
        unique=False,
    )
    op.create_index(op.f("ix_arctic_jobs_run_id"), "arctic_jobs", ["run_id"], unique=False)
    op.create_index(
        op.f("ix_arctic_jobs_schedule_id_created_at"),
        "arctic_jobs",
        ["schedule_id", "created_at"],
        unique=False,
    )
    op.create_index(
        "uq_arctic_jobs_one_waiting",
        "arctic_jobs",
        ["schedule_id", "waiting_for"],
        unique=True,
        sqlite_where=sa.text("state in ('waiting_trigger', 'waiting_constraints')"),
        postgresql_where=sa.text("state in ('waiting_trigger', 'waiting_constraints')"),
    )
    op.create_table(
        "arctic_schedule_keys",
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("event_key", sa.Text(), nullable=False),
        sa.Column("schedule_id", sa.String(length=26), nullable=False),
        sa.Column("leaf", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"],
            ["arctic_locations.id"],
            name=op.f("fk_arctic_schedule_keys_location_id"),
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["arctic_schedules.id"],
            name=op.f("fk_arctic_schedule_keys_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "location_id", "event_key", "schedule_id", "leaf", name=op.f("pk_arctic_schedule_keys")
        ),
    )
    op.create_index(
        op.f("ix_arctic_schedule_keys_schedule_id"),
        "arctic_schedule_keys",
        ["schedule_id"],
        unique=False,
    )
    op.create_table(
        "arctic_timers",
        sa.Column("schedule_id", sa.String(length=26), nullable=False),
        sa.Column("leaf", sa.Integer(), nullable=False),
        sa.Column(
            "location_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("due_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["location_id"], ["arctic_locations.id"], name=op.f("fk_arctic_timers_location_id")
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["arctic_schedules.id"],
            name=op.f("fk_arctic_timers_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("schedule_id", "leaf", name=op.f("pk_arctic_timers")),
    )
    op.create_index(
        op.f("ix_arctic_timers_location_id_due_at"),
        "arctic_timers",
        ["location_id", "due_at"],
        unique=False,
    )
    op.create_table(
        "arctic_job_events",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("leaf", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("location_id", sa.BigInteger(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["arctic_jobs.id"],
            name=op.f("fk_arctic_job_events_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "leaf", "number", name=op.f("pk_arctic_job_events")),
    )
    op.create_index(
        op.f("ix_arctic_job_events_job_id_leaf_partition"),
        "arctic_job_events",
        ["job_id", "leaf", "partition"],
        unique=False,
    )
    op.create_index(
        op.f("ix_arctic_job_events_location_id_number"),
        "arctic_job_events",
        ["location_id", "number"],
        unique=False,
    )
    op.create_table(
        "arctic_job_history",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["arctic_jobs.id"],
            name=op.f("fk_arctic_job_history_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arctic_job_history")),
    )
    op.create_index(
        op.f("ix_arctic_job_history_job_id_id"),
        "arctic_job_history",
        ["job_id", "id"],
        unique=False,
    )
