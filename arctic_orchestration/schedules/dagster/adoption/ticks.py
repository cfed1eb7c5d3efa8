"""What Dagster's schedules and sensors decided, read from their ticks.

A tick of a schedule decides about its moment. A tick of a sensor decides about the events above the
cursor of the tick before, up to its own. An ``asset_sensor`` decides about them together. A run
status sensor ends its tick at the first event for which its function requests something: so a
request belongs to the last event, and those before it had none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg

from arctic_orchestration.dagster_internals import InstigatorTick, TickStatus
from arctic_orchestration.schedules.adoption.comparison import Decision, Outcome, Request, Theirs
from arctic_orchestration.schedules.adoption.journal import Adoption
from arctic_orchestration.schedules.dagster.adoption.instigators import (
    ScheduleInstigator,
    SensorInstigator,
)
from arctic_orchestration.schedules.retention import KEEP

#: a tick that began so long before a shadow may have read events from after its beginning
_MARGIN = timedelta(minutes=10)
_RUNS_AT_ONCE = 500


def decided(
    instigator: ScheduleInstigator | SensorInstigator, adoption: Adoption, now: datetime
) -> Theirs:
    """Returns what an instigator of Dagster has decided since a shadow began.

    Dagster deletes ticks in time, and we delete jobs: what is older is not compared.
    """
    days = instigator.instance.get_tick_retention_settings(instigator.kind).values()
    kept = min([KEEP - timedelta(days=1), *(timedelta(days=one) for one in days if one > 0)])
    is_whole = adoption.at >= now - kept
    since = adoption.at - _MARGIN if is_whole else now - kept
    ticks = [tick for tick in instigator.ticks(since) if tick.status is not TickStatus.STARTED]
    if isinstance(instigator, ScheduleInstigator):
        begin = int((adoption.at if is_whole else since).timestamp())
        found = list(_of_schedule(ticks, begin))
        up_to = max([begin, *(one.keys[-1] for one in found)])
        return Theirs(decisions=_with_requests(instigator, found), above=begin, up_to=up_to)
    cursors = [(tick, instigator.cursor_of(tick)) for tick in ticks]
    seen = [cursor for _, cursor in cursors if cursor is not None]
    begin = max(adoption.boundary.event or 0, 0 if is_whole or not seen else seen[0])
    found = list(_of_sensor(cursors, begin, one_by_one=instigator.one_by_one))
    up_to = max([begin, *seen])
    last = ticks[-1] if ticks else None
    failure = None if last is None or last.status is not TickStatus.FAILURE else _of_tick(last)
    decisions = _with_requests(instigator, found)
    return Theirs(decisions=decisions, above=begin, up_to=up_to, failure=failure)


def _of_schedule(ticks: Sequence[InstigatorTick], begin: int) -> Iterator[Decision]:
    for tick in ticks:
        key = int(tick.timestamp)
        if key > begin:
            yield replace(_of_tick(tick), keys=(key - 1, key))


def _of_sensor(
    ticks: Sequence[tuple[InstigatorTick, int | None]], begin: int, *, one_by_one: bool
) -> Iterator[Decision]:
    for tick, cursor in ticks:
        if cursor is None or cursor <= begin:
            continue
        decision = _of_tick(tick)
        if one_by_one and decision.outcome is not Outcome.NO_RUN and cursor - 1 > begin:
            reason = "its function requested nothing for it"
            before = replace(decision, outcome=Outcome.NO_RUN, reason=reason)
            yield replace(before, keys=(begin, cursor - 1))
            begin = cursor - 1
        yield replace(decision, keys=(begin, cursor), about=f"event {cursor}")
        begin = cursor


def _of_tick(tick: InstigatorTick) -> Decision:
    at = datetime.fromtimestamp(tick.timestamp, UTC)
    if tick.run_ids:
        outcome, reason = Outcome.RUN, f"it requested {', '.join(tick.run_ids)}"
    elif tick.status is TickStatus.FAILURE:
        error = tick.error
        while error is not None and error.cause is not None:
            error = error.cause
        outcome, reason = Outcome.FAILED, "no reason noted" if error is None else error.message
    else:
        outcome, reason = Outcome.NO_RUN, tick.skip_reason or "it requested no run"
        if tick.run_keys:
            reason = f"there are runs for its run keys: {', '.join(tick.run_keys)}"
    source = str(tick.tick_id)
    return Decision(outcome=outcome, reason=reason.strip(), at=at, source=source, runs=tick.run_ids)


def _with_requests(
    instigator: ScheduleInstigator | SensorInstigator, decisions: Sequence[Decision]
) -> list[Decision]:
    ids = [id for decision in decisions for id in decision.runs]
    runs: dict[str, dg.DagsterRun] = {}
    for number in range(0, len(ids), _RUNS_AT_ONCE):
        some = dg.RunsFilter(run_ids=ids[number : number + _RUNS_AT_ONCE])
        runs |= {run.run_id: run for run in instigator.instance.get_runs(some)}
    return [replace(one, requests=_requests(one.runs, runs)) for one in decisions]


def _requests(ids: Sequence[str], runs: Mapping[str, dg.DagsterRun]) -> list[Request]:
    return [
        Request(
            partition=run.tags.get("dagster/partition"), tags=run.tags, run_config=run.run_config
        )
        for id in ids
        if (run := runs.get(id)) is not None
    ]
