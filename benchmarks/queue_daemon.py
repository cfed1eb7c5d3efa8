"""One coordinator and Dagster's daemon over its queue, in a process of its own.

The process is a worker of the benchmark: :func:`begin` is called in it first, and the others
then work on what it opened.
"""

import cProfile
import io
import logging
import os
import pstats
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster import DagsterEventType, DagsterRun
from dagster import DagsterRunStatus as Status
from dagster._core.definitions.selector import JobSubsetSelector
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.storage.dagster_run import RunsFilter
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from arctic_orchestration.clock import utc_now
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import WAIT
from arctic_orchestration_tests.run_queue.coordinator.launching import RecordingRunLauncher
from benchmarks import queue_lake
from benchmarks.queue_lake import LOCATION, SLOTS, Filling, Job, Lake

STOCK = {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator"}
OURS = {"module": "arctic_orchestration.coordinator", "class": "ArcticRunCoordinator"}


@dataclass(frozen=True)
class Pass:
    """One pass: seconds of wall and CPU time, and what was done."""

    wall: float
    cpu: float
    #: runs that Dagster chose to start
    chosen: int
    #: runs that were given a reason why they wait
    reported: int


class Daemon(QueuedRunCoordinatorDaemon):
    """Dagster's daemon, which can leave out the launching of what it chose."""

    launches = True
    chosen = 0
    limits: Sequence[Any] = ()

    def _dequeue_runs_iter(
        self,
        workspace_process_context: Any,
        run_coordinator: Any,
        runs_to_dequeue: list[DagsterRun],
        concurrency_config: Any,
        fixed_iteration_time: float | None,
    ) -> Iterator[None]:
        self.chosen = len(runs_to_dequeue)
        self.limits = concurrency_config.run_queue_config.tag_concurrency_limits
        if self.launches:
            yield from super()._dequeue_runs_iter(
                workspace_process_context,
                run_coordinator,
                runs_to_dequeue,
                concurrency_config,
                fixed_iteration_time,
            )


@dataclass
class Open:
    """What a worker has open."""

    instance: dg.DagsterInstance
    context: WorkspaceProcessContext
    daemon: Daemon
    rules: Rules
    #: what is reported to runs, and whether it really is
    reported: list[str] = field(default_factory=list)
    reports: bool = True
    #: tags that say why runs wait, where it is not
    untold: dict[str, Mapping[str, str]] = field(default_factory=dict)


_open: Open | None = None


def begin(at: str, url: str, name: str, coordinator: dict[str, Any], rules: dict[str, Any]) -> None:
    """Opens the storage that a directory's ``dagster.yaml`` names, as ``dagster-daemon`` does.

    Args:
        at: the directory; the instance gets one of its own in it, called ``name``.
        url: of the state database.
        name: of the instance.
        coordinator: its section ``run_coordinator``.
        rules: those by which runs are tagged that are put into it.
    """
    global _open
    logging.disable(logging.INFO)
    home = str(Path(at) / name)
    os.mkdir(home)
    config = yaml.safe_load((Path(at) / "dagster.yaml").read_text())
    config.setdefault("storage", {"sqlite": {"base_dir": at}})
    config["run_coordinator"] = coordinator
    launcher = RecordingRunLauncher
    config["run_launcher"] = {"module": launcher.__module__, "class": launcher.__name__}
    (Path(home) / "dagster.yaml").write_text(yaml.safe_dump(config))
    os.environ["DAGSTER_HOME"] = home
    os.environ["ARCTIC_DATABASE_URL"] = url
    instance = dg.DagsterInstance.from_config(home)
    origin = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(module_name=queue_lake.__name__, attribute="lake"),
        location_name=LOCATION,
    )
    context = WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget([origin])).__enter__()
    daemon = Daemon(interval_seconds=1).__enter__()
    _open = Open(instance, context, daemon, Rules.parse(rules))
    report, tag = instance.report_engine_event, instance.add_run_tags

    def counted(message: str, *args: Any, **rest: Any) -> Any:
        opened().reported.append(message)
        return report(message, *args, **rest) if opened().reports else None

    def tagged(run_id: str, tags: Mapping[str, str]) -> None:
        if opened().reports or set(tags) != {WAIT}:
            tag(run_id, tags)
        else:
            opened().untold[run_id] = tags

    replaced: Any = instance
    replaced.report_engine_event = counted
    replaced.add_run_tags = tagged


def opened() -> Open:
    """What this worker has open."""
    assert _open is not None, "begin comes first"
    return _open


def fill(world: Lake, jobs: Sequence[Job], count: int) -> None:
    """Fills the storage: runs that ended, that are in progress, that wait."""
    here = opened()
    template = _submitted()
    Filling(here.instance, template, rules=here.rules).fill(world, jobs, count)
    here.instance.delete_run(template.run_id)
    here.reported.clear()


def one_pass(*, launches: bool, reports: bool = True) -> Pass:
    """One pass of the daemon."""
    here = opened()
    here.daemon.launches, here.reports = launches, reports
    here.reported.clear()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in here.daemon.run_iteration(here.context):
        pass
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Pass(wall, cpu, here.daemon.chosen, len(here.reported))


def settle() -> None:
    """Passes until nearly all runs have the reason why they wait, without the events for it.

    A few get a new one in each pass: those that were chosen to start, which here none does.
    """
    here = opened()
    for _ in range(100):
        if one_pass(launches=False, reports=False).reported <= 2 * SLOTS:
            break
    else:
        raise AssertionError("after 100 passes many runs still get a new reason")
    queue_lake.tag(here.instance, here.untold)
    here.untold.clear()
    one_pass(launches=False, reports=False)


def limits() -> list[dict[str, Any]]:
    """The limits that the daemon was given at its last pass."""
    return [dict(limit) for limit in opened().daemon.limits]


def occupy(world: Lake) -> None:
    """Takes the slots that are free, with runs that stand under no rule but their queue's."""
    here = opened()
    template = _submitted()
    filling = Filling(here.instance, template, rules=here.rules)
    now = utc_now()
    runs = [filling.run_of(job, Status.STARTED, now, 0) for job in world.free[: _free_slots(here)]]
    here.instance.delete_run(template.run_id)
    filling.add((run, now, None) for run in runs)


def churn(world: Lake, turn: int, count: int) -> None:
    """Between two passes: launched runs begin, some runs end, and as many join the queue."""
    here = opened()
    template = _submitted()
    filling = Filling(here.instance, template, rules=here.rules)
    here.instance.delete_run(template.run_id)
    for run in here.instance.get_runs(RunsFilter(statuses=[Status.STARTING])):
        queue_lake.report(here.instance, run, DagsterEventType.RUN_START)
    active = here.instance.get_runs(RunsFilter(statuses=[Status.STARTED]))
    # The longest ones end; those that hold the full groups do not.
    mortal = [run for run in reversed(active) if not run.job_name.startswith("busy")]
    for run in mortal[: max(count - _free_slots(here), 0)]:
        queue_lake.report(here.instance, run, DagsterEventType.RUN_SUCCESS)
    jobs = [*world.free, *world.held]
    for number in range(turn * count, turn * count + count):
        filling.submit(jobs[number * 37 % len(jobs)], number)


def profiled(lines: int) -> str:
    """One pass that launches nothing, profiled."""
    profile = cProfile.Profile()
    profile.enable()
    one_pass(launches=False)
    profile.disable()
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text)
    for order in ("cumulative", "tottime"):
        stats.sort_stats(order).print_stats(lines)
    return text.getvalue()


def end() -> None:
    """Closes all connections."""
    here = opened()
    here.daemon.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    here.context.__exit__(None, None, None)
    here.instance.dispose()


def _free_slots(here: Open) -> int:
    active = [Status.STARTING, Status.STARTED, Status.CANCELING]
    return SLOTS - len(here.instance.get_runs(RunsFilter(statuses=active)))


def _submitted() -> DagsterRun:
    """A real run's record, with its snapshots and its origin."""
    here = opened()
    workspace = here.context.create_request_context()
    location = workspace.get_code_location(LOCATION)
    job = location.get_job(
        JobSubsetSelector(
            location_name=LOCATION,
            repository_name="__repository__",
            job_name="load",
            op_selection=None,
        )
    )
    plan = location.get_execution_plan(
        job, {}, step_keys_to_execute=None, known_state=None, instance=here.instance
    )
    return here.instance.create_run(
        job_name="load",
        run_id=None,
        run_config={},
        status=Status.NOT_STARTED,
        tags={},
        root_run_id=None,
        parent_run_id=None,
        step_keys_to_execute=None,
        execution_plan_snapshot=plan.execution_plan_snapshot,
        job_snapshot=job.job_snapshot,
        parent_job_snapshot=None,
        asset_selection=None,
        asset_check_selection=None,
        resolved_op_selection=None,
        op_selection=None,
        remote_job_origin=job.get_remote_origin(),
        job_code_origin=job.get_python_origin(),
        asset_graph=workspace.asset_graph,
    )
