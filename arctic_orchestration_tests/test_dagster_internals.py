"""What the package uses of Dagster's private parts exists, and is used through one file.

A new version of Dagster fails here first: a table names what is used of each import.
"""

import ast
import dis
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster
import pytest

import arctic_orchestration

#: Not imported at the head: then the first name that is missing would hide the others.
FILE = Path(arctic_orchestration.__file__).parent / "dagster_internals.py"
OTHERS = sorted(set(FILE.parent.rglob("*.py")) - {FILE})

#: For each import, what is used of it: ``attribute``, ``method(parameters)``, or
#: ``(parameters)`` if it is called itself. Without a final ``*``, others must have defaults.
USED: dict[str, tuple[str, ...]] = {
    # names of which nothing further is used, or the value
    **dict.fromkeys((
        "CodePointer", "BaseMultiPartitionMapping", "DEFAULT_MODE_NAME",
        "PARENT_RUN_ID_TAG", "RETRY_NUMBER_TAG",
        "RUN_KEY_TAG", "DagsterLaunchFailedError",
        "StartRunInSubprocessSuccessful", "INDEX_SHARD_NAME",
        "SYSTEM_METADATA_KEY_AUTO_CREATED_STUB_ASSET", "schedule_definition",
        "partitioned_schedule",
    ), ()),
    # definitions
    "AssetGraph": (
        "asset_check_keys", "executable_asset_keys", "get_all_asset_keys()", "has(key)", "get(key)",
        "get_check_keys_for_assets(asset_keys)", "get_partition_mapping(key parent_asset_key)",
    ),
    "AutomationTarget": ("(resolvable_to_job)", "job_name"),
    "DecoratedOpFunction": ("(decorated_fn)", "decorated_fn"),
    "ReconstructableRepository": (
        "(pointer container_image executable_path entry_point container_context)", "pointer",
        "get_reconstructable_job(name)",
    ),
    "RepositoryLoadData": ("cacheable_asset_data", "reconstruction_metadata", "defs_state_info"),
    "UnresolvedAssetJobDefinition": ("(name selection)", "name", "resolve(asset_graph)"),
    "check_valid_name": ("(name)",),
    "infer_partition_mapping": (
        "(partition_mapping downstream_partitions_def upstream_partitions_def)",
    ),
    "initialize_repository_def_from_pointer": ("(pointer)",),
    "reconstruct": ("reconstruct_repository_def_from_pointer(pointer repository_load_data)",),
    # partitions
    "DynamicPartitionsStore": (
        "get_dynamic_partitions(partitions_def_name)",
        "get_paginated_dynamic_partitions(partitions_def_name limit ascending cursor)",
        "has_dynamic_partition(partitions_def_name partition_key)",
        "get_existing_dynamic_partitions(partitions_def_name partition_keys)",
        "get_dynamic_partitions_definition_id(partitions_def_name)",
    ),
    "PartitionsSubset": ("get_partition_keys()", "is_empty"),
    "PersistedTimeWindow": ("start", "end"),
    "TimeWindowPartitionsSubset": (
        "(partitions_def num_partitions included_time_windows)", "included_time_windows",
    ),
    "TimestampWithTimezone": ("timestamp", "timezone"),
    "disable_dagster_warnings": ("()",),
    "dst_safe_strftime": ("(dt tz fmt cron_schedule)",),
    "get_fixed_minute_interval": ("(cron_schedule)",),
    "get_timezone": ("(timezone_name)",),
    # sensors, their ticks, and the daemon
    "DaemonHeartbeat": ("timestamp", "daemon_type", "daemon_id", "errors"),
    "CodeLocationOrigin": ("location_name",),
    "InstigatorState": (
        "status", "instigator_data", "with_status(status)", "with_data(instigator_data)",
        "is_running", "instigator_name", "repository_selector", "instigator_origin_id",
        "selector_id",
    ),
    "InstigatorStatus": ("RUNNING", "DECLARED_IN_CODE", "STOPPED"),
    "InstigatorTick": (
        "tick_id", "tick_data", "status", "error", "timestamp", "failure_count",
        "unsubmitted_run_ids_with_requests",
    ),
    "LoadedRepositories": (
        "(loadable_target_origin container_image entry_point container_context *)",
        "definitions_by_name",
    ),
    "RemoteInstigatorOrigin": ("instigator_name", "get_id()", "get_selector()"),
    "RemoteRepositoryOrigin": (
        "(code_location_origin repository_name)", "get_instigator_origin(instigator_name)",
    ),
    "RunStatusSensorCursor": (
        "(record_id *)", "record_id", "is_valid(json_str)", "from_json(json_str)", "to_json()",
    ),
    "ScheduleInstigatorData": (
        "(cron_schedule start_timestamp *)", "start_timestamp", "last_iteration_timestamp",
        "_replace",
    ),
    "get_asset_sensor_param_names": ("(fn)",),
    "get_transitive_required_resource_keys": ("(required_resource_keys resource_defs)",),
    "schedule_execution_time_iterator": ("(start_timestamp cron_schedule execution_timezone *)",),
    "InstigatorType": ("SENSOR",),
    "QueuedRunCoordinatorDaemon": (
        "core_loop(workspace_process_context shutdown_event)",
        "run_iteration(workspace_process_context)", "interval_seconds", "interval_jitter_seconds",
        "_logger",
    ),
    "SensorInstigatorData": (
        "last_tick_timestamp", "cursor", "last_run_key", "last_tick_start_timestamp",
        "last_sensor_start_timestamp", "last_tick_success_timestamp", "_replace",
    ),
    "SensorSnap": ("from_def(sensor_def repository_def)", "target_dict"),
    "SerializableErrorInfo": ("message", "cls_name", "cause"),
    "SpanMarker": ("START_SPAN", "END_SPAN"),
    "TargetSnap": ("(job_name mode op_selection)",),
    "TickStatus": ("STARTED", "SKIPPED", "SUCCESS", "FAILURE"),
    "copy": ("(record)",),
    "daemon": ("SensorDaemon",),
    "sensor": (
        "get_elapsed(state)", "is_under_min_interval(state remote_sensor *)", "_process_tick",
    ),
    "serializable_error_info_from_exc_info": ("(exc_info)",),
    # runs and their queue
    "ConcurrencyKeyInfo": ("slot_count", "claimed_slots", "pending_steps", "pending_step_count"),
    "GlobalOpConcurrencyLimitsCounter": (
        "(instance runs in_progress_run_records concurrency_keys pool_limits slot_count_offset "
        "pool_granularity)", "is_blocked(run)", "_in_progress_pool_counts",
        "_concurrency_info_by_key",
    ),
    "PoolGranularity": ("OP", "RUN"),
    "RunQueueConfig": (
        "max_concurrent_runs", "tag_concurrency_limits", "should_block_op_concurrency_limited_runs",
        "op_concurrency_slot_buffer", "_replace",
    ),
    "create_execution_plan": ("(job run_config)",),
    "get_run_crash_explanation": ("(prefix exit_code)",),
    "validate_and_coerce_op_result_to_iterator": ("(result context output_defs)",),
    # instances, and what dagster.yaml names
    "CheckRunHealthResult": ("(status msg run_worker_id)",),
    "ConfigurableClass": (
        "inst_data", "config_type()", "from_config_value(inst_data config_value)",
    ),
    "ConfigurableClassData": ("(module_name class_name config_yaml)", "rehydrate(as_type)"),
    "ExecuteExternalJobArgs": (
        "(job_origin run_id instance_ref)", "job_origin", "run_id", "instance_ref",
    ),
    "GrpcServerCodeLocation": (
        "name", "client", "host", "port", "socket", "repository_code_pointer_dict",
        "container_image", "container_context", "executable_path", "entry_point", "origin",
        "get_repositories()",
    ),
    "IPCErrorMessage": ("message",),
    "InstanceRef": ("custom_instance_class_data", "_replace"),
    "LaunchRunContext": ("dagster_run", "workspace"),
    "ManagedGrpcPythonEnvCodeLocationOrigin": ("",),
    "MayHaveInstanceWeakref": ("_instance", "register_instance(instance)"),
    "ResumeRunContext": ("dagster_run", "workspace"),
    "RunLauncher": (
        "launch_run(context)", "resume_run(context)", "terminate(run_id)", "supports_resume_run",
        "supports_check_run_worker_health", "check_run_worker_health(run)", "join(timeout)",
        "dispose()",
    ),
    "WorkerStatus": ("RUNNING", "FAILED"),
    "WorkspaceOpts": ("(workspace module_name *)",),
    "WorkspaceProcessContext": ("(instance workspace_load_target)",),
    "workspace_opts_to_load_target": ("(opts)",),
    "create_app_from_workspace_process_context": ("(workspace_process_context)",),
    "get_env_var_dict": ("(base_dir)",),
    "impl": (
        "core_execute_run(recon_job dagster_run instance inject_env_vars resume_from_failure)",
    ),
    "compute_logs": ("execute_posix_tail(path stream)",),
    "start_run_in_subprocess": (
        "(serialized_execute_run_args recon_pipeline event_queue termination_event)",
    ),
    # storages
    "legacy_storage": ("LegacyEventLogStorage", "LegacyRunStorage", "LegacyScheduleStorage"),
    "ASSET_KEY_INDEX_COLS": (),
    "RUNLESS_JOB_NAME": (),
    "RUNLESS_RUN_ID": (),
    "SqlEventLogStorageTable": ("insert()", "c"),
    "StepMaterializationData": ("(materialization)",),
    "get_current_timestamp": ("()",),
    "SqliteEventLogStorage": ("path_for_shard(run_id)",),
    "SqliteRunStorage": ("_conn_string",),
    "pack_value": ("(val)",),
    "AssetDetails": ("last_wipe_timestamp", "from_db_string(db_string)"),
    "JobTickTable": ("c",),
    "TickData": (),
}  # fmt: skip
#: Private parts of classes that are public.
PRIVATE_PARTS: dict[str, tuple[str, ...]] = {
    "dagster.AssetsDefinition": (
        "dagster_internal_init(node_def specs *)", "get_attributes_dict()",
    ),
    "dagster.DagsterInstance": ("event_log_storage", "run_storage", "schedule_storage"),
    **{f"dagster._core.storage.legacy_storage.Legacy{kind}Storage": ("_storage",)
       for kind in ("EventLog", "Run", "Schedule")},
    "dagster._core.storage.event_log.sql_event_log.SqlEventLogStorage": (
        "_event_to_row(event)", "_store_asset_event(conn event event_id)", "index_transaction()",
        "run_connection(run_id)", "get_maximum_record_id()", "_fetch_asset_rows(asset_keys *)",
    ),
    "dagster_postgres.utils": ("create_pg_engine(postgres_url token_provider)",),
    "dagster.OpDefinition": ("compute_fn", "_name", "_description", "_compute_fn"),
    "dagster._core.remote_representation.external.RemoteRepository": ("repository_snap",),
    "dagster.AssetSensorDefinition": ("_asset_materialization_fn",),
    "dagster.RunStatusSensorDefinition": (
        "_run_status", "_monitored_jobs", "_monitor_all_code_locations", "_run_status_sensor_fn",
    ),
    "dagster.ScheduleDefinition": (
        "_execution_fn", "_run_config_fn", "_tags_fn", "_should_execute",
    ),
    "dagster.SensorDefinition": (
        "_targets", "_evaluation_fn", "resolve_run_requests(run_requests *)",
    ),
    "dagster.TimeWindowPartitionsDefinition": (
        "_iterate_time_windows(start_timestamp ignore_exclusions)",
        "_reverse_iterate_time_windows(end_timestamp)",
    ),
    **dict.fromkeys((
        "dagster_postgres.PostgresEventLogStorage", "dagster_postgres.PostgresRunStorage",
        "dagster_postgres.PostgresScheduleStorage",
    ), ("postgres_url", "_token_provider", "_engine")),
}  # fmt: skip
#: Of the above, what 1.12 lacks; the file has another way to the same for it.
SINCE_1_13 = {
    "get_existing_dynamic_partitions(partitions_def_name partition_keys)",
    "_store_asset_event(conn event event_id)",
    "create_pg_engine(postgres_url token_provider)",
    "_token_provider",
}
IS_1_12 = dagster.__version__.startswith("1.12.")


def is_private(module: str) -> bool:
    """Whether a module is Dagster's, or of one of its packages, and not public."""
    package, *parts = module.split(".")
    if package == "dagster":
        return any(part.startswith("_") for part in parts)
    return package == "dagster_shared" or (package.startswith("dagster_") and bool(parts))


def private_imports(file: Path) -> Iterator[tuple[str, str]]:
    """The imports of private names in a file, anywhere in it: modules, and names in them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((name.name, "") for name in node.names if is_private(name.name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for name in node.names:
                of_dagster = node.module.startswith("dagster")
                if is_private(node.module) or (of_dagster and name.name.startswith("_")):
                    yield node.module, name.name


IMPORTS = sorted(set(private_imports(FILE)))


@pytest.fixture
def internals() -> Any:
    """The file, imported."""
    return importlib.import_module("arctic_orchestration.dagster_internals")


def imported(module: str, name: str) -> Any:
    """What ``from module import name`` binds."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a call, without the object or class itself."""
    # The constructor of a record hides the one with its fields, that of its base.
    hidden = [vars(base).get("__new__") for base in getattr(function, "__mro__", ())]
    for call in (function, *filter(None, hidden)):
        found = inspect.signature(call).parameters
        if "args" not in found:
            break
    return {name: each for name, each in found.items() if name not in ("self", "cls", "_cls")}


def attributes(owner: Any) -> set[str]:
    """The attributes of a module or class and of its instances, also those set by methods."""
    found = set(dir(owner))
    for base in getattr(owner, "__mro__", ()):
        found.update(vars(base).get("__annotations__", ()))
        for method in vars(base).values():
            code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
            steps = dis.get_instructions(code) if code else ()
            found.update(step.argval for step in steps if step.opname == "STORE_ATTR")
    return found


def missing(owner: Any, used: str) -> str | None:
    """What of the use is not there, or None."""
    if IS_1_12 and used in SINCE_1_13:
        return None
    name, called, listed = used.rstrip(")").partition("(")
    if name and name not in attributes(owner):
        return f"has no {name}"
    if not called:
        return None
    wanted, others = listed.replace("*", "").split(), "*" in listed
    taken = parameters(getattr(owner, name) if name else owner)
    lacking = [each for each in wanted if each not in taken]
    required = [
        each.name
        for each in taken.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if lacking or not (others or set(required) <= set(wanted)):
        return f"{name or 'it'} is called with {wanted}, and takes {list(taken)}"
    if [each for each in taken if each in wanted] != wanted:
        return f"{name or 'it'} takes {list(taken)}, in another order than {wanted}"
    return None


@pytest.mark.parametrize(("module", "name"), IMPORTS, ids=[name for _, name in IMPORTS])
def test_an_import_has_what_is_used_of_it(module: str, name: str) -> None:
    """The name exists there, with the attributes, members and parameters of the table."""
    owner = imported(module, name)
    assert name in USED, f"{name}: what is used of it is missing in the table"
    problems = [problem for used in USED[name] if (problem := missing(owner, used))]
    assert not problems, f"{module}.{name}: {'; '.join(problems)}"


def test_the_table_has_imported_names_alone() -> None:
    assert sorted(USED) == sorted({name for _, name in IMPORTS})


@pytest.mark.parametrize("path", sorted(PRIVATE_PARTS))
def test_a_public_class_has_the_private_parts_that_are_used(path: str) -> None:
    module, _, name = path.rpartition(".")
    owner = imported(module, name)
    problems = [problem for used in PRIVATE_PARTS[path] if (problem := missing(owner, used))]
    assert not problems, f"{path}: {'; '.join(problems)}"


def test_a_use_that_is_not_there_is_reported() -> None:
    """The control: an attribute, a parameter, a new required parameter, another order."""

    class Owner:
        def __init__(self) -> None:
            self._kept = 1

        def method(self, first: int, second: int, third: int = 0) -> int:
            return first + second + third

    for used in ("_kept", "method(first second)", "method(first second third)", "method(first *)"):
        assert missing(Owner, used) is None
    for used in ("_lost", "lost()", "method(first)", "method(first second fourth)"):
        assert missing(Owner, used) is not None
    assert "another order" in str(missing(Owner, "method(second first)"))


def test_modules_and_functions_that_are_named_by_strings(internals: Any) -> None:
    for module in (*internals.MODULES_OF_RUNS, "dagster._daemon.cli"):
        assert find_spec(module) is not None, module
    for module in internals._POSTGRES_STORAGES:
        factory = "create_engine" if IS_1_12 else "create_pg_engine"
        assert callable(imported(module, factory)), module
    queue_daemon = importlib.import_module(internals._QUEUE_DAEMON)
    loop = queue_daemon.QueuedRunCoordinatorDaemon
    assert vars(loop)[internals.BEGINS_PASS].__globals__ is vars(queue_daemon)
    for owner, name in internals.daemon_functions().values():
        assert callable(getattr(owner, name)), name


def test_the_lists_of_statuses_are_those_of_dagster(internals: Any) -> None:
    dagster_run = importlib.import_module("dagster._core.storage.dagster_run")
    counted = getattr(dagster_run, "ACTIVE_RUN_STATUSES", dagster_run.IN_PROGRESS_RUN_STATUSES)
    assert counted == internals._TAKE_POOLS
    for name in ("FINISHED_STATUSES", "IN_PROGRESS_RUN_STATUSES"):
        assert set(getattr(internals, name)) == set(getattr(dagster_run, name)), name


def test_the_names_are_those_that_are_imported_for_types(internals: Any) -> None:
    """Each has the module from which mypy imports it; another name is an AttributeError."""
    checked = next(node for node in ast.parse(FILE.read_text()).body if isinstance(node, ast.If))
    assert ast.unparse(checked.test) == "TYPE_CHECKING"
    assert {
        name.asname or name.name: f"{node.module}:{name.name}" if name.asname else node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    } == {**internals._EAGER, **internals._LAZY}
    with pytest.raises(AttributeError, match="Sensorsnap"):
        _ = internals.Sensorsnap


#: A Dagster of which all private modules but those that it imports itself are gone, or changed.
_OF_THE_FUTURE = """
import sys, dagster
for name in list(sys.modules):
    module = sys.modules[name]
    if name.startswith("dagster._") and name != "dagster._utils" and module is not None:
        sys.modules[name] = type(sys)(name)
        sys.modules[name].__path__ = []
from arctic_orchestration import Arctic, Schedule, dagster_internals, on
from arctic_orchestration.errors import ConfigurationError
assert type(dagster_internals.RunLauncher).__name__ == "_Absent", dagster_internals.RunLauncher
Schedule(name="s", target="work", trigger=on.cron("0 4 * * *"))
import arctic_orchestration.cli.main, arctic_orchestration.coordinator
import arctic_orchestration.run_launcher.launcher
try:
    dagster_internals.create_execution_plan(None)
except ConfigurationError as error:
    print(error)
"""


def test_a_dagster_without_its_private_parts_is_imported_and_refused_in_use() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _OF_THE_FUTURE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"Dagster {dagster.__version__} has no dagster._core.execution.api." in done.stdout
    assert "arctic doctor" in done.stdout


def test_every_name_is_exported_and_used(internals: Any) -> None:
    text = "\n".join(file.read_text() for file in OTHERS)
    for name in internals.__all__:
        assert hasattr(internals, name), name
        assert re.search(rf"\b{name}\b", text), f"{name} is not used"


def test_importing_the_file_loads_what_dagster_loads_alone() -> None:
    """What ``import dagster`` has not loaded is loaded on use."""
    program = (
        "import sys, dagster; before = set(sys.modules)\n"
        "import arctic_orchestration.dagster_internals\n"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert {name.partition(".")[0] for name in done.stdout.split()} == {"arctic_orchestration"}


def test_no_other_file_imports_private_modules_of_dagster() -> None:
    """Neither by a statement, nor by a string that names one."""
    dotted, found = re.compile(r"dagster\w*(\.\w+)*\._[\w.]+"), []
    for file in OTHERS:
        found += [(file, f"{module} {name}") for module, name in private_imports(file)]
        for node in ast.walk(ast.parse(file.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and dotted.fullmatch(text):
                found.append((file, text))
    assert found == []


def test_private_imports_are_found_in_any_form(tmp_path: Path) -> None:
    """The control: a statement of each form, one of them inside a function."""
    file = tmp_path / "file.py"
    file.write_text(
        "import dagster as dg, dagster._core.errors\n"
        "from dagster import AssetKey, _time\n"
        "from dagster_shared import serdes\n"
        "from dagster_postgres import PostgresRunStorage\n"
        "def load():\n    from dagster_postgres.utils import create_pg_engine\n"
    )
    assert sorted(private_imports(file)) == [
        ("dagster", "_time"),
        ("dagster._core.errors", ""),
        ("dagster_postgres.utils", "create_pg_engine"),
        ("dagster_shared", "serdes"),
    ]


def test_no_other_file_uses_private_attributes_of_dagster() -> None:
    """Each that is used outside of the lake, which uses Spark's, is one of the package itself."""
    of_python = "_asdict _exit _fields _make _registry _replace _run_exitfuncs _shutdown"
    of_sqlalchemy = "_dec_overflow"
    ours, used = {*of_python.split(), *of_sqlalchemy.split()}, []
    for file in OTHERS:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                ours.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                ours.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.Attribute) and "lake" not in file.parts:
                used.append((file, node.lineno, node.attr))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
                name = node.args[1] if len(node.args) > 1 else None
                if isinstance(name, ast.Constant) and "lake" not in file.parts:
                    used.append((file, node.lineno, str(name.value)))
    private = re.compile("_[a-z]")
    assert [each for each in used if private.match(each[2]) and each[2] not in ours] == []


@pytest.mark.parametrize(
    "path",
    [
        "compaction.dagster.sensor.CompactionSensor",
        "freshness.dagster.sensor.TaskSensor",
        "run_launcher.launcher.ArcticRunLauncher",
        "run_launcher.run_worker.RunWorkerInstance",
        "run_queue.dagster.coordinator.ArcticRunCoordinator",
        "schedules.dagster.dispatcher.DispatcherSensor",
    ],
)
def test_no_subclass_shares_a_private_attribute_with_its_base(path: str) -> None:
    """One that it sets would replace Dagster's; one that it reads may be gone tomorrow."""
    module, _, name = path.rpartition(".")
    ours = imported(f"arctic_orchestration.{module}", name)
    shared = re.compile(r"\bself\.(_[a-z]\w*)|def (_[a-z]\w*)")
    own = {name for found in shared.findall(inspect.getsource(ours)) for name in found if name}
    bases = [base for base in ours.__mro__ if base.__module__.startswith("dagster.")]
    assert bases
    assert own & {name for base in bases for name in attributes(base)} == set()


def test_the_classes_of_an_instance_are_imported_as_far_as_they_exist(tmp_path: Path) -> None:
    process = (
        "import sys\n"
        "from dagster._core.instance.ref import InstanceRef\n"
        "from arctic_orchestration.dagster_internals import import_instance_classes\n"
        "reference = InstanceRef.from_dir(sys.argv[1])\n"
        "assert 'colorsys' not in sys.modules\n"
        "import_instance_classes(reference)\n"
        "assert 'colorsys' in sys.modules and 'not_here' not in sys.modules\n"
    )
    (tmp_path / "dagster.yaml").write_text(
        "run_coordinator: {module: colorsys, class: Any}\n"
        "run_launcher: {module: not_here, class: Launcher}\n"
    )
    subprocess.run([sys.executable, "-c", process, str(tmp_path)], check=True)
