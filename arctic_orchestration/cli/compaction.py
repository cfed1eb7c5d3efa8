"""``arctic compaction``: small files of lake tables that are merged into larger ones."""

import typer

from arctic_orchestration.cli import (
    compaction_catalog,
    compaction_explained,
    compaction_maintenance,
    compaction_plan,
    compaction_queues,
    compaction_records,
    compaction_run,
    compaction_service,
    compaction_tables,
    compaction_tasks,
)

app = typer.Typer(
    help="Small files of lake tables that are merged into larger ones.", no_args_is_help=True
)
app.command(name="status")(compaction_tables.status)
app.command(name="explain")(compaction_explained.explain)
app.command(name="plan")(compaction_plan.plan)
app.add_typer(compaction_queues.app, name="queues")
app.command(name="map")(compaction_tables.map_)
app.command(name="unmap")(compaction_tables.unmap)
app.command(name="tasks")(compaction_tasks.tasks)
app.command(name="task")(compaction_tasks.task)
app.command(name="retry")(compaction_tasks.retry)
app.command(name="cancel")(compaction_tasks.cancel)
app.command(name="records")(compaction_records.records)
app.command(name="run")(compaction_run.run)
app.command(name="tick")(compaction_service.tick)
app.command(name="serve")(compaction_service.serve)
app.command(name="due")(compaction_tables.due)
app.command(name="wake")(compaction_tables.wake)
app.command(name="forget-catalog")(compaction_catalog.forget_catalog)
app.command(name="expire-snapshots")(compaction_maintenance.expire_snapshots)
app.command(name="remove-orphans")(compaction_maintenance.remove_orphans)
