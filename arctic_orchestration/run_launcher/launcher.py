"""``ArcticRunLauncher``: Dagster's default launcher, whose runs claim their job when they begin.

A launcher cannot decide itself whether a run counts: between the launch and the first step lie
seconds in which the run may be failed and another attempt begin. But it hands the process of the
run its instance, and this instance claims the job; see ``run_worker``.
"""

from typing import TYPE_CHECKING, cast

from dagster import DagsterInstance
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher.base import LaunchRunContext
from dagster._core.launcher.default_run_launcher import DefaultRunLauncher
from dagster._serdes import ConfigurableClassData

from arctic_orchestration import idle_ticks
from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.run_launcher.job_runs import claims_its_job

if TYPE_CHECKING:
    from dagster._core.remote_representation.code_location import GrpcServerCodeLocation

_OF_RUN_WORKERS = ConfigurableClassData(
    "arctic_orchestration.run_launcher.run_worker", "RunWorkerInstance", "{}\n"
)


class ArcticRunLauncher(DefaultRunLauncher):
    """Everything that ``DefaultRunLauncher`` does; at most one run of a job gets to its first step.

    Runs that no job asked for, and runs that a person executes again, are launched as by the stock
    class.

    Errors:
        ConfigurationError: ``dagster.yaml`` names an ``instance_class`` of its own.
    """

    def register_instance(self, instance: DagsterInstance) -> None:
        """Called with the instance, in the daemon among others."""
        super().register_instance(instance)
        idle_ticks.install()

    def launch_run(self, context: LaunchRunContext) -> None:
        """Launches the run in the code server of its location."""
        run = context.dagster_run
        if not claims_its_job(run) or context.workspace is None:
            super().launch_run(context)
            return
        assert run.remote_job_origin is not None
        location = context.workspace.get_code_location(run.remote_job_origin.location_name)
        client = cast("GrpcServerCodeLocation", location).client
        instance = cast("DagsterInstance", _InstanceOfLaunch(self._instance))
        self.launch_run_from_grpc_client(instance, run, client)
        self._run_ids.add(run.run_id)


class _InstanceOfLaunch:
    """What the launch of a run needs of the instance."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance
        self.add_run_tags = instance.add_run_tags

    def get_ref(self) -> InstanceRef:
        return of_run_worker(self._instance.get_ref())


def of_run_worker(reference: InstanceRef) -> InstanceRef:
    """The instance for the process of a run that claims its job.

    Errors:
        ConfigurationError: it has a class of its own.
    """
    if reference.custom_instance_class_data is not None:
        raise ConfigurationError(
            "dagster.yaml: instance_class cannot be combined with ArcticRunLauncher, which gives "
            "runs an instance class of its own. Remove instance_class, or use Dagster's launcher"
        )
    return reference._replace(custom_instance_class_data=_OF_RUN_WORKERS)
