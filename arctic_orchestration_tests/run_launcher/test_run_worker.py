"""A run of a job begins only if it is the one that counts."""

import json
from collections.abc import Iterator

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster import DagsterEventType, DagsterRunStatus
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher import LaunchRunContext

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.run_launcher import ArcticRunLauncher
from arctic_orchestration.run_launcher.configuration import LauncherRules
from arctic_orchestration.run_launcher.job_runs import claims_its_job
from arctic_orchestration.run_launcher.launcher import HOST_TAG, of_run_worker
from arctic_orchestration.state.tables import jobs
from arctic_orchestration_tests.code_location.conftest import Place, place, storages
from arctic_orchestration_tests.plain_launcher import PlainRunLauncher

__all__ = ["place", "storages"]


@dg.op
def step() -> None:
    """What no superseded run gets to."""


@dg.job(executor_def=dg.in_process_executor)
def work() -> None:
    step()


arctic = Arctic(
    schedules=[Schedule(name="s", target=work, trigger=on.partitions("raw/a"), enabled=True)]
)
defs = dg.Definitions.merge(
    dg.Definitions(assets=[dg.AssetSpec("raw/a")], jobs=[work]), arctic.definitions()
)


@pytest.fixture
def tags(place: Place) -> dict[str, str]:
    """Those of the run that a job requests."""
    place.tick(defs)
    place.announce("1")
    (request,) = place.tick(defs).run_requests or ()
    return place.tags_of(request)


@pytest.fixture
def worker(place: Place) -> Iterator[dg.DagsterInstance]:
    """The instance that the process of such a run is given."""
    with dg.DagsterInstance.from_ref(of_run_worker(place.instance.get_ref())) as instance:
        yield instance


def run_of(place: Place, tags: dict[str, str], **more: str) -> dg.DagsterRun:
    return place.instance.create_run_for_job(
        work, tags={**tags, **more}, status=DagsterRunStatus.STARTING
    )


def execute(worker: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """What a run's process does."""
    execute_run(InMemoryJob(work), run, worker)


def steps(place: Place, run: dg.DagsterRun) -> int:
    return len(place.instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_START))


def status(place: Place, run: dg.DagsterRun) -> DagsterRunStatus:
    found = place.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def reason(place: Place, run: dg.DagsterRun) -> str:
    """What Dagster shows of a canceled run."""
    (event,) = place.instance.all_logs(run.run_id, of_type=DagsterEventType.RUN_CANCELED)
    assert event.dagster_event is not None
    return str(event.dagster_event.message)


def test_the_second_run_of_a_job_ends_before_its_first_step(
    place: Place, tags: dict[str, str], worker: dg.DagsterInstance
) -> None:
    """It is canceled with the reason; the first one runs to its end."""
    first, second = run_of(place, tags), run_of(place, tags)
    execute(worker, second)
    with pytest.raises(SystemExit):
        execute(worker, first)
    assert (steps(place, second), steps(place, first)) == (1, 0)
    assert status(place, second) is DagsterRunStatus.SUCCESS
    assert status(place, first) is DagsterRunStatus.CANCELED
    assert reason(place, first) == (
        f"Not started: run {second.run_id} of the same job began before this one."
    )
    assert place.rows(jobs, "id", "begun_run_id") == [(tags["arctic/job"], second.run_id)]


def test_without_the_claim_both_runs_have_their_step(place: Place, tags: dict[str, str]) -> None:
    """The control: Dagster's own instance lets both begin."""
    first, second = run_of(place, tags), run_of(place, tags)
    execute(place.instance, second)
    execute(place.instance, first)
    assert (steps(place, second), steps(place, first)) == (1, 1)


def test_a_run_that_was_launched_twice_has_its_step_once(
    place: Place, tags: dict[str, str], worker: dg.DagsterInstance
) -> None:
    """The second process exits, and the run ends as the first process has left it."""
    run = run_of(place, tags)
    execute(worker, run)
    again = dg.DagsterEvent(DagsterEventType.RUN_STARTING.value, job_name=run.job_name)
    place.instance.report_dagster_event(again, run.run_id)
    assert status(place, run) is DagsterRunStatus.STARTING
    with pytest.raises(SystemExit):
        execute(worker, run)
    assert steps(place, run) == 1
    assert status(place, run) is DagsterRunStatus.SUCCESS


def test_what_a_person_launches_with_the_tags_of_a_run_begins_beside_it(
    place: Place, tags: dict[str, str]
) -> None:
    """Executed again, or as a new run with the same tags but Dagster's own: without a claim."""
    parent = {"dagster/parent_run_id": run_of(place, tags).run_id}
    again = run_of(place, tags, **parent)
    copied = run_of(place, {key: tags[key] for key in tags if key.startswith("arctic/")})
    retry = run_of(place, tags, **parent, **{"dagster/retry_number": "1"})
    assert [claims_its_job(run) for run in (again, copied)] == [False, False]
    assert [claims_its_job(run) for run in (run_of(place, tags), retry)] == [True, True]


def test_dagsters_retry_begins_when_the_run_that_it_retries_has_ended(
    place: Place, tags: dict[str, str], worker: dg.DagsterInstance
) -> None:
    """And not while that one lives: it was failed because it was slow."""
    first = run_of(place, tags)
    execute(worker, first)
    retries = [
        place.instance.create_run_for_job(
            work,
            tags={**tags, "dagster/retry_number": "1", "dagster/parent_run_id": first.run_id},
            parent_run_id=first.run_id,
            root_run_id=first.run_id,
            status=DagsterRunStatus.STARTING,
        )
        for _ in range(2)
    ]
    start = dg.DagsterEvent(DagsterEventType.RUN_START.value, job_name=first.job_name)
    place.instance.report_dagster_event(start, first.run_id)
    with pytest.raises(SystemExit):
        execute(worker, retries[0])
    assert steps(place, retries[0]) == 0
    place.instance.report_run_failed(first)
    execute(worker, retries[1])
    assert steps(place, retries[1]) == 1


def test_a_run_of_a_job_that_was_canceled_does_not_begin(
    place: Place, tags: dict[str, str], worker: dg.DagsterInstance
) -> None:
    """Its request was out when the job ended."""
    run = run_of(place, tags)
    with place.database.begin() as tx:
        tx.execute(sa.update(jobs).values(state="canceled", reason="canceled manually"))
    with pytest.raises(SystemExit):
        execute(worker, run)
    assert steps(place, run) == 0
    assert reason(place, run) == "Not started: its job is canceled: canceled manually."


class ContainerLauncher(PlainRunLauncher):
    """Launches nothing; keeps what the process of a run gets of the instance."""

    def launch_run(self, context: LaunchRunContext) -> None:
        assert isinstance(self._instance, dg.DagsterInstance)
        assert self._instance.get_run_by_id(context.dagster_run.run_id) is not None
        references.append((context.dagster_run.run_id, self._instance.get_ref()))

    def get_run_worker_debug_info(
        self, run: dg.DagsterRun, include_container_logs: bool | None = True
    ) -> str:
        return f"no image for {run.run_id}, logs {include_container_logs}"


references: list[tuple[str, InstanceRef]] = []


def wrapping(place: Place) -> ArcticRunLauncher:
    """A launcher whose runs go to one for containers."""
    wrapped = {"module": __name__, "class": "ContainerLauncher"}
    launcher = ArcticRunLauncher(LauncherRules.of_config({"hosts": False, "wrapped": wrapped}))
    launcher.register_instance(place.instance)
    return launcher


def test_run_monitoring_is_given_what_the_wrapped_launcher_knows_of_a_process(place: Place) -> None:
    """Dagster adds it to the reason of a run that did not start; a host has no container."""
    launcher, run = wrapping(place), run_of(place, {})
    assert launcher.get_run_worker_debug_info(run) == f"no image for {run.run_id}, logs True"
    without = launcher.get_run_worker_debug_info(run, include_container_logs=False)
    assert without == f"no image for {run.run_id}, logs False"
    hosted = run.with_tags({HOST_TAG: json.dumps({"run": run.run_id})})
    assert launcher.get_run_worker_debug_info(hosted) is None


def test_a_run_of_a_job_claims_it_whatever_launcher_is_wrapped(
    place: Place, tags: dict[str, str]
) -> None:
    """As those for Kubernetes, Docker and ECS; a run without a job is given the plain instance."""
    launcher = wrapping(place)
    references.clear()
    runs = [run_of(place, tags), run_of(place, {})]
    for run in runs:
        launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
    (first, of_job), (second, plain) = references
    assert [first, second] == [run.run_id for run in runs]
    assert plain == place.instance.get_ref()
    assert of_job == of_run_worker(place.instance.get_ref()) != plain
