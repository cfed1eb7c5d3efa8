"""A run launcher that starts no process: it records what it was asked to launch."""

from collections.abc import Callable

from dagster import DagsterEventType, DagsterRun
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import LaunchRunContext
from dagster._serdes import ConfigurableClassData

from arctic_orchestration_tests.plain_launcher import PlainRunLauncher


class Broken(Exception):
    """What the launcher raises for a run that it cannot launch."""


class RecordingRunLauncher(PlainRunLauncher):
    """Launches runs by noting their ids.

    A run stays as Dagster's daemon has left it (STARTING), or is STARTED where ``starts`` is true.
    """

    def __init__(
        self, inst_data: ConfigurableClassData | None = None, *, starts: bool = False
    ) -> None:
        #: ids of the runs that were launched, in this order
        self.launched: list[str] = []
        #: ids of the runs that it was asked to end
        self.terminated: list[str] = []
        #: ids of the runs, or names of the jobs, that cannot be launched, and what is raised
        self.errors: dict[str, Exception] = {}
        #: called with each run before anything else is done
        self.before: Callable[[DagsterRun], None] = lambda run: None
        #: whether a run that is launched is reported as started
        self.starts = starts
        super().__init__(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        run = context.dagster_run
        self.before(run)
        for name in (run.run_id, run.job_name):
            if name in self.errors:
                raise self.errors[name]
        self.launched.append(run.run_id)
        if self.starts:
            self.report(DagsterEventType.RUN_START, run.run_id, run.job_name)

    def terminate(self, run_id: str) -> bool:
        self.terminated.append(run_id)
        return True

    def break_for(self, run: DagsterRun | str) -> None:
        """Lets the launch of a run, or of a job's runs, fail for good."""
        self.errors[_name_of(run)] = Broken("the launcher is broken")

    def lose_code_for(self, run: DagsterRun | str) -> None:
        """Lets the code server of a run, or of a job's runs, be out of reach."""
        self.errors[_name_of(run)] = DagsterUserCodeUnreachableError("no code server")

    def mend(self) -> None:
        """Lets everything be launched again."""
        self.errors.clear()


def _name_of(run: DagsterRun | str) -> str:
    return run if isinstance(run, str) else run.run_id
