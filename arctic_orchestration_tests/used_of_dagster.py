"""What is used of Dagster's private parts, which every version has to have."""

#: For each import, what is used of it: ``attribute``, ``method(parameters)``, or
#: ``(parameters)`` if it is called itself. Without a final ``*``, others must have defaults.
USED: dict[str, tuple[str, ...]] = {
    # names of which nothing further is used, or the value
    **dict.fromkeys((
        "CodePointer", "BaseMultiPartitionMapping", "DEFAULT_MODE_NAME",
        "GRPC_INFO_TAG", "PARENT_RUN_ID_TAG", "RETRY_NUMBER_TAG",
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
    "get_resource_args": ("(fn)",),
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
