"""Everything of Dagster that is not its public API, for the whole package.

A new version of Dagster may change or remove any of it without notice: read this file then, and run
its test, which fails for each name that has changed. No other file imports private modules of
Dagster, or uses private attributes of its objects.

Its import loads nothing that ``import dagster`` does not load anyway. Other parts of Dagster are
loaded when a name of ``_LAZY``, or a function that needs them, is used. With a version of Dagster
that lacks some of them, everything is imported, and what needs them is refused when it is used.
"""

import hashlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import getclosurevars
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import dagster as dg

from arctic_orchestration.errors import ConfigurationError

if TYPE_CHECKING:
    import sqlalchemy
    from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
    from dagster._core.code_pointer import CodePointer
    from dagster._core.definitions import reconstruct
    from dagster._core.definitions.assets.definition.asset_spec import (
        SYSTEM_METADATA_KEY_AUTO_CREATED_STUB_ASSET as AUTO_CREATED_STUB,
    )
    from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
    from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction
    from dagster._core.definitions.partitions.mapping.multi.base import BaseMultiPartitionMapping
    from dagster._core.definitions.partitions.subset.partitions_subset import PartitionsSubset
    from dagster._core.definitions.partitions.subset.time_window import TimeWindowPartitionsSubset
    from dagster._core.definitions.partitions.utils.mapping import infer_partition_mapping
    from dagster._core.definitions.partitions.utils.time_window import PersistedTimeWindow
    from dagster._core.definitions.reconstruct import (
        ReconstructableRepository,
        initialize_repository_def_from_pointer,
    )
    from dagster._core.definitions.repository_definition import RepositoryLoadData
    from dagster._core.definitions.run_request import InstigatorType
    from dagster._core.definitions.run_status_sensor_definition import RunStatusSensorCursor
    from dagster._core.definitions.target import AutomationTarget
    from dagster._core.definitions.timestamp import TimestampWithTimezone
    from dagster._core.definitions.unresolved_asset_job_definition import (
        UnresolvedAssetJobDefinition,
    )
    from dagster._core.definitions.utils import check_valid_name
    from dagster._core.errors import DagsterLaunchFailedError
    from dagster._core.execution.api import create_execution_plan
    from dagster._core.execution.plan.compute_generator import (
        validate_and_coerce_op_result_to_iterator,
    )
    from dagster._core.instance.config import PoolGranularity
    from dagster._core.instance.ref import InstanceRef
    from dagster._core.instance.types import DynamicPartitionsStore, MayHaveInstanceWeakref
    from dagster._core.launcher.base import (
        CheckRunHealthResult,
        LaunchRunContext,
        ResumeRunContext,
        RunLauncher,
        WorkerStatus,
    )
    from dagster._core.remote_origin import (
        CodeLocationOrigin,
        RemoteInstigatorOrigin,
        RemoteRepositoryOrigin,
    )
    from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
    from dagster._core.remote_representation.external_data import (
        DEFAULT_MODE_NAME,
        SensorSnap,
        TargetSnap,
    )
    from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig
    from dagster._core.scheduler.instigation import (
        InstigatorState,
        InstigatorStatus,
        InstigatorTick,
        ScheduleInstigatorData,
        SensorInstigatorData,
        TickStatus,
    )
    from dagster._core.secrets.env_file import get_env_var_dict
    from dagster._core.storage.tags import (
        GRPC_INFO_TAG,
        PARENT_RUN_ID_TAG,
        RETRY_NUMBER_TAG,
        RUN_KEY_TAG,
    )
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._daemon.types import DaemonHeartbeat
    from dagster._grpc.impl import (
        IPCErrorMessage,
        StartRunInSubprocessSuccessful,
        start_run_in_subprocess,
    )
    from dagster._grpc.types import ExecuteExternalJobArgs
    from dagster._record import copy as copy_record
    from dagster._serdes import ConfigurableClass, ConfigurableClassData
    from dagster._time import dst_safe_strftime, get_current_timestamp, get_timezone
    from dagster._utils import get_run_crash_explanation
    from dagster._utils.concurrency import ConcurrencyKeyInfo
    from dagster._utils.cronstring import get_fixed_minute_interval
    from dagster._utils.error import serializable_error_info_from_exc_info
    from dagster._utils.warnings import disable_dagster_warnings
    from dagster_shared.cli import WorkspaceOpts
    from dagster_shared.error import SerializableErrorInfo
    from dagster_shared.serdes import pack_value
    from dagster_webserver.app import create_app_from_workspace_process_context

#: The modules of the names above that ``import dagster`` imports, with other names after a colon.
_EAGER = {
    "AUTO_CREATED_STUB": "dagster._core.definitions.assets.definition.asset_spec:"
    "SYSTEM_METADATA_KEY_AUTO_CREATED_STUB_ASSET",
    "AssetGraph": "dagster._core.definitions.assets.graph.asset_graph",
    "AutomationTarget": "dagster._core.definitions.target",
    "BaseMultiPartitionMapping": "dagster._core.definitions.partitions.mapping.multi.base",
    "CheckRunHealthResult": "dagster._core.launcher.base",
    "CodePointer": "dagster._core.code_pointer",
    "ConcurrencyKeyInfo": "dagster._utils.concurrency",
    "ConfigurableClass": "dagster._serdes",
    "ConfigurableClassData": "dagster._serdes",
    "DagsterLaunchFailedError": "dagster._core.errors",
    "DecoratedOpFunction": "dagster._core.definitions.decorators.op_decorator",
    "DynamicPartitionsStore": "dagster._core.instance.types",
    "GRPC_INFO_TAG": "dagster._core.storage.tags",
    "InstanceRef": "dagster._core.instance.ref",
    "InstigatorType": "dagster._core.definitions.run_request",
    "LaunchRunContext": "dagster._core.launcher.base",
    "MayHaveInstanceWeakref": "dagster._core.instance.types",
    "PARENT_RUN_ID_TAG": "dagster._core.storage.tags",
    "PartitionsSubset": "dagster._core.definitions.partitions.subset.partitions_subset",
    "PersistedTimeWindow": "dagster._core.definitions.partitions.utils.time_window",
    "PoolGranularity": "dagster._core.instance.config",
    "RETRY_NUMBER_TAG": "dagster._core.storage.tags",
    "RUN_KEY_TAG": "dagster._core.storage.tags",
    "ReconstructableRepository": "dagster._core.definitions.reconstruct",
    "RepositoryLoadData": "dagster._core.definitions.repository_definition",
    "RunStatusSensorCursor": "dagster._core.definitions.run_status_sensor_definition",
    "ResumeRunContext": "dagster._core.launcher.base",
    "RunLauncher": "dagster._core.launcher.base",
    "RunQueueConfig": "dagster._core.run_coordinator.queued_run_coordinator",
    "SerializableErrorInfo": "dagster_shared.error",
    "TimeWindowPartitionsSubset": "dagster._core.definitions.partitions.subset.time_window",
    "TimestampWithTimezone": "dagster._core.definitions.timestamp",
    "UnresolvedAssetJobDefinition": "dagster._core.definitions.unresolved_asset_job_definition",
    "WorkerStatus": "dagster._core.launcher.base",
    "check_valid_name": "dagster._core.definitions.utils",
    "copy_record": "dagster._record:copy",
    "create_execution_plan": "dagster._core.execution.api",
    "disable_dagster_warnings": "dagster._utils.warnings",
    "dst_safe_strftime": "dagster._time",
    "get_current_timestamp": "dagster._time",
    "get_fixed_minute_interval": "dagster._utils.cronstring",
    "get_run_crash_explanation": "dagster._utils",
    "get_timezone": "dagster._time",
    "infer_partition_mapping": "dagster._core.definitions.partitions.utils.mapping",
    "initialize_repository_def_from_pointer": "dagster._core.definitions.reconstruct",
    "pack_value": "dagster_shared.serdes",
    "reconstruct": "dagster._core.definitions",
    "serializable_error_info_from_exc_info": "dagster._utils.error",
    "validate_and_coerce_op_result_to_iterator": "dagster._core.execution.plan.compute_generator",
}
#: Those that it does not import.
_LAZY = {
    "DEFAULT_MODE_NAME": "dagster._core.remote_representation.external_data",
    "DaemonHeartbeat": "dagster._daemon.types",
    "ExecuteExternalJobArgs": "dagster._grpc.types",
    "GrpcServerCodeLocation": "dagster._core.remote_representation.code_location",
    "IPCErrorMessage": "dagster._grpc.impl",
    "CodeLocationOrigin": "dagster._core.remote_origin",
    "InstigatorState": "dagster._core.scheduler.instigation",
    "InstigatorStatus": "dagster._core.scheduler.instigation",
    "InstigatorTick": "dagster._core.scheduler.instigation",
    "RemoteInstigatorOrigin": "dagster._core.remote_origin",
    "RemoteRepositoryOrigin": "dagster._core.remote_origin",
    "ScheduleInstigatorData": "dagster._core.scheduler.instigation",
    "SensorInstigatorData": "dagster._core.scheduler.instigation",
    "SensorSnap": "dagster._core.remote_representation.external_data",
    "StartRunInSubprocessSuccessful": "dagster._grpc.impl",
    "TargetSnap": "dagster._core.remote_representation.external_data",
    "TickStatus": "dagster._core.scheduler.instigation",
    "WorkspaceOpts": "dagster_shared.cli",
    "WorkspaceProcessContext": "dagster._core.workspace.context",
    "create_app_from_workspace_process_context": "dagster_webserver.app",
    "get_env_var_dict": "dagster._core.secrets.env_file",
    "start_run_in_subprocess": "dagster._grpc.impl",
    "workspace_opts_to_load_target": "dagster._cli.workspace.cli_target",
}


class _Absent:
    """Stands for what this version of Dagster does not have: its use is refused, not its import."""

    def __init__(self, path: str) -> None:
        self.__dict__["path"] = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise ConfigurationError(
            f"Dagster {dg.__version__} has no {self.__dict__['path']}, which is needed here. "
            "arctic doctor names the versions that are tested"
        )

    def __getitem__(self, _: object) -> "_Absent":
        return self

    def __iter__(self) -> NoReturn:
        self()

    def __or__(self, _: object) -> "_Absent":
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: object) -> tuple[()]:
        return ()


def _imported(name: str, path: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute or name)
    except (ImportError, AttributeError):
        if find_spec(module.partition(".")[0]) is None:
            raise  # it belongs to an extra
        return _Absent(f"{module}.{attribute or name}")


if not TYPE_CHECKING:
    globals().update({name: _imported(name, path) for name, path in _EAGER.items()})

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = _imported(name, _LAZY[name])
        return value


#: What others import of Dagster from here, and why if the name does not say it.
__all__ = [
    "AUTO_CREATED_STUB",
    "DEFAULT_MODE_NAME",  # a required field of TargetSnap
    "GRPC_INFO_TAG",  # the code server that Dagster's default launcher has launched a run in
    "PARENT_RUN_ID_TAG",
    "RETRY_NUMBER_TAG",  # tells Dagster's retries from runs that a person re-executes
    "RUN_KEY_TAG",  # the key of a request, of which Dagster makes one run
    "AssetGraph",  # keys, checks, partitions and parents of the assets of a repository
    "AutomationTarget",  # a job that a sensor may request, by its name
    "BaseMultiPartitionMapping",  # how the dimensions of a multi-partition mapping correspond
    "CheckRunHealthResult",
    "CodeLocationOrigin",  # from where a code location of the workspace is loaded
    "CodePointer",  # says from where a run host loads its code
    "ConcurrencyKeyInfo",  # the slots of a pool
    "ConfigurableClass",  # base of what dagster.yaml names
    "ConfigurableClassData",
    "DaemonHeartbeat",
    "DagsterLaunchFailedError",  # what a launcher raises when it cannot start a run
    "DecoratedOpFunction",  # the function of an op, which guards are put around
    "DynamicPartitionsStore",  # lets partitions definitions read keys from memory
    "ExecuteExternalJobArgs",  # what a code server is sent to start a run
    "GrpcServerCodeLocation",  # the code server beside which a run host is started
    "IPCErrorMessage",
    "InstanceRef",  # the instance, for other processes
    "InstigatorState",  # the row of a schedule or sensor
    "InstigatorStatus",
    "InstigatorTick",  # a tick of a sensor and its requests
    "InstigatorType",
    "LaunchRunContext",
    "PartitionsSubset",
    "PersistedTimeWindow",  # a window of TimeWindowPartitionsSubset
    "PoolGranularity",
    "ReconstructableRepository",  # a repository that runs load by its pointer
    "RemoteInstigatorOrigin",  # names a schedule or sensor in the storage
    "RemoteRepositoryOrigin",
    "RepositoryLoadData",
    "ResumeRunContext",
    "RunLauncher",
    "RunQueueConfig",
    "RunStatusSensorCursor",
    "ScheduleInstigatorData",
    "SensorInstigatorData",
    "SensorSnap",  # a sensor as the daemon sees it, which is given all jobs as targets
    "SerializableErrorInfo",
    "StartRunInSubprocessSuccessful",
    "TargetSnap",
    "TickStatus",
    "TimeWindowPartitionsSubset",
    "TimestampWithTimezone",
    "UnresolvedAssetJobDefinition",  # what define_asset_job returns
    "WorkerStatus",
    "WorkspaceOpts",  # which code locations a webserver shows
    "WorkspaceProcessContext",  # the code locations of a webserver
    "copy_record",  # changes fields of SensorSnap, which is immutable
    "create_app_from_workspace_process_context",  # Dagster's UI as an application
    "create_execution_plan",  # finds out whether a job can run with a configuration
    "disable_dagster_warnings",  # when what users have declared is made again from its form
    "dst_safe_strftime",  # names a partition as Dagster does
    "get_env_var_dict",  # the file .env, as a code server reads it
    "get_fixed_minute_interval",
    "get_run_crash_explanation",
    "get_timezone",
    "infer_partition_mapping",  # the mapping of a dependency that names none
    "initialize_repository_def_from_pointer",
    "pack_value",
    "reconstruct",  # its function that loads definitions is replaced in a run host
    "start_run_in_subprocess",  # executes a run as the process of a code server does
    "validate_and_coerce_op_result_to_iterator",  # the results of any kind of function, as events
    "workspace_opts_to_load_target",
]

#: The modules that a run of one process, or of several, imports at its first step.
MODULES_OF_RUNS = (
    "dagster._core.execution.plan.execute_plan",
    "dagster._core.executor.in_process",
    "dagster._core.executor.multiprocess",
    "dagster._core.storage.fs_io_manager",
    "dagster._core.storage.local_compute_log_manager",
    "dagster._core.execution.compute_logs",
)
#: The function of the queue's daemon that makes a pass; it reads the limits once, at its beginning.
BEGINS_PASS = "run_iteration"
#: the modules of the storages of dagster-postgres, each of which creates its engine
_POSTGRES_STORAGES = (
    "dagster_postgres.run_storage.run_storage",
    "dagster_postgres.event_log.event_log",
    "dagster_postgres.schedule_storage.schedule_storage",
)
#: Dagster's own lists, of its public statuses; a run is suspended since 1.13.
FINISHED_STATUSES = [
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
]
# Runs in progress count as load.
_IN_PROGRESS = ("STARTING", "STARTED", "SUSPENDED", "CANCELING")
IN_PROGRESS_RUN_STATUSES = [status for status in dg.DagsterRunStatus if status.name in _IN_PROGRESS]
#: the runs that Dagster counts for pools: ACTIVE_RUN_STATUSES since 1.13
_TAKE_POOLS = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
#: the first version that leaves wiped materializations out wherever it has latest ones
_KNOWS_WIPES = (1, 13, 27)
_VERSION = tuple(int(number) for number in re.findall(r"\d+", dg.__version__)[:3])
_QUEUE_DAEMON = "dagster._daemon.run_coordinator.queued_run_coordinator_daemon"


def registered_instance(owner: MayHaveInstanceWeakref[dg.DagsterInstance]) -> dg.DagsterInstance:
    """Returns the instance that a run coordinator or launcher was registered with."""
    return owner._instance


def event_log_storage_of(instance: dg.DagsterInstance) -> Any:
    """Returns the storage of events, out of a storage of everything."""
    return _storage_of(instance, "event_log_storage")


def run_storage_of(instance: dg.DagsterInstance) -> Any:
    """Returns the storage of runs, out of a storage of everything."""
    return _storage_of(instance, "run_storage")


def _storage_of(instance: dg.DagsterInstance, name: str) -> Any:
    from dagster._core.storage import legacy_storage

    storage: Any = getattr(instance, name)
    while type(storage).__module__ == legacy_storage.__name__:
        storage = getattr(storage._storage, name)
    return storage


def sqlite_event_log(storage: object) -> str | None:
    """Returns the file with all events, or None if the storage of events is not SQLite."""
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
        INDEX_SHARD_NAME,
        SqliteEventLogStorage,
    )

    if not isinstance(storage, SqliteEventLogStorage):
        return None
    return storage.path_for_shard(INDEX_SHARD_NAME)


def runless_entry(materialization: dg.AssetMaterialization) -> dg.EventLogEntry:
    """Returns the entry that ``report_runless_asset_event`` stores for a materialization."""
    from dagster._core.events import StepMaterializationData
    from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID

    entry: Any = dg.EventLogEntry
    made: dg.EventLogEntry = entry(
        error_info=None,
        level=logging.INFO,
        user_message="",
        run_id=RUNLESS_RUN_ID,
        timestamp=get_current_timestamp(),
        job_name=RUNLESS_JOB_NAME,
        dagster_event=dg.DagsterEvent(
            event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name=RUNLESS_JOB_NAME,
            event_specific_data=StepMaterializationData(materialization),
        ),
    )
    return made


def store_runless_entries(
    storage: Any,
    entries: Sequence[dg.EventLogEntry],
    is_wanted: "Callable[[sqlalchemy.Connection], bool]",
) -> None:
    """Stores materializations without a run in one transaction of SQLite or Postgres.

    Dagster's own storages commit each event, those of Postgres a batch of one asset.

    Args:
        storage: of :func:`event_log_storage_of`.
        entries: of :func:`runless_entry`.
        is_wanted: called first in the transaction; if it returns False, nothing is stored.
    """
    from dagster._core.instance.utils import RUNLESS_RUN_ID
    from dagster._core.storage.event_log.migration import ASSET_KEY_INDEX_COLS
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable

    # The storage asks for it once, on a connection of its own: not while this one is in use.
    storage.has_secondary_index(ASSET_KEY_INDEX_COLS)
    rows = [storage._event_to_row(entry) for entry in entries]
    new, number = SqlEventLogStorageTable.insert(), SqlEventLogStorageTable.c.id
    with storage.index_transaction() as connection:
        if not is_wanted(connection):
            return
        numbers = connection.execute(new.returning(number, sort_by_parameter_order=True), rows)
        # The table of assets has the newest event of each.
        last = {row["asset_key"]: place for place, row in enumerate(rows)}
        ids = numbers.scalars().all()
        # In one order: two writers would wait for each other's rows.
        for _, place in sorted(last.items()):
            _store_asset_event(storage, connection, entries[place], ids[place])
    if sqlite_event_log(storage) is not None:
        # Its copy for queries of one run, here of none; feeds and assets read the other.
        with storage.run_connection(RUNLESS_RUN_ID) as connection:
            connection.execute(new, rows)


def _store_asset_event(
    storage: Any, connection: "sqlalchemy.Connection", entry: dg.EventLogEntry, number: int
) -> None:
    """Stores in the table of assets that an event is an asset's newest, in a transaction."""
    if hasattr(storage, "_store_asset_event"):
        storage._store_asset_event(connection, entry, number)
    else:
        # Dagster 1.12 asks the storage for a connection, and begins another transaction on it.
        type(storage).store_asset_event(_InTransaction(storage, connection), entry, number)


class _InTransaction:
    """A storage of events whose connection is that of a transaction."""

    def __init__(self, storage: Any, connection: "sqlalchemy.Connection") -> None:
        self._storage, self._connection = storage, connection

    def index_connection(self) -> AbstractContextManager["sqlalchemy.Connection"]:
        return nullcontext(self._connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def latest_materializations(
    storage: Any, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetKey, dg.EventLogEntry]:
    """Returns the newest materialization of each asset that has one since it was wiped.

    Args:
        storage: of :func:`event_log_storage_of`.
        keys: of the assets.
    """
    latest = storage.get_latest_materialization_events(keys)
    found = {key: entry for key, entry in latest.items() if entry is not None}
    if found and _VERSION < _KNOWS_WIPES:
        from dagster._core.assets import AssetDetails

        read: Any = AssetDetails.from_db_string
        for row in storage._fetch_asset_rows(asset_keys=list(found)):
            details = read(row["asset_details"])
            wiped = details.last_wipe_timestamp if details else None
            key = dg.AssetKey.from_db_string(row["asset_key"])
            if key in found and wiped is not None and found[key].timestamp <= wiped:
                del found[key]
    return found


def ticks_by_ids(instance: dg.DagsterInstance, ids: Sequence[int]) -> Sequence["InstigatorTick"]:
    """Returns the records of ticks that are there. One statement."""
    storage = _storage_of(instance, "schedule_storage")
    if hasattr(storage, "get_ticks_by_ids"):
        found: Sequence[InstigatorTick] = storage.get_ticks_by_ids(ids)
        return found
    # Dagster 1.12 reads one at a time.
    import sqlalchemy
    from dagster._core.scheduler.instigation import InstigatorTick as Tick
    from dagster._core.scheduler.instigation import TickData
    from dagster._core.storage.schedules.schema import JobTickTable

    number, body = JobTickTable.c.id, JobTickTable.c.tick_body
    rows = storage.execute(sqlalchemy.select(number, body).where(number.in_(ids)))
    return [Tick(row[0], dg.deserialize_value(row[1], TickData)) for row in rows]


def sqlite_run_database(storage: object) -> str | None:
    """Returns the file with all runs, or None if the storage of runs is not SQLite."""
    from dagster._core.storage.runs import SqliteRunStorage
    from sqlalchemy import make_url

    if not isinstance(storage, SqliteRunStorage):
        return None
    return make_url(storage._conn_string).database or ""


def connect_postgres(storage: Any, **engine: Any) -> "sqlalchemy.Engine":
    """Returns an engine for the server of a storage, with its way to get passwords."""
    return create_postgres_engine(storage.postgres_url, token_provider_of(storage), **engine)


def token_provider_of(storage: Any) -> Any:
    """Returns what makes the passwords of a Postgres storage; none: its URL has the password."""
    return getattr(storage, "_token_provider", None)


def create_postgres_engine(
    url: str, token_provider: Any = None, **engine: Any
) -> "sqlalchemy.Engine":
    """Returns an engine as Dagster's Postgres storages make it."""
    from dagster_postgres import utils

    if hasattr(utils, "create_pg_engine"):
        return utils.create_pg_engine(url, token_provider, **engine)
    # Dagster 1.12 knows passwords alone.
    import sqlalchemy

    return sqlalchemy.create_engine(url, **engine)


def replace_engine_factory(factory: Any) -> None:
    """Makes Postgres storages get their engines from another function, if any is imported.

    It is called like :func:`create_postgres_engine`.
    """
    for name in _POSTGRES_STORAGES:
        if module := sys.modules.get(name):
            # In Dagster 1.12 they call SQLAlchemy's function themselves.
            own = "create_pg_engine" if hasattr(module, "create_pg_engine") else "create_engine"
            setattr(module, own, factory)


def postgres_storages_of(instance: dg.DagsterInstance) -> Sequence[Any]:
    """Returns those of the three storages of an instance that are dagster-postgres' own."""
    names = ("run_storage", "event_log_storage", "schedule_storage")
    storages = [_storage_of(instance, name) for name in names]
    return [one for one in storages if type(one).__module__ in _POSTGRES_STORAGES]


def replace_engine(storage: Any, engine: "sqlalchemy.Engine") -> None:
    """Makes a Postgres storage take its connections from another engine."""
    storage._engine = engine


def with_attributes(definition: dg.AssetsDefinition, **attributes: Any) -> dg.AssetsDefinition:
    """Returns the asset with some attributes replaced."""
    return dg.AssetsDefinition.dagster_internal_init(
        **{**definition.get_attributes_dict(), **attributes}
    )


def copy_op(op: dg.OpDefinition, *, name: str, description: str | None) -> dg.OpDefinition:
    """Returns the op with another name; a new one would inspect its function again, which is slow.

    Errors:
        DagsterInvalidDefinitionError: the name is not valid.
    """
    copied = copy(op)
    copied._name = check_valid_name(name)
    copied._description = description
    return copied


def replace_compute_function(op: dg.OpDefinition, function: Any) -> None:
    """Replaces what the op executes, in place."""
    op._compute_fn = function


def set_targets(sensor: dg.SensorDefinition, targets: Sequence[AutomationTarget]) -> None:
    """Gives a sensor targets by name, where its constructor takes the jobs themselves."""
    sensor._targets = targets


class NamedTargetsSensor(dg.SensorDefinition):
    """A sensor of ours: keeps its class and its targets where ``dg`` adds metadata to a copy."""

    def with_attributes(
        self, *, jobs: Sequence[Any] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> dg.SensorDefinition:
        """Returns a copy with other metadata; with jobs of code it is a plain sensor of these.

        Targets that are names, or checks of names, stay as they are.
        """
        if any(isinstance(job, dg.JobDefinition) for job in jobs or ()):
            return super().with_attributes(jobs=jobs, metadata=metadata)
        made = copy(self)
        made._metadata = metadata if metadata is not None else self._metadata
        return made


def later_windows(
    definition: dg.TimeWindowPartitionsDefinition, timestamp: float, *, excluded: bool = False
) -> Iterator[dg.TimeWindow]:
    """Yields the windows that start then or later, without an end; also excluded ones if asked."""
    return iter(definition._iterate_time_windows(timestamp, ignore_exclusions=excluded))


def earlier_windows(
    definition: dg.TimeWindowPartitionsDefinition, timestamp: float
) -> Iterator[dg.TimeWindow]:
    """Yields the windows that have ended then, the last one first, without a beginning."""
    return iter(definition._reverse_iterate_time_windows(timestamp))


def import_instance_classes(reference: InstanceRef) -> None:
    """Imports the modules of the classes that ``dagster.yaml`` names."""
    for value in reference:
        # Not every process that loads the code has every class: then it does not need it.
        with suppress(ImportError):
            if isinstance(value, ConfigurableClassData):
                import_module(value.module_name)


def replace_tail(tail: Any) -> None:
    """Replaces what copies the captured output of a run to that of its process.

    It is a context manager, called with the captured file and the output.
    """
    from dagster._core.execution import compute_logs

    compute_logs.execute_posix_tail = tail


def resume_from_failure() -> None:
    """Makes ``start_run_in_subprocess`` resume runs in this process, which it has no option for."""
    from dagster._grpc import impl

    impl.core_execute_run = partial(impl.core_execute_run, resume_from_failure=True)


def pool_counts(
    instance: dg.DagsterInstance, names: Sequence[str], granularity: PoolGranularity, buffer: int
) -> tuple[Callable[[dg.DagsterRun], bool], Mapping[str, ConcurrencyKeyInfo], Mapping[str, int]]:
    """Returns whether pools hold a run by the queue's own rule, and the state of the named ones.

    The state is the slots of each that has a limit, and how many active runs take it. Only reads:
    Dagster's daemon would also give a new pool its default limit.
    """
    from dagster._core.op_concurrency_limits_counter import GlobalOpConcurrencyLimitsCounter

    storage = instance.event_log_storage
    limited = storage.get_concurrency_keys()
    infos = {name: storage.get_concurrency_info(name) for name in names if name in limited}
    counter = GlobalOpConcurrencyLimitsCounter(
        instance,
        # Without the run that is asked about, for which it would set limits.
        [],
        instance.get_run_records(dg.RunsFilter(statuses=_TAKE_POOLS)),
        concurrency_keys=limited,
        pool_limits=[],
        slot_count_offset=buffer,
        pool_granularity=granularity,
    )
    # It has those of the runs that it was given.
    counter._concurrency_info_by_key.update(infos)
    return counter.is_blocked, infos, counter._in_progress_pool_counts


def queue_daemon_function() -> str | None:
    """Returns the innermost function of the queue's daemon on the call stack.

    Dagster reads the limits of the run queue without saying for whom; only the stack shows it.
    """
    module = sys.modules.get(_QUEUE_DAEMON)
    if module is None:
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is module.__dict__:
            return frame.f_code.co_name
        frame = frame.f_back
    return None


def in_daemon() -> bool:
    """Returns whether this process is ``dagster-daemon``."""
    return "dagster._daemon.cli" in sys.modules


def is_replaced_each_minute(location: "GrpcServerCodeLocation") -> bool:
    """Returns whether the daemon, which started the code server, replaces it each minute.

    Dagster does so for workspaces that name files and modules; ``dagster dev``, and code servers
    that were started separately, are not concerned.
    """
    from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin

    return in_daemon() and isinstance(location.origin, ManagedGrpcPythonEnvCodeLocationOrigin)


def definitions_digest(location: "GrpcServerCodeLocation") -> str:
    """Returns a digest of all that a code location defines, as the UI shows it."""
    digest = hashlib.sha256()
    for _, repository in sorted(location.get_repositories().items()):
        digest.update(dg.serialize_value(repository.repository_snap).encode())
    return digest.hexdigest()


def daemon_functions() -> Mapping[str, tuple[Any, str]]:
    """Returns where the functions are that decide when the daemon works: owners and attributes.

    ``sensor_loop`` and ``queue_loop`` are called with the daemon, its workspace and the event that
    ends it, ``is_under_min_interval`` with a sensor's state and the sensor, first of all;
    ``process_tick`` makes a tick, in a thread of its own.
    """
    from dagster._daemon import daemon, sensor
    from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import (
        QueuedRunCoordinatorDaemon,
    )

    return {
        "sensor_loop": (daemon.SensorDaemon, "core_loop"),
        "is_under_min_interval": (sensor, "is_under_min_interval"),
        "process_tick": (sensor, "_process_tick"),
        "queue_loop": (QueuedRunCoordinatorDaemon, "core_loop"),
    }


def seconds_since_tick(state: Any) -> float | None:
    """Returns the age of a sensor's last tick, or None if it has none."""
    from dagster._daemon import sensor

    return sensor.get_elapsed(state)


def run_iteration(daemon: Any, workspace: Any) -> Iterator[Any]:
    """Yields what ``IntervalDaemon.core_loop`` yields for one iteration, without its wait."""
    from dagster._daemon.daemon import SpanMarker

    yield SpanMarker.START_SPAN
    try:
        yield from daemon.run_iteration(workspace)
    except Exception:
        error = serializable_error_info_from_exc_info(sys.exc_info())
        daemon._logger.error("Caught error:\n%s", error)
        yield error
    yield SpanMarker.END_SPAN


def loaded_repositories(origin: "CodeLocationOrigin") -> Mapping[str, dg.RepositoryDefinition]:
    """Loads the code of a code location into this process; returns its repositories by name.

    Errors:
        ConfigurationError: a code server that was started separately has the code.
    """
    from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin
    from dagster._grpc.server import LoadedRepositories
    from dagster._record import copy as copy_record

    if not isinstance(origin, ManagedGrpcPythonEnvCodeLocationOrigin):
        raise ConfigurationError(
            f"the code of {origin.location_name} is in a code server of its own; name it with -m"
        )
    target = origin.loadable_target_origin
    # A code server takes the folder in which it is started.
    target = copy_record(target, working_directory=target.working_directory or os.getcwd())
    return LoadedRepositories(target, None, [], None).definitions_by_name


def execution_times(definition: dg.ScheduleDefinition, since: float) -> Iterator[Any]:
    """Yields the ticks of a schedule from a moment on, as Dagster's scheduler does."""
    from dagster._utils.schedules import schedule_execution_time_iterator

    cron, zone = definition.cron_schedule, definition.execution_timezone
    return iter(schedule_execution_time_iterator(since, cron, zone))


def constant_request(
    definition: dg.ScheduleDefinition,
) -> tuple[Mapping[str, Any], Mapping[str, str]] | None:
    """Returns the configuration and tags of all runs of a schedule; None: functions decide."""
    from dagster._core.definitions import schedule_definition

    functions = [
        getattr(definition, name, None)
        for name in ("_execution_fn", "_run_config_fn", "_tags_fn", "_should_execute")
    ]
    home = schedule_definition.__name__
    if any(getattr(function, "__module__", None) != home for function in functions):
        return None
    # Of functions that Dagster has made for constants, none uses its context.
    _, config, tags, _ = functions
    return dict(config(None)), dict(tags(None))  # type: ignore[misc]


def resources_needed(
    instigator: dg.ScheduleDefinition | dg.SensorDefinition, repository: dg.RepositoryDefinition
) -> Mapping[str, Any]:
    """Returns the resources of a repository that a function needs, and those that they need."""
    from dagster._core.execution.resources_init import get_transitive_required_resource_keys

    every = repository.get_top_level_resources()
    keys = get_transitive_required_resource_keys(instigator.required_resource_keys, every)
    return {key: every[key] for key in keys if key in every}


def evaluate_sensor(
    sensor: dg.SensorDefinition, context: dg.SensorEvaluationContext
) -> Sequence[Any]:
    """Returns what a sensor's function returns or yields, before Dagster resolves it."""
    return list(sensor._evaluation_fn(context))


def asset_sensor_function(sensor: dg.AssetSensorDefinition) -> Callable[..., Any]:
    """Returns what an asset sensor calls with its context and the materialization."""
    return sensor._asset_materialization_fn


def asset_sensor_arguments(
    sensor: dg.AssetSensorDefinition, context: Any, entry: dg.EventLogEntry
) -> Mapping[str, Any]:
    """Returns the arguments of that function: by their names, as it declares them."""
    from dagster._core.definitions.asset_sensor_definition import get_asset_sensor_param_names
    from dagster._core.definitions.resource_annotation import get_resource_args

    function = sensor._asset_materialization_fn
    names = get_asset_sensor_param_names(function)
    given = {names.context_param_name: context, names.event_log_entry_param_name: entry}
    needed = {one.name: getattr(context.resources, one.name) for one in get_resource_args(function)}
    return {**needed, **{name: value for name, value in given.items() if name is not None}}


class RunsWatched(NamedTuple):
    """What a run status sensor watches, and what it calls with the context of a run."""

    status: dg.DagsterRunStatus
    #: jobs, and selectors of jobs and repositories; none: all of its repository
    jobs: Sequence[Any]
    #: whether all jobs of all code locations
    everywhere: bool
    function: Callable[..., Any]


def runs_watched(sensor: dg.RunStatusSensorDefinition) -> RunsWatched:
    """Returns the runs that a run status sensor watches."""
    return RunsWatched(
        sensor._run_status,
        sensor._monitored_jobs,
        sensor._monitor_all_code_locations,
        sensor._run_status_sensor_fn,
    )


def partitioned_schedule_tags(definition: dg.ScheduleDefinition) -> Mapping[str, str] | None:
    """Returns the tags of a schedule that ``build_schedule_from_partitioned_job`` made.

    None: another one made it.
    """
    from dagster._core.definitions.partitions import partitioned_schedule

    made: Any = definition._execution_fn
    function = getattr(made, "decorated_fn", made)
    if getattr(function, "__module__", None) != partitioned_schedule.__name__:
        return None
    return dict(getclosurevars(function).nonlocals.get("tags") or {})


def skips_excluded_windows(definition: dg.ScheduleDefinition) -> bool:
    """Returns whether a schedule of a partitioned job skips ticks whose window is excluded.

    ``build_schedule_from_partitioned_job`` decides that by the kind of the job.
    """
    made: Any = definition._execution_fn
    function = getattr(made, "wrapped_fn", None)
    return function is not None and bool(getclosurevars(function).nonlocals.get("should_execute"))


def definitions_of_code(tree: Any, own: type) -> Iterator[tuple[str, dg.Definitions]]:
    """Yields the Python files and YAML components below ``defs/`` with their definitions.

    Args:
        tree: the component tree of the project.
        own: the class of components that are left out, with Python files that make one.
    """
    from dagster.components.core.decl import PythonFileDecl, YamlDecl

    root = tree.find_root_decl()
    # Dagster 1.12 has paths in place of locators.
    paths = not hasattr(root, "iterate_loc_component_decl_pairs")
    pairs = "iterate_path_component_decl_pairs" if paths else "iterate_loc_component_decl_pairs"
    for loc, decl in getattr(root, pairs)():
        made = [(loc, decl)]
        if isinstance(decl, PythonFileDecl):
            made = [pair for pair in getattr(decl, pairs)() if pair[1] is not decl]
        elif not isinstance(decl, YamlDecl):
            continue
        if not any(isinstance(tree.load_component(each), own) for each, _ in made):
            key = loc.get_relative_key if paths else loc.get_display_key
            yield key(tree.defs_module_path), tree.build_defs_at_path(loc)
