"""DAGs of Airflow 3, as ``GET /api/v2/dags`` and ``GET /api/v2/dags/{dag_id}/details`` show them.

Only the details have the asset expression, the time zone and ``catchup``. A timetable is known by
its summary alone: cron expressions, a period, ``Asset``, ``Asset or CRON``, ``@continuous``.
Airflow uses croniter, so its expressions are ours.
"""

import re
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

from arctic_orchestration.errors import InvalidDefinition, shown
from arctic_orchestration.quantities import format_duration, in_calendar
from arctic_orchestration.schedules.coincidence import ever_together
from arctic_orchestration.schedules.imports.cron_fields import (
    every_hour,
    meetings,
    moved_by_counting,
)
from arctic_orchestration.schedules.imports.draft import (
    MAX_RUNTIME,
    NO_TIMEOUT,
    Draft,
    Fields,
    NotPossible,
    continuous,
    max_runtime,
)
from arctic_orchestration.schedules.triggers.cron import Cron

_OR_TIME = "Asset or "
#: of at most 2,700 years, which a timedelta holds
_DELTA = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d\d):(\d\d)", re.ASCII)
_ISO = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9})(?:\.0+)?S)?)?", re.ASCII
)
#: Enough for any downtime; runs before the import are not made up.
_CATCH_UP = 10_000
_OF_THE_DAG = (
    "dag_display_name", "is_active", "is_stale", "last_parsed_time", "last_parse_duration",
    "last_expired", "last_parsed", "bundle_name", "bundle_version", "relative_fileloc", "fileloc",
    "file_token", "timetable_description", "timetable_type", "timetable_periodic",
    "max_active_tasks", "concurrency", "has_task_concurrency_limits", "has_import_errors",
    "next_dagrun_logical_date", "next_dagrun_data_interval_start", "next_dagrun_data_interval_end",
    "next_dagrun_run_after", "doc_md", "is_paused_upon_creation", "render_template_as_native_obj",
    "template_search_path", "latest_dag_version", "default_args", "owner_links", "is_favorite",
    "active_runs_count", "allowed_run_types", "is_backfillable",
)  # fmt: skip


def read_dag(fields: Fields) -> None:
    """Reads one DAG, with its details or without."""
    draft = fields.draft
    dag_id = fields.need("dag_id", str)
    if fields.take("timetable_partitioned", bool, False):
        raise NotPossible("timetable_partitioned: its runs are for partitions that it maps itself")
    constraints: list[dict[str, Any]] = []
    trigger = _trigger(fields, constraints)
    limit = fields.take("max_active_runs", int, 0)
    if limit and not constraints:
        constraints.append({"concurrency": {"limit": limit}})
    _dates(fields)
    failures = fields.take("max_consecutive_failed_dag_runs", int, 0)
    if failures:
        draft.differs(f"max_consecutive_failed_dag_runs: no pause after {failures} failures")
    tags = {
        "airflow/tags": ",".join(_tag(tag) for tag in fields.take("tags", list, [])),
        "airflow/owners": ",".join(map(str, fields.take("owners", list, []))),
        MAX_RUNTIME: _runtime(fields),
    }
    properties = {
        name: value["value"] if isinstance(value, dict) and "value" in value else value
        for name, value in fields.take("params", dict, {}).items()
    }
    paused, description = fields.need("is_paused", bool), fields.take("description", str, "")
    fields.leave(_OF_THE_DAG)
    fields.close()
    draft.finish(
        name=draft.names.schedule(dag_id, draft),
        description=description,
        target={"job": draft.names.job(dag_id, draft)},
        trigger=trigger,
        constraints=constraints,
        timeout=NO_TIMEOUT,
        coalesce="elapsed" in trigger,
        properties=properties,
        tags={name: value for name, value in tags.items() if value},
        enabled=not paused,
    )


def _trigger(fields: Fields, constraints: list[dict[str, Any]]) -> dict[str, Any]:
    draft = fields.draft
    summary = fields.take("timetable_summary", str)
    expression = fields.take("asset_expression", dict)
    zone = fields.take("timezone", str)
    catchup = fields.take("catchup", bool)
    if summary is None or summary in ("None", "@once"):
        raise NotPossible(f"timetable_summary {summary}: it has no schedule that repeats")
    if summary == "@continuous":
        trigger, constraint = continuous(draft, "Airflow")
        constraints.append(constraint)
        return trigger
    with_assets = summary == "Asset" or summary.startswith(_OR_TIME)
    if with_assets and not expression:
        raise NotPossible(f"asset_expression: is missing ({summary}); the details have it")
    assets = _assets(expression, fields, "asset_expression") if expression else None
    if summary == "Asset" and assets:
        return assets
    times = _times(summary.removeprefix(_OR_TIME), zone, catchup, draft)
    _check_next(fields.take("next_dagrun_run_after", str), times, draft)
    if assets:
        times.append(assets)
    return times[0] if len(times) == 1 else {"any_of": times}


def _times(
    summary: str, zone: str | None, catchup: bool | None, draft: Draft
) -> list[dict[str, Any]]:
    delta = _DELTA.fullmatch(summary)
    if delta is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in delta.groups())
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        draft.differs(
            f"period {summary}: Airflow counts it from start_date; here it begins with the "
            "last launch"
        )
        return [{"elapsed": {"duration": format_duration(length)}}]
    if zone is None:
        zone = draft.zone("timezone, which the details have")
    if catchup is None:
        draft.differs("catchup: the details have it; false is assumed")
    elif catchup:
        draft.differs(
            f"catchup: ticks before the import are not made up, later ones up to {_CATCH_UP:,}"
        )
    made_up = {"catch_up": "all", "catch_up_limit": _CATCH_UP} if catchup else {}
    times = [
        {"cron": {"expression": _cron(part, zone, draft), "timezone": zone, **made_up}}
        for part in summary.split(", ")
    ]
    if len(times) > 1 and not catchup:
        draft.differs(
            f"{summary}: after an outage, Airflow makes up the latest of all these times, and here "
            "the latest of each is made up"
        )
    pairs = combinations([Cron.parse(time["cron"]) for time in times], 2)
    if any(ever_together(pair, timedelta(0), draft.source) for pair in pairs):
        draft.differs(
            f"{summary}: where several of these times meet, Airflow makes one run, here each does"
        )
    return times


def _check_next(text: str | None, times: list[dict[str, Any]], draft: Draft) -> None:
    """Compares the next run with the ticks: a timetable may have another zone than its DAG."""
    crons = [Cron.parse(time["cron"]) for time in times if "cron" in time]
    if text is None or not crons:
        return
    at = _moment("next_dagrun_run_after", text)
    before = at - timedelta(microseconds=1) if in_calendar(at) else None
    if before is None or at not in [cron.next_tick(before, draft.source) for cron in crons]:
        draft.differs(
            f"next_dagrun_run_after: {text} is no tick in {crons[0].timezone}: the timetable may "
            "have a zone of its own"
        )


def _moment(name: str, text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise NotPossible(f"{name}: got {text!r}, expected a moment with its zone")


def _cron(text: str, zone: str, draft: Draft) -> str:
    try:
        Cron.parse({"expression": text, "timezone": zone}, field="timetable_summary")
        hourly = every_hour(text)
        skipped = not hourly and meetings(text, zone).in_a_gap
        moved = hourly and moved_by_counting(text, zone)
    except (InvalidDefinition, ValueError) as error:
        raise NotPossible(f"timetable_summary {shown(text)}: {error}") from None
    if skipped:
        draft.differs(
            f"when clocks in {zone} go forward, Airflow shifts a time that they skip by the "
            "length of the gap; here it is the first moment after the gap"
        )
    if moved:
        draft.differs(
            f"when clocks in {zone} change, Airflow counts the time to the next tick as if they "
            "did not: that tick is sooner or later by the change; here it is on the clock"
        )
    return text


def _assets(value: object, above: Fields, path: str) -> dict[str, Any]:
    """Returns the trigger of one node of an asset expression."""
    if not isinstance(value, dict) or len(value) != 1:
        raise NotPossible(f"{path}: got {shown(value)}, expected a mapping with one key")
    ((kind, inner),) = value.items()
    place = f"{path}.{kind}"
    if kind in ("any", "all"):
        if not isinstance(inner, list) or not inner:
            raise NotPossible(f"{place}: got {shown(inner)}, expected a list")
        children = [_assets(one, above, f"{place}[{n}]") for n, one in enumerate(inner)]
        return children[0] if len(children) == 1 else {f"{kind}_of": children}
    if kind == "alias":
        raise NotPossible(f"{place}: tasks decide while they run which assets it is: {inner}")
    if kind not in ("asset", "asset_ref"):
        raise NotPossible(f"{place}: expected any, all, asset, asset_ref or alias")
    fields = Fields(inner, above.draft, place)
    name, uri = fields.take("name", str), fields.take("uri", str)
    # The asset's id is that of Airflow's database.
    fields.leave(("group", "id"))
    fields.close()
    if not (name or uri):
        raise NotPossible(f"{place}: has neither name nor uri")
    return {"partitions": {"asset": above.draft.names.asset(name or uri or "", above.draft)}}


def _dates(fields: Fields) -> None:
    draft = fields.draft
    for name in ("start_date", "end_date"):
        text = fields.take(name, str)
        if text is None:
            continue
        ended = _moment(name, text) <= draft.options.now
        if name == "end_date" and ended:
            raise NotPossible(f"end_date: {text} has passed")
        if name == "end_date":
            draft.differs(f"end_date: it goes on after {text} unless it is suspended then")
        elif not ended:
            draft.differs(f"start_date: it would run before {text}: enable it then")


def _tag(tag: object) -> str:
    return str(tag["name"]) if isinstance(tag, dict) and "name" in tag else str(tag)


def _runtime(fields: Fields) -> str:
    """Returns the timeout of runs in whole seconds; empty: none."""
    draft, value = fields.draft, fields.take("dag_run_timeout", object)
    if value is None:
        return ""
    iso = _ISO.fullmatch(value) if isinstance(value, str) else None
    if iso is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups())
        value = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
    return max_runtime(draft, "dag_run_timeout", value)
