"""``/simulations`` and ``/replays``: what schedules would decide, on a timeline or yesterday.

Nothing is changed. Each runs in a process of its own with limits on its size, time and memory.
"""

import json
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from arctic_orchestration.clock import utc_now
from arctic_orchestration.documents import At, Document
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules.inventory import inventories
from arctic_orchestration.schedules.lookup import schedule_if_there
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.views.recorded_span import recorded_span
from arctic_orchestration.service import parameters, simulation
from arctic_orchestration.service.access import SchedulesReader
from arctic_orchestration.service.bodies import JsonObject, body_schema
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.specification import Specification

router = APIRouter(tags=["simulation"])
_LINES = 10_000
_Duration = Annotated[str, Field(examples=["60s"])]
_EXAMPLE = {
    "file": {
        "schedules": [
            {
                "name": "rollup",
                "target": {"job": "rollup"},
                "trigger": {"partitions": {"asset": "raw/flights", "count": 2}},
                "enabled": True,
            }
        ]
    },
    "timeline": [
        {"at": "2026-01-01T00:00:00Z", "event": "partition", "asset": "raw/flights",
         "partition": "1"},
        {"at": "2026-01-01T00:05:00Z", "event": "partition", "asset": "raw/flights",
         "partition": "2"},
    ],
}  # fmt: skip


class SimulationForm(Specification):
    """A file of schedules and a timeline."""

    #: as of ``POST /schedule-files``; with ``assets`` and ``jobs``, the partitions that they have
    file: dict[str, Any]
    #: what happens: lines in the order of time, of which none may be ``deploy``
    timeline: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_LINES)]
    tick: _Duration | None = None
    #: a moment; null: until nothing waits
    until: str | None = None
    run_duration: _Duration | None = None


class ReplayForm(Specification):
    """A schedule as it might be, for the events of the last hours."""

    schedule: dict[str, Any]
    hours: Annotated[float, Field(gt=0, le=7 * 24, strict=True, allow_inf_nan=False)] = 24
    run_duration: _Duration | None = None


class DecisionDocument(Document):
    """A decision of the scheduler, with fields of its kind in ``details``."""

    at: At
    schedule: str | None
    job: str | None
    #: fired, held, launched, discarded, ended, suspended, resumed or deployed
    decision: str
    reason: str
    details: dict[str, Any]


class SimulationDocument(Document):
    """The first thousand decisions."""

    decisions: list[DecisionDocument]
    #: whether there are more
    more: bool
    #: how many of the decisions are launches
    launches: int


class ReplayDocument(Document):
    """What a schedule would have decided."""

    location: str
    begin: At
    end: At
    #: how many events it listens to, in the span
    events: int
    #: what no schedule listens to now, so that its events are not stored
    not_recorded: list[str]
    #: of the schedule as it is; null: there is none of the name
    before: SimulationDocument | None
    #: of the schedule as it might be
    after: SimulationDocument


_SIMULATION = {**SimulationForm.model_json_schema(), "examples": [_EXAMPLE]}


@router.post("/simulations", openapi_extra=body_schema(_SIMULATION))
def simulate(
    service: ServiceOfApp,
    caller: SchedulesReader,
    body: JsonObject,
    location: parameters.SomeLocation = None,
) -> SimulationDocument:
    """Simulate schedules on a timeline: the real engine on a virtual clock.

    With a location, assets have the partitions of its code. At most 366 days, 20 s and 1,000
    decisions.
    """
    form = SimulationForm.parse(body)
    inventory = None
    caller.check_some("location", "schedule")
    if location is not None:
        with service.reading(caller, location, schedules=[]) as (tx, place, _):
            found = inventories(tx, place.cluster).get(place.name)
            inventory = None if found is None else found.to_json()
    (answer,) = simulation.run(
        {
            "files": [json.dumps(form.file)],
            "rows": [json.dumps(line) for line in form.timeline],
            "inventory": inventory,
            **form.model_dump(include={"tick", "until", "run_duration"}),
        }
    )
    return _document(answer)


@router.post("/replays", openapi_extra=body_schema(ReplayForm.model_json_schema()))
def replay(
    service: ServiceOfApp,
    caller: SchedulesReader,
    body: JsonObject,
    location: parameters.Location = None,
) -> ReplayDocument:
    """Simulate a changed schedule over the real events of the last hours.

    Beside it stands the schedule as it is, over the same events. Both begin without a history, and
    are enabled. Loads, the freshness of parents and the runs of others are unknown.
    """
    form = ReplayForm.parse(body)
    changed = Schedule.parse(form.schedule, field="schedule").model_copy(update={"enabled": True})
    now = utc_now()
    # It shows when events of the location arrived, whatever schedules listened.
    with service.reading(caller, location) as (tx, place, store):
        row = schedule_if_there(tx, place, changed.name)
        stored = store.by_ids(tx, [row.id]).get(row.id) if row is not None else None
        compared = [changed]
        if stored is not None:
            compared.append(stored.schedule.model_copy(update={"enabled": True}))
        span = recorded_span(tx, place, compared, form.hours, now)
        inventory = inventories(tx, place.cluster).get(place.name)
    after, *before = simulation.run(
        {
            "files": [json.dumps({"schedules": [one.to_form()]}) for one in compared],
            "rows": [json.dumps(line) for line in span.lines],
            "until": iso(span.end),
            "run_duration": form.run_duration,
            "inventory": None if inventory is None else inventory.to_json(),
        }
    )
    return ReplayDocument(
        location=place.name,
        begin=str(iso(span.begin)),
        end=str(iso(span.end)),
        events=span.events,
        not_recorded=list(span.not_recorded),
        before=_document(before[0]) if before else None,
        after=_document(after),
    )


def _document(answer: dict[str, Any]) -> SimulationDocument:
    own = set(DecisionDocument.model_fields) - {"details"}
    decisions = [
        {
            **{name: one[name] for name in own},
            "details": {name: value for name, value in one.items() if name not in own},
        }
        for one in answer["decisions"]
    ]
    launches = sum(one["decision"] == "launched" for one in decisions)
    return SimulationDocument.model_validate(
        {"decisions": decisions, "more": answer["more"], "launches": launches}
    )
