"""Schedules of CDAP, as its REST API shows them (``ScheduleDetail``).

What is not in CDAP's documentation was read in its source: a job takes events until its trigger is
satisfied, then the next event makes another one; its age counts from its first event; missed ticks
are left out; ``TIME`` has a cron expression of five fields with Quartz' days of the week, or one of
Quartz; ``waitUntilMet`` that is absent is false, because Gson makes constraints without their
constructor, and a ``DELAY`` that says so is refused.
"""

import re
from collections.abc import Callable
from datetime import time
from typing import Any

from arctic_orchestration.errors import shown
from arctic_orchestration.schedules.imports.cron_fields import meetings
from arctic_orchestration.schedules.imports.draft import (
    Fields,
    NotPossible,
    checked_zone,
    milliseconds,
)
from arctic_orchestration.schedules.imports.quartz import quartz_trigger

_STATUSES = {"COMPLETED": "success", "FAILED": "failure", "KILLED": "canceled"}
_ENABLED = {"SCHEDULED": True, "SUSPENDED": False}
#: CDAP's name of the one workflow in the application of each data pipeline
_PIPELINE = "DataPipelineWorkflow"


def read_schedule(fields: Fields) -> None:
    """Reads one ``ScheduleDetail``."""
    draft = fields.draft
    program = fields.need_inner("program")
    workflow = program.need("programName", str)
    program.leave(("programType",))
    program.close()
    application = fields.take("application", str)
    pipeline = application if workflow == _PIPELINE else None
    original = fields.need("name", str)
    trigger = _trigger(fields.need_inner("trigger"))
    constraints = [_constraint(each, trigger) for each in fields.each("constraints")]
    timeout = fields.take("timeoutMillis", int, 86_400_000)
    enabled = fields.word("status", _ENABLED, default=False)
    properties = fields.take("properties", dict, {})
    description = fields.take("description", str, "")
    fields.leave(("namespace", "applicationVersion", "lastUpdateTime"))
    fields.close()
    draft.finish(
        name=draft.names.schedule(pipeline or original, draft),
        description=description,
        target={"job": draft.names.job(pipeline or workflow, draft)},
        trigger=trigger,
        constraints=constraints,
        timeout=milliseconds(timeout),
        coalesce=False,
        properties=properties,
        enabled=enabled,
    )


def _trigger(fields: Fields) -> dict[str, Any]:
    trigger = fields.word("type", _TRIGGERS)(fields)
    fields.close()
    return trigger


def _constraint(fields: Fields, trigger: dict[str, Any]) -> dict[str, Any]:
    kind = fields.word("type", _CONSTRAINTS)
    wait = fields.take("waitUntilMet", bool, False)
    if kind is _delay:
        if not wait:
            fields.draft.note(f"{fields.path}: CDAP refuses a DELAY that does not wait; it waits")
        if not _takes_one_event(trigger):
            fields.draft.differs(
                "DELAY: CDAP counts it from the first event of a job; here it begins when the "
                "trigger is satisfied"
            )
    constraint = kind(fields)
    fields.close()
    if kind is not _delay and not wait:
        (body,) = constraint.values()
        body["otherwise"] = "cancel"
    return constraint


def _takes_one_event(trigger: dict[str, Any]) -> bool:
    """Returns whether each event alone satisfies a trigger."""
    ((kind, body),) = trigger.items()
    if kind == "any_of":
        return all(_takes_one_event(child) for child in body)
    return kind in ("cron", "run") or (kind == "partitions" and body["count"] == 1)


def _time(fields: Fields) -> dict[str, Any]:
    expression = fields.need("cronExpression", str)
    zone = fields.draft.zone("the zone of CDAP's server")
    parts = expression.split()
    if len(parts) == 5:
        # As io.cdap.cdap.internal.app.runtime.schedule.store.Schedulers does it.
        if parts[2] != "?" and parts[4] == "*":
            parts[4] = "?"
        if parts[4] != "?" and parts[2] == "*":
            parts[2] = "?"
        parts.insert(0, "0")
    elif len(parts) != 6:
        raise NotPossible(f"{fields.path}.cronExpression: {expression!r}: 5 or 6 fields")
    return quartz_trigger(" ".join(parts), zone, fields.draft)


def _partition(fields: Fields) -> dict[str, Any]:
    asset = _asset(fields.need_inner("dataset"), "dataset")
    count = fields.need("numPartitions", int)
    return {"partitions": {"asset": asset, "count": count, "distinct": False}}


def _stream_size(fields: Fields) -> dict[str, Any]:
    asset = _asset(fields.need_inner("streamId"), "stream")
    size = fields.need("triggerMB", int)
    fields.draft.differs(
        "STREAM_SIZE: CDAP polls the size of a stream; here the arrivals of the asset say theirs"
    )
    return {"data": {"asset": asset, "size": f"{size}MiB"}}


def _program_status(fields: Fields) -> dict[str, Any]:
    program = fields.need_inner("programId")
    workflow = program.need("program", str)
    application = program.take("application", str)
    program.leave(("namespace", "version", "type", "entity"))
    program.close()
    job = application if workflow == _PIPELINE and application else workflow
    statuses = fields.need("programStatuses", list)
    if unknown := [status for status in statuses if status not in list(_STATUSES)]:
        expected = " or ".join(_STATUSES)
        where = fields.at("programStatuses")
        raise NotPossible(f"{where}: got {shown(unknown[0])}, expected {expected}")
    own = fields.draft.names.job(job, fields.draft)
    return {"run": {"job": own, "status": [_STATUSES[status] for status in statuses]}}


def _all(fields: Fields) -> dict[str, Any]:
    children = _children(fields)
    return children[0] if len(children) == 1 else {"all_of": children}


def _any(fields: Fields) -> dict[str, Any]:
    return {"any_of": _children(fields)}


def _children(fields: Fields) -> list[dict[str, Any]]:
    return [_trigger(child) for child in fields.each("triggers")]


def _asset(entity: Fields, name: str) -> str:
    """Returns the asset of a dataset or stream; the namespace ``default`` is not in its key."""
    namespace, own = entity.take("namespace", str, "default"), entity.need(name, str)
    entity.leave(("entity",))
    entity.close()
    original = own if namespace == "default" else f"{namespace}/{own}"
    return entity.draft.names.asset(original, entity.draft)


def _concurrency(fields: Fields) -> dict[str, Any]:
    return {"concurrency": {"limit": fields.need("maxConcurrency", int)}}


def _delay(fields: Fields) -> dict[str, Any]:
    return {"delay": {"duration": milliseconds(fields.need("millisAfterTrigger", int))}}


def _last_run(fields: Fields) -> dict[str, Any]:
    duration = milliseconds(fields.need("millisSinceLastRun", int))
    return {"minimum_interval": {"duration": duration}}


def _time_range(fields: Fields) -> dict[str, Any]:
    start, end = _wall_time(fields, "startTime"), _wall_time(fields, "endTime")
    zone = checked_zone(fields.need("timeZone", str), fields.at("timeZone"))
    if any(meetings(f"{at.minute} {at.hour} * * *", zone).in_a_fold for at in (start, end)):
        fields.draft.differs(
            f"{fields.path}: on the day clocks in {zone} go back, CDAP opens and closes at both of "
            "two equal times; here at the first"
        )
    return {"window": {"start": f"{start:%H:%M}", "end": f"{end:%H:%M}", "timezone": zone}}


def _wall_time(fields: Fields, name: str) -> time:
    text = fields.need(name, str)
    parts = re.fullmatch(r"(\d{1,2}):(\d{1,2})", text)
    if parts is None or int(parts[1]) > 23 or int(parts[2]) > 59:
        # Java's lenient format takes 24:00, and CDAP is then never in the range.
        raise NotPossible(f"{fields.at(name)}: got {text!r}, expected 00:00 to 23:59")
    return time(int(parts[1]), int(parts[2]))


_Part = Callable[[Fields], dict[str, Any]]
_TRIGGERS: dict[str, _Part] = {
    "TIME": _time,
    "PARTITION": _partition,
    "STREAM_SIZE": _stream_size,
    "PROGRAM_STATUS": _program_status,
    "AND": _all,
    "OR": _any,
}
_CONSTRAINTS: dict[str, _Part] = {
    "CONCURRENCY": _concurrency,
    "DELAY": _delay,
    "LAST_RUN": _last_run,
    "TIME_RANGE": _time_range,
}
