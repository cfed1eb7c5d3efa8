"""``ArcticRunLauncher``: runs begin in warm processes, at most one for each job.

A run host executes runs of code locations on this machine (see ``host``); the wrapped launcher, by
default Dagster's, launches all others.

A launcher cannot decide whether a run counts: between the launch and the first step, the run may be
failed and another attempt begin. But it gives the process of the run its instance, and this
instance claims the job; see ``run_worker``.
"""

import json
import logging
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Self, cast

from dagster import Any as AnyConfig
from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultRunLauncher,
    Field,
    Noneable,
    serialize_value,
)

from arctic_orchestration import idle_ticks
from arctic_orchestration.dagster_internals import (
    GRPC_INFO_TAG,
    CheckRunHealthResult,
    ConfigurableClass,
    ConfigurableClassData,
    DagsterLaunchFailedError,
    InstanceRef,
    LaunchRunContext,
    ResumeRunContext,
    RunLauncher,
    WorkerStatus,
    registered_instance,
)
from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.run_launcher.configuration import LauncherRules
from arctic_orchestration.run_launcher.job_runs import claims_its_job
from arctic_orchestration.run_launcher.processes import began

#: Hidden in Dagster's UI by its prefix: the process that executes the run.
HOST_TAG = ".dagster/arctic_run_host"

_CANCEL_SECONDS = 10.0

_log = logging.getLogger("dagster.daemon.arctic")


class ArcticRunLauncher(RunLauncher[Any], ConfigurableClass):
    """Launches runs in run hosts, and lets at most one run of a job reach its first step.

    Runs without a job, and runs that a person re-executes, claim nothing.

    Errors:
        InvalidDefinition: names each invalid field of the configuration.
        ConfigurationError: ``dagster.yaml`` names an ``instance_class`` of its own.
    """

    def __init__(
        self, rules: LauncherRules | None = None, inst_data: ConfigurableClassData | None = None
    ) -> None:
        self._rules = rules or LauncherRules()
        self._inst_data = inst_data
        wrapped = self._rules.wrapped
        self._wrapped: RunLauncher[Any] = ConfigurableClassData(
            wrapped.module, wrapped.class_, json.dumps(wrapped.config)
        ).rehydrate(as_type=RunLauncher)  # type: ignore[type-abstract]
        #: why hosts cannot load the code of a server, and until when that is not retried
        self._unfit: dict[tuple[str, str], tuple[str, float]] = {}
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """The configuration in ``dagster.yaml``."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> Any:
        """Returns every field; ``LauncherRules`` validates them, and names paths."""
        fields = [info.alias or name for name, info in LauncherRules.model_fields.items()]
        return {name: Field(Noneable(AnyConfig), is_required=False) for name in fields}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]
    ) -> Self:
        """Creates it from the configuration in ``dagster.yaml``."""
        return cls(LauncherRules.of_config(config_value), inst_data=inst_data)

    @staticmethod
    def check_config(config: Mapping[str, Any]) -> None:
        """Checks ``run_launcher.config`` like :meth:`from_config_value`; creates nothing."""
        LauncherRules.of_config(config)

    def register_instance(self, instance: DagsterInstance) -> None:
        """Receives the instance, in the daemon among others."""
        super().register_instance(instance)
        self._of_wrapped = InstanceOfWrapped(instance)
        self._wrapped.register_instance(cast("DagsterInstance", self._of_wrapped))
        idle_ticks.install()

    @property
    def _registered(self) -> DagsterInstance:
        return registered_instance(self)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Launches the run, in a run host if possible."""
        self._launch(context, resume=False)

    def _launch(self, context: LaunchRunContext | ResumeRunContext, *, resume: bool) -> None:
        run = context.dagster_run
        why = self._launch_in_host(context, resume=resume)
        if not why:
            return
        has_other = not resume or self._wrapped.supports_resume_run
        if self._rules.hosts and (self._rules.unavailable == "fail" or not has_other):
            raise _failure(f"No run host can execute this run: {why}")
        if self._rules.hosts and why != _NOT_FOR_HOSTS:
            name = type(self._wrapped).__name__
            self._registered.report_engine_event(f"Launched by {name}, not warm: {why}.", run)
        if _host_of(run) is not None:
            # The process that was to resume the run is no longer its process.
            self._registered.add_run_tags(run.run_id, {HOST_TAG: "{}"})
        context = _with_present_servers(context)
        if resume:
            self._wrapped.resume_run(cast(ResumeRunContext, context))
        else:
            self._launch_wrapped(cast(LaunchRunContext, context))

    def _launch_in_host(self, context: LaunchRunContext | ResumeRunContext, *, resume: bool) -> str:
        """Returns why no host accepted the run, or nothing.

        Errors:
            DagsterLaunchFailedError: a host accepted it, and it did not begin.
        """
        if not self._rules.hosts or sys.platform != "linux" or context.workspace is None:
            return _NOT_FOR_HOSTS
        from arctic_orchestration.dagster_internals import (
            ExecuteExternalJobArgs,
            GrpcServerCodeLocation,
        )
        from arctic_orchestration.run_launcher import host_client

        run = context.dagster_run
        origin = run.remote_job_origin
        assert origin is not None
        location = context.workspace.get_code_location(origin.location_name)
        if not isinstance(location, GrpcServerCodeLocation):
            return "its code location has no code server"
        try:
            hosted = host_client.located(location, self._registered, self._rules)
        except (host_client.HostUnavailable, ConfigurationError) as error:
            return str(error)
        why, until = self._unfit.get((hosted.key, hosted.server), ("", 0.0))
        if time.monotonic() < until:
            return why
        arguments = ExecuteExternalJobArgs(
            job_origin=origin, run_id=run.run_id, instance_ref=self._reference(run)
        )
        request = {
            "run_id": run.run_id,
            "arguments": serialize_value(arguments),
            "resume": resume,
            "spark": self._rules.spark.sessions > 0,
        }
        try:
            seconds = self._rules.start_timeout.total_seconds()
            answer = host_client.launch(hosted, request, seconds, partial(self._tag, run.run_id))
        except host_client.HostUnavailable as error:
            # The queue waits for each launch: a slow failure is not repeated for each run.
            until = time.monotonic() + error.retry_seconds
            self._unfit[hosted.key, hosted.server] = str(error), until
            return str(error)
        except ConfigurationError as error:
            return str(error)
        except OSError as error:
            if isinstance(error, host_client.HostSilent):
                until = time.monotonic() + host_client.UNFIT_SECONDS
                self._unfit[hosted.key, hosted.server] = "its run host does not answer", until
            raise _failure(f"The run host did not answer: {error}") from error
        if not answer["ok"]:
            raise _failure(answer["why"])
        return ""

    def _tag(self, run_id: str, socket: str, answer: dict[str, Any]) -> None:
        """Tags a run with its process, which waits for that, at most for some seconds.

        Dagster reads a run, changes it and writes all of it: a start meanwhile would lose the tag.
        """
        if not answer["ok"]:
            return
        tag = {"socket": socket, "pid": answer["pid"], "began": answer["began"]}
        tag |= {"machine": os.uname().nodename, "run": run_id}
        try:
            self._registered.add_run_tags(run_id, {HOST_TAG: json.dumps(tag)})
        except Exception:
            # The run executes: an error would mark it as failed. Hosts find it untagged, too.
            _log.warning("run %s could not be tagged with its process", run_id, exc_info=True)

    def _reference(self, run: DagsterRun) -> InstanceRef:
        reference = self._registered.get_ref()
        return of_run_worker(reference) if claims_its_job(run) else reference

    def _launch_wrapped(self, context: LaunchRunContext) -> None:
        claims = claims_its_job(context.dagster_run)
        with self._of_wrapped.for_run_worker() if claims else nullcontext():
            self._wrapped.launch_run(context)

    def terminate(self, run_id: str) -> bool:
        """Interrupts the run; returns whether its process existed."""
        run = self._registered.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        from arctic_orchestration.run_launcher import messages

        request = {"do": "cancel", "run_id": run_id}
        host = _host_of(run)
        if host is None:
            # A run that is being launched may already have a process.
            if not messages.executes(run_id, _CANCEL_SECONDS):
                return self._terminate_wrapped(run)
            self._report_canceling(run)
            return any(answer["ok"] for answer in messages.call_all(request, _CANCEL_SECONDS))
        if host["machine"] != os.uname().nodename:
            # Not reported as canceling: run monitoring would end it while its process goes on.
            message = f"The run can be terminated on its machine only, {host['machine']}."
            self._registered.report_engine_event(message, run)
            return False
        self._report_canceling(run)
        try:
            return bool(messages.call(host["socket"], request, _CANCEL_SECONDS)["ok"])
        except OSError:
            # Its host is gone or hangs. The run's process gets the signal directly.
            return _interrupt(host)

    def _terminate_wrapped(self, run: DagsterRun) -> bool:
        if isinstance(self._wrapped, DefaultRunLauncher) and GRPC_INFO_TAG not in run.tags:
            # Reported as canceling, its process would end as a duplicate, and the run would stay.
            message = "The run has no process yet that could be terminated. Terminate it again."
            self._registered.report_engine_event(message, run)
            return False
        return bool(self._wrapped.terminate(run.run_id))

    def _report_canceling(self, run: DagsterRun) -> None:
        # First: an interrupted run that is not being canceled ends as failed. The process of a run
        # that has not started would end as a duplicate: it reports that itself, when it has.
        if run.status is not DagsterRunStatus.STARTING:
            self._registered.report_run_canceling(run)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether run monitoring may check the health of runs."""
        return self._rules.hosts or self._wrapped.supports_check_run_worker_health

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Returns the health of a run's process, as visible from this machine."""
        host = _host_of(run)
        if host is None:
            if self._wrapped.supports_check_run_worker_health:
                return self._wrapped.check_run_worker_health(run)
            return CheckRunHealthResult(WorkerStatus.RUNNING, "not known to have ended")
        worker = f"{host['machine']}:{host['pid']}"
        if host["machine"] != os.uname().nodename:
            message = f"on another machine, {host['machine']}"
            return CheckRunHealthResult(WorkerStatus.RUNNING, message, run_worker_id=worker)
        if _lives(host):
            return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=worker)
        message = f"process {host['pid']} has ended without the run's end"
        return CheckRunHealthResult(WorkerStatus.FAILED, message, run_worker_id=worker)

    def get_run_worker_debug_info(self, run: DagsterRun, *logs: Any, **named: Any) -> str | None:
        """Returns what the wrapped launcher knows of the process of a run that it launched."""
        hosted = _host_of(run) is not None
        return None if hosted else self._wrapped.get_run_worker_debug_info(run, *logs, **named)

    @property
    def supports_resume_run(self) -> bool:
        """Whether run monitoring may resume runs whose process has ended."""
        return self._rules.hosts or self._wrapped.supports_resume_run

    def resume_run(self, context: ResumeRunContext) -> None:
        """Executes the rest of a run whose process has ended."""
        self._launch(context, resume=True)

    def join(self, timeout: int = 30) -> None:
        """Waits for the runs of the wrapped launcher; hosted ones end by themselves."""
        self._wrapped.join(timeout)

    def dispose(self) -> None:
        """Closes the wrapped launcher."""
        self._wrapped.dispose()


#: hosts are not configured, or not for this kind of process
_NOT_FOR_HOSTS = "not for hosts"


def _with_present_servers(
    context: LaunchRunContext | ResumeRunContext,
) -> LaunchRunContext | ResumeRunContext:
    """Returns the context with the code servers of now.

    A daemon replaces its servers each minute, and a run host may have been waited for that long.
    """
    if context.workspace is None:
        return context
    return context._replace(workspace=context.workspace.process_context.create_request_context())


def _failure(why: str) -> DagsterLaunchFailedError:
    return DagsterLaunchFailedError(why)  # type: ignore[no-untyped-call]


def _host_of(run: DagsterRun) -> dict[str, Any] | None:
    """Returns the process of a hosted run. A retry at first has the tags of the previous run."""
    host: dict[str, Any] = json.loads(run.tags.get(HOST_TAG, "{}"))
    return host if host.get("run") == run.run_id else None


def _lives(host: Mapping[str, Any]) -> bool:
    tick = began(host["pid"])
    # A process that is launched again while it dies is tagged without its start.
    return tick is not None and tick == host["began"]


def _interrupt(host: Mapping[str, Any]) -> bool:
    with suppress(ProcessLookupError):
        if _lives(host):
            os.kill(host["pid"], signal.SIGINT)
            return True
    return False


class InstanceOfWrapped:
    """The instance that a wrapped launcher has registered.

    What it tells the process of a run about the instance is decided here, for each launch: all
    launchers of Dagster take it from ``get_ref()``.
    """

    def __init__(self, instance: DagsterInstance) -> None:
        # The instance has its launcher, which has this.
        self._registered = weakref.ref(instance)
        self._for_run_worker = ContextVar("for_run_worker", default=False)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Launchers may check what they are given."""
        return DagsterInstance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registered(), name)

    @contextmanager
    def for_run_worker(self) -> Iterator[None]:
        """While the block lasts, in this thread, a run is launched that claims its job."""
        token = self._for_run_worker.set(True)
        try:
            yield
        finally:
            self._for_run_worker.reset(token)

    def get_ref(self) -> InstanceRef:
        """Returns the reference for another process.

        Errors:
            ConfigurationError: see :func:`of_run_worker`.
        """
        reference = cast("DagsterInstance", self._registered()).get_ref()
        return of_run_worker(reference) if self._for_run_worker.get() else reference


def of_run_worker(reference: InstanceRef) -> InstanceRef:
    """Returns the instance for the process of a run that claims its job.

    Errors:
        ConfigurationError: it has a class of its own.
    """
    if reference.custom_instance_class_data is not None:
        raise ConfigurationError(
            "dagster.yaml: instance_class cannot be combined with ArcticRunLauncher, which gives "
            "runs an instance class of its own. Remove instance_class, or use Dagster's launcher"
        )
    of_run_workers = ConfigurableClassData(
        "arctic_orchestration.run_launcher.run_worker", "RunWorkerInstance", "{}\n"
    )
    return reference._replace(custom_instance_class_data=of_run_workers)
