"""Plays the events of a timeline in the simulated world."""

from dataclasses import replace

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules.simulator.lines import (
    CheckEvaluated,
    EndRun,
    FreshnessChanges,
    Line,
    PartitionArrives,
    RunReaches,
    RunRequested,
    SetLoad,
    StartRun,
    format_moment,
)
from arctic_orchestration.schedules.simulator.world import ASSET_JOB, SimulatedRun, World


def play(world: World, line: Line) -> None:
    """Applies the event of a line; other lines, such as ``advance``, only let time pass.

    Errors:
        InvalidInput: it starts an existing run, or ends one that is not active.
    """
    if isinstance(line, PartitionArrives):
        world.arrive(
            line.at,
            line.asset,
            line.partition,
            size=line.bytes,
            rows=line.rows,
            metadata=line.metadata,
            data_version=line.data_version,
            run_id=line.run_id,
            backfill=line.backfill,
            checks=line.checks,
        )
    elif isinstance(line, CheckEvaluated):
        world.evaluate(
            line.at,
            line.asset,
            line.check,
            line.partition,
            passed=line.passed,
            severity=line.severity,
            blocking=line.blocking,
        )
    elif isinstance(line, FreshnessChanges):
        world.change_freshness(line.at, line.asset, line.state)
    elif isinstance(line, RunRequested):
        world.request(
            line.at,
            line.sensor,
            job=line.job,
            run_key=line.run_key,
            partition=line.partition,
            tags=line.tags,
        )
    elif isinstance(line, RunReaches):
        _run_reaches(world, line)
    elif isinstance(line, StartRun):
        _start_run(world, line)
    elif isinstance(line, EndRun):
        _end_run(world, line)
    elif isinstance(line, SetLoad):
        world.loads[line.probe] = line.value


def _run_reaches(world: World, line: RunReaches) -> None:
    known = world.runs.get(line.run_id or "")
    if known is None:
        known = SimulatedRun(
            run_id=line.run_id or world.next_id(),
            job=line.job or ASSET_JOB,
            assets=line.assets,
            status=line.status,
            started=False,
            location=line.location or world.location,
            tags={
                **line.tags,
                **({"dagster/partition": line.partition} if line.partition else {}),
            },
        )
    begun = line.status not in (RunStatus.QUEUED, RunStatus.STARTING)
    world.reach(replace(known, status=line.status, started=begun), line.at)


def _start_run(world: World, line: StartRun) -> None:
    if line.run_id in world.runs:
        raise line.refused("run_id", line.run_id, "the id of no other run")
    run = SimulatedRun(
        run_id=line.run_id or world.next_id(),
        job=line.job or ASSET_JOB,
        assets=line.assets,
        status=RunStatus.STARTED,
        started=True,
    )
    world.reach(run, line.at)


def _end_run(world: World, line: EndRun) -> None:
    run_id = line.run_id
    if line.schedule is not None:
        run_id = world.latest_of(line.schedule)
        if run_id is None:
            raise line.refused("schedule", line.schedule, "a schedule with a run by then")
    assert run_id is not None
    run = world.runs.get(run_id)
    if run is None:
        raise line.refused("run_id", run_id, "the id of a run that was started by then")
    if run.status.ended:
        field = "run_id" if line.schedule is None else "schedule"
        ended = f"{run_id} ended at {format_moment(run.ended_at or line.at)}"
        expected = f"a run that is active ({ended}; a longer --run-duration keeps it)"
        raise line.refused(field, getattr(line, field), expected)
    world.end_run(run_id, line.status, line.at, started=line.started)
