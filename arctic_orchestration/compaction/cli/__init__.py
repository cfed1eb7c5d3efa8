"""``arctic compaction``: merges small files of lake tables into larger ones."""

import typer

from arctic_orchestration.compaction.cli import explain as compaction_explained
from arctic_orchestration.compaction.cli import forget_catalog as compaction_catalog
from arctic_orchestration.compaction.cli import maintenance as compaction_maintenance
from arctic_orchestration.compaction.cli import plan as compaction_plan
from arctic_orchestration.compaction.cli import queues as compaction_queues
from arctic_orchestration.compaction.cli import reads as compaction_reads
from arctic_orchestration.compaction.cli import records as compaction_records
from arctic_orchestration.compaction.cli import run as compaction_run
from arctic_orchestration.compaction.cli import scans as compaction_scans
from arctic_orchestration.compaction.cli import serve as compaction_service
from arctic_orchestration.compaction.cli import tables as compaction_tables
from arctic_orchestration.compaction.cli import tasks as compaction_tasks
from arctic_orchestration.compaction.cli import worker as compaction_worker
from arctic_orchestration.compaction.cli import workers as compaction_workers

app = typer.Typer(no_args_is_help=True)
app.command(name="list")(compaction_tables.list_)
app.command(name="explain")(compaction_explained.explain)
app.command(name="plan")(compaction_plan.plan)
app.add_typer(compaction_queues.app, name="queues")
app.command(name="map")(compaction_tables.map_)
app.command(name="unmap")(compaction_tables.unmap)
app.add_typer(compaction_tasks.app, name="tasks")
app.command(name="records")(compaction_records.records)
app.command(name="reads")(compaction_reads.reads)
app.command(name="scans")(compaction_scans.scans)
app.command(name="worker")(compaction_worker.worker)
app.add_typer(compaction_workers.app, name="workers")
app.command(name="run")(compaction_run.run)
app.command(name="tick")(compaction_service.tick)
app.command(name="serve")(compaction_service.serve)
app.command(name="due")(compaction_tables.due)
app.command(name="wake")(compaction_tables.wake)
app.command(name="forget-catalog")(compaction_catalog.forget_catalog)
app.command(name="expire-snapshots")(compaction_maintenance.expire_snapshots)
app.command(name="remove-orphans")(compaction_maintenance.remove_orphans)
app.command(name="rewrite-manifests")(compaction_maintenance.rewrite_manifests)
