"""Jobs of Databricks, as its Jobs API 2.1 and 2.2 shows them."""

from collections.abc import Callable, Mapping
from typing import Any

from arctic_orchestration.errors import shown
from arctic_orchestration.schedules.imports.draft import (
    MAX_RUNTIME,
    NO_TIMEOUT,
    Fields,
    NotPossible,
    checked_zone,
    continuous,
    max_runtime,
    seconds,
)
from arctic_orchestration.schedules.imports.quartz import quartz_trigger

_Constraints = list[dict[str, Any]]
_Part = Callable[[Fields, _Constraints], dict[str, Any]]
_ENABLED = {"UNPAUSED": True, "PAUSED": False}
_UNITS = {"HOURS": 3_600, "DAYS": 86_400, "WEEKS": 604_800}
_CONDITIONS = {"ANY_UPDATED": "any_of", "ALL_UPDATED": "all_of"}
#: Databricks keeps a queued run for 48 hours.
_QUEUED = "2d"
#: what a job does, and with what: it belongs into the Dagster job
_OF_THE_JOB = (
    "tasks", "job_clusters", "environments", "git_source", "libraries", "run_as", "format",
    "email_notifications", "webhook_notifications", "notification_settings", "access_control_list",
    "health", "edit_mode", "deployment", "budget_policy_id", "performance_target", "max_retries",
    "usage_policy_id",
)  # fmt: skip
_OF_THE_RECORD = (
    "job_id", "creator_user_name", "run_as_user_name", "created_time", "has_more",
    "effective_budget_policy_id", "effective_usage_policy_id", "trigger_state",
)  # fmt: skip


def read_job(fields: Fields) -> None:
    """Reads one job: the answer of ``jobs/get``, one of ``jobs/list``, or its settings alone."""
    draft = fields.draft
    fields.leave(_OF_THE_RECORD)
    settings = fields.inner("settings")
    if settings is not None:
        fields.close()
        fields = settings
    name = fields.need("name", str)
    way, part = _only_one(fields, _WAYS, "without one a job is started manually")
    enabled = part.word("pause_status", _ENABLED, default=True)
    constraints: list[dict[str, Any]] = []
    trigger = _WAYS[way](part, constraints)
    part.close()
    limit = fields.take("max_concurrent_runs", int, 1)
    queue = fields.inner("queue")
    queued = queue is not None and queue.take("enabled", bool, False)
    if queue is not None:
        queue.close()
    coalesce = way == "continuous" or _takes_arrivals(trigger)
    if way != "continuous":
        if limit == 0:
            raise NotPossible("max_concurrent_runs: 0: Databricks skips each run")
        skips = not queued and not coalesce
        otherwise = {"otherwise": "cancel"} if skips else {}
        if coalesce and not queued:
            draft.differs(
                "max_concurrent_runs: a run that Databricks skips waits here, with all arrivals"
            )
        elif coalesce and constraints:
            draft.differs(
                "queue: Databricks queues several runs; here arrivals join one that waits"
            )
        elif coalesce:
            coalesce = False
        constraints.append({"concurrency": {"limit": limit, **otherwise}})
    tags = fields.take("tags", dict, {})
    longest = fields.take("timeout_seconds", int, 0)
    if longest and (runtime := max_runtime(draft, "timeout_seconds", longest)):
        tags = {**tags, MAX_RUNTIME: runtime}
    parameters = {}
    for parameter in fields.each("parameters"):
        parameters[parameter.need("name", str)] = parameter.take("default", str, "")
        parameter.close()
    description = fields.take("description", str, "")
    fields.leave(_OF_THE_JOB)
    fields.close()
    draft.finish(
        name=draft.names.schedule(name, draft),
        description=description,
        target={"job": draft.names.job(name, draft)},
        trigger=trigger,
        constraints=constraints,
        timeout=NO_TIMEOUT if way != "schedule" else _QUEUED if queued else "1d",
        coalesce=coalesce,
        properties=parameters,
        tags=tags,
        enabled=enabled,
    )


def _takes_arrivals(trigger: Mapping[str, Any]) -> bool:
    return not {"cron", "elapsed"} & set(trigger)


def _only_one(fields: Fields, kinds: Mapping[str, object], otherwise: str) -> tuple[str, Fields]:
    """Returns the only one of these fields that a mapping has."""
    given = [(kind, part) for kind in kinds if (part := fields.inner(kind)) is not None]
    if len(given) != 1:
        fields.close()
        what = " and ".join(kind for kind, _ in given) or f"no {' or '.join(kinds)}"
        raise NotPossible(f"{what}: expected exactly one; {otherwise}")
    return given[0]


def _schedule(fields: Fields, _: _Constraints) -> dict[str, Any]:
    zone = checked_zone(fields.need("timezone_id", str), fields.at("timezone_id"))
    return quartz_trigger(fields.need("quartz_cron_expression", str), zone, fields.draft)


def _continuous(fields: Fields, constraints: _Constraints) -> dict[str, Any]:
    fields.leave(("task_retry_mode",))
    trigger, constraint = continuous(fields.draft, "Databricks")
    constraints.append(constraint)
    return trigger


def _trigger(fields: Fields, constraints: _Constraints) -> dict[str, Any]:
    kind, part = _only_one(fields, _TRIGGERS, "others have no counterpart")
    trigger = _TRIGGERS[kind](part, constraints)
    part.close()
    return trigger


def _periodic(fields: Fields, _: _Constraints) -> dict[str, Any]:
    length = fields.need("interval", int) * fields.word("unit", _UNITS)
    fields.draft.differs(
        "periodic: Databricks counts from when the trigger was set; here each period begins with "
        "the last launch"
    )
    return {"elapsed": {"duration": seconds(length)}}


def _file_arrival(fields: Fields, constraints: _Constraints) -> dict[str, Any]:
    asset = fields.draft.names.asset(fields.need("url", str), fields.draft)
    fields.draft.differs(
        "file_arrival: Databricks looks for files; here something must announce them as arrivals "
        f"of the asset {asset}"
    )
    return _arrivals(fields, [asset], "any_of", constraints)


def _table_update(fields: Fields, constraints: _Constraints) -> dict[str, Any]:
    tables = fields.need("table_names", list)
    if not tables or not all(isinstance(table, str) and table for table in tables):
        raise NotPossible(f"{fields.at('table_names')}: got {shown(tables)}, expected names")
    # main.sales.orders is the asset main/sales/orders.
    draft, joined = fields.draft, fields.word("condition", _CONDITIONS, "any_of")
    assets = [draft.names.asset(table.replace(".", "/"), draft) for table in tables]
    draft.note(f"tables are assets: {', '.join(assets)}")
    return _arrivals(fields, assets, joined, constraints)


def _arrivals(
    fields: Fields, assets: list[str], joined: str, constraints: _Constraints
) -> dict[str, Any]:
    between = fields.take("min_time_between_triggers_seconds", int, 0)
    if between:
        constraints.append({"rate": {"limit": 1, "per": seconds(between)}})
    quiet = fields.take("wait_after_last_change_seconds", int, 0)
    children: list[dict[str, Any]] = [{"partitions": {"asset": asset}} for asset in assets]
    if quiet:
        length = seconds(quiet)
        children = [{"quiet": {"asset": asset, "duration": length}} for asset in assets]
        if len(assets) > 1:
            fields.draft.differs(
                f"wait_after_last_change_seconds: Databricks waits until no table has changed for "
                f"{length}; here each table is waited for by itself"
            )
    return children[0] if len(children) == 1 else {joined: children}


_WAYS: dict[str, _Part] = {
    "schedule": _schedule,
    "trigger": _trigger,
    "continuous": _continuous,
}
#: "table" is what older versions call "table_update"
_TRIGGERS: dict[str, _Part] = {
    "periodic": _periodic,
    "file_arrival": _file_arrival,
    "table_update": _table_update,
    "table": _table_update,
}
