"""A run in a child of a run host, in place of a process that Dagster's code server spawns."""

import atexit
import importlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dagster import DagsterInstance, DagsterRunStatus, RepositoryDefinition, deserialize_value

from arctic_orchestration import migration_scripts, postgres_connections
from arctic_orchestration.dagster_internals import (
    MODULES_OF_RUNS,
    ExecuteExternalJobArgs,
    InstanceRef,
    IPCErrorMessage,
    ReconstructableRepository,
    StartRunInSubprocessSuccessful,
    get_env_var_dict,
    get_run_crash_explanation,
    import_instance_classes,
    initialize_repository_def_from_pointer,
    resume_from_failure,
    start_run_in_subprocess,
)
from arctic_orchestration.run_launcher import captured_output, messages
from arctic_orchestration.run_launcher.inherited_state import leave_to_host
from arctic_orchestration.run_launcher.loaded_definitions import remember
from arctic_orchestration.run_launcher.processes import Stop, began, can_be_woken

if TYPE_CHECKING:
    from arctic_orchestration.dagster_internals import CodePointer

# In the host, so that runs find Spark's modules loaded; they may not be installed.
try:
    from arctic_orchestration.lake import session_source
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] not in ("py4j", "pyspark"):
        raise
    HAS_SPARK = False
else:
    HAS_SPARK = True

#: The exit code of a completed run's child; after any other code the run is checked.
ENDED = 64
#: how long the report of a dead run is retried while the database is away
_REPORT_SECONDS = 600
#: how long a run waits for its launcher, before it starts without its tag
_TAG_SECONDS = 10.0
#: how often a run that is terminated before it has started is looked at
_START_SECONDS = 0.05


@dataclass(frozen=True)
class Loaded:
    """The repositories of a code location."""

    repositories: Mapping[str, ReconstructableRepository]
    definitions: Mapping[str, RepositoryDefinition]


def load(start: dict[str, Any]) -> Loaded:
    """Loads the code of a location, and the imports that all runs share.

    Errors:
        Exception: any exception of the code.
    """
    migration_scripts.remember()
    # As in Dagster's code server: the file .env of its folder, then the instance's settings.
    os.environ.update(get_env_var_dict(os.getcwd()))
    reference = deserialize_value(start["instance"], InstanceRef)
    with DagsterInstance.from_ref(reference) as instance:
        instance.inject_env_vars(start["location"])
    import_instance_classes(reference)
    captured_output.copy_cheaply()
    repositories = {
        name: ReconstructableRepository(
            cast("CodePointer", deserialize_value(pointer)),
            start["container_image"],
            executable_path=start["executable_path"],
            entry_point=start["entry_point"],
            container_context=start["container_context"],
        )
        for name, pointer in start["repositories"].items()
    }
    definitions = {
        name: initialize_repository_def_from_pointer(one.pointer)
        for name, one in repositories.items()
    }
    for definition in definitions.values():
        definition.load_all_definitions()
    for module in (*_IN_EVERY_RUN, *start["preload"]):
        importlib.import_module(module)
    remember({repositories[name].pointer: definitions[name] for name in repositories})
    return Loaded(repositories, definitions)


_IN_EVERY_RUN = ("arctic_orchestration.run_launcher.run_worker", *MODULES_OF_RUNS)


class _Answer:
    """Replaces the queue on which a spawned process reports to the code server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection: socket.socket | None = connection

    def put(self, message: object) -> None:
        if self._connection is None:
            return
        answer: dict[str, Any]
        if isinstance(message, StartRunInSubprocessSuccessful):
            answer = {"ok": True, "pid": os.getpid(), "began": began(os.getpid())}
        elif isinstance(message, IPCErrorMessage):
            answer = {"ok": False, "why": message.message or "the run could not be set up"}
        else:
            return
        with suppress(OSError), self._connection:
            messages.send(self._connection, answer)
            # The launcher closes it when it has tagged the run, and the system when that has ended.
            self._connection.settimeout(_TAG_SECONDS)
            self._connection.recv(1)
        self._connection = None


def execute(
    loaded: Loaded, connection: socket.socket, request: dict[str, Any], stop: Stop, host: str
) -> None:
    """Executes the run of the request, and ends the process with :data:`ENDED`."""
    leave_to_host()
    can_be_woken()
    postgres_connections.reuse_in_process()
    arguments = deserialize_value(request["arguments"], ExecuteExternalJobArgs)
    origin = arguments.job_origin
    repository = loaded.repositories[origin.repository_origin.repository_name]
    if request["resume"]:
        resume_from_failure()
    if request["spark"] and HAS_SPARK:
        session_source.borrow_from(partial(_borrow, host, request["run_id"]))
    job = repository.get_reconstructable_job(origin.job_name)
    stop.before_interrupt = partial(_wait_for_start, arguments)
    run: Any = start_run_in_subprocess
    run(request["arguments"], job, _Answer(connection), stop)
    if HAS_SPARK:
        session_source.end()
    _leave()


def _wait_for_start(arguments: ExecuteExternalJobArgs) -> None:
    """Returns when the run may be interrupted: it has started, and is being canceled.

    Its start replaces the status of a run that is canceled earlier: it would end as failed. Nothing
    is lost by waiting, as Dagster interrupts nothing before the start.
    """
    with DagsterInstance.from_ref(cast(InstanceRef, arguments.instance_ref)) as instance:
        while True:
            record = instance.get_run_record_by_id(arguments.run_id)
            if record is None or record.dagster_run.is_finished:
                return
            # Stored in one statement with the status.
            if record.start_time is not None:
                if record.dagster_run.status is DagsterRunStatus.STARTED:
                    instance.report_run_canceling(record.dagster_run)
                return
            time.sleep(_START_SECONDS)


def _leave() -> None:
    """Ends the process like an interpreter, except for the teardown of modules."""
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(ENDED)


def _borrow(host: str, run_id: str, properties: Mapping[str, str]) -> dict[str, Any]:
    request = {"do": "spark", "run_id": run_id, "properties": dict(properties)}
    return messages.call(host, request, timeout=session_source.WAIT_SECONDS)


def report_death(request: dict[str, Any], exit_code: int) -> None:
    """Fails a run whose process ended before the run did, like Dagster's code server."""
    arguments = deserialize_value(request["arguments"], ExecuteExternalJobArgs)
    until = time.monotonic() + _REPORT_SECONDS
    while True:
        try:
            with DagsterInstance.from_ref(cast(InstanceRef, arguments.instance_ref)) as instance:
                run = instance.get_run_by_id(arguments.run_id)
                if run is not None and not run.is_finished:
                    prefix = f"Run execution process for {run.run_id}"
                    message = get_run_crash_explanation(prefix=prefix, exit_code=exit_code)
                    instance.report_engine_event(message, run)
                    instance.report_run_failed(run)
            return
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(1)
