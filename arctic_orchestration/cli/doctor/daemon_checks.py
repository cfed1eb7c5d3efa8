"""The checks of Dagster's daemon and of the sensors that it ticks, in ``arctic doctor``."""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from arctic_orchestration.cli.doctor import run_queue_checks
from arctic_orchestration.cli.doctor.state_checks import Use, uses
from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.findings import Finding, bad, good, warning
from arctic_orchestration.console.state import read_state
from arctic_orchestration.quantities import format_duration

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from arctic_orchestration.dagster_internals import DaemonHeartbeat

#: Daemons send a heartbeat every 30 seconds, and a dispatcher ticks every few seconds.
_SILENT = timedelta(minutes=2)
#: older heartbeats may be of a daemon that has ended
_FRESH = timedelta(seconds=45)
#: the tolerated difference between clocks of different machines
_SKEW = timedelta(seconds=10)
_SENSOR_DAEMON = "SENSOR"
_START = "start it: dagster-daemon run, or dagster dev"
_CLOCK = (
    "set the clocks of the machines, for example by NTP; if they have been set back, "
    "see A clock that was ahead in docs/operation.md"
)


def of_dagster(check: str, found: str, advice: str) -> list[Finding]:
    """Reports a part of Dagster that never ran: no failure if compaction is used without it."""
    if uses() == {Use.COMPACTION}:
        advice = f"nothing for compaction with arctic compaction serve; else: {advice}"
        return [warning(check, found, advice)]
    return [bad(check, found, advice)]


def daemon(instance: "DagsterInstance") -> list[Finding]:
    """Checks that the sensor daemon sends heartbeats, and that there is no second daemon.

    Dagster itself calls a daemon healthy until it has been silent for half an hour.
    """
    from arctic_orchestration.event_log.ticks import first_line

    beats = instance.get_daemon_heartbeats()
    beat = beats.get(_SENSOR_DAEMON)
    if beat is None:
        return of_dagster("daemon", "the sensor daemon was never seen", _START)
    now = utc_now()
    seen_at = datetime.fromtimestamp(beat.timestamp, UTC)
    found = f"last heartbeat {seen_at:%Y-%m-%d %H:%M:%SZ}"
    if now - seen_at > _SILENT and not instance.daemon_skip_heartbeats_without_errors:
        found += f", {format_duration(_whole(now - seen_at))} ago: a daemon sends one every 30s"
        return [bad("daemon", found, _START)]
    if seen_at - now > _SKEW:
        found += f", {format_duration(_whole(seen_at - now))} from now"
        return [bad("daemon", found, _CLOCK)]
    required = instance.get_required_daemon_types()
    ids = _interleaved(one for one in beats.values() if one.daemon_type in required)
    ids = ids or _noticed(instance)
    if ids:
        found = f"{len(ids)} daemons run on this instance: {', '.join(sorted(ids))}"
        advice = "end all but one of them: Dagster supports one daemon for each instance"
        return [bad("daemon", found, advice)]
    if beat.errors:
        found += f"; it reported: {first_line(beat.errors[0])}"
        return [warning("daemon", found, "see the daemon's log")]
    return [good("daemon", found)]


def sensors(instance: "DagsterInstance") -> list[Finding]:
    """Checks the dispatcher of each code location, and other failing sensors of this package."""
    from arctic_orchestration.dagster_internals import InstigatorType

    states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    dispatchers = [state for state in states if state.name == "arctic_dispatcher"]
    others = [
        bad(
            f"sensor {state.name} of {_place(state)}",
            failure,
            f"see the ticks of {state.name} in Dagster's UI",
        )
        for state in states
        if state.name.startswith("arctic_") and state not in dispatchers and state.is_running
        if (failure := _failure(instance, state)) is not None
    ]
    if dispatchers:
        return [*(_of_dispatcher(instance, state) for state in dispatchers), *others]
    found = "no sensor arctic_dispatcher was ever evaluated"
    advice = "for schedules: merge arctic.definitions() into a code location of workspace.yaml"
    used = uses()
    goes_without = Use.SCHEDULES not in used and used & {Use.TASKS, Use.CONSUMERS}
    if run_queue_checks.has_rules(instance) or goes_without:
        # A user of the run queue, tasks or consumers alone has none.
        return [warning("dispatcher", found, advice), *others]
    return [*of_dagster("dispatcher", found, advice), *others]


def adopted(instance: "DagsterInstance") -> list[Finding]:
    """Finds adopted schedules and sensors that a user has started again in Dagster.

    Dagster evaluates a schedule then, beside ours. It evaluates no sensor, also if ours is gone.
    And those whose cut-over or way back has not ended, as after a command that was killed.
    """
    from arctic_orchestration.schedules.adoption.journal import Step
    from arctic_orchestration.schedules.dagster.adoption.instigators import is_fenced
    from arctic_orchestration.schedules.views.adoptions import abandoned, steps

    with read_state() as state:
        if state is None:
            return []
        known, gone = steps(*state), abandoned(*state)
    between = {
        Step.STOPPED: ("it is stopped in Dagster, and its schedule has not begun", "--cut-over"),
        Step.ENDED: ("its schedule has ended, and it is not started in Dagster", "--back"),
    }
    findings = []
    for (_, name), step in sorted(known.items()):
        if step in between:
            text, way = between[Step(step)]
            advice = f"go on with: arctic adopt {way} {name}"
            findings.append(bad(f"adopted {name}", f"{text}: nothing runs", advice))
    for one in instance.all_instigator_state():
        key, name = (_owner(one), one.name), f"adopted {one.name}"
        if known.get(key) != Step.ADOPTED or not one.is_running:
            continue
        fenced, back = is_fenced(one.instigator_data, utc_now()), f"arctic adopt --back {one.name}"
        if fenced and key in gone:
            text = "its schedule was deleted, and Dagster does not evaluate it: nothing runs"
            findings.append(bad(name, text, f"hand it back: {back}"))
        elif not fenced and key not in gone:
            text = "Dagster evaluates it beside its schedule: each of its runs is made twice"
            findings.append(bad(name, text, f"stop it in Dagster, or hand it back: {back}"))
    return findings


def _owner(state: Any) -> str:
    selector = state.repository_selector
    return f"{selector.location_name}/{selector.repository_name}"


def run_monitoring(instance: "DagsterInstance") -> list[Finding]:
    """Checks whether Dagster fails runs whose process died."""
    if instance.run_monitoring_enabled:
        return [good("run monitoring", "enabled")]
    return [
        warning(
            "run monitoring",
            "disabled: a run whose daemon dies while starting it stays STARTING for ever",
            "run_monitoring: {enabled: true} in dagster.yaml",
        )
    ]


def _of_dispatcher(instance: "DagsterInstance", state: Any) -> Finding:
    name = f"dispatcher of {_place(state)}"
    if not state.is_running:
        advice = "start arctic_dispatcher on the Automation page of Dagster's UI"
        return bad(name, "stopped", advice)
    ticked = getattr(state.instigator_data, "last_tick_timestamp", None)
    failure = _failure(instance, state)
    if failure is not None:
        return bad(name, failure, "see the ticks of arctic_dispatcher in Dagster's UI")
    if ticked is None:
        return warning(name, "running, no tick yet")
    at, now = datetime.fromtimestamp(ticked, UTC), utc_now()
    found = f"running, last tick {at:%Y-%m-%d %H:%M:%SZ}"
    if now - at > _SILENT:
        return bad(name, found, "see the daemon's log")
    if at - now > _SKEW:
        return bad(name, found, _CLOCK)
    return good(name, found)


def _failure(instance: "DagsterInstance", state: Any) -> str | None:
    """Returns when and how the last ended tick failed, or None."""
    from arctic_orchestration.dagster_internals import TickStatus
    from arctic_orchestration.event_log.ticks import first_line

    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=5)
    # A tick in progress has not failed yet; a dead daemon leaves such a tick behind.
    ended = (tick for tick in ticks if tick.status is not TickStatus.STARTED)
    last = next(ended, None)
    if last is None or last.status is not TickStatus.FAILURE:
        return None
    at = datetime.fromtimestamp(last.timestamp, UTC)
    error = first_line(last.error) if last.error else "no reason was stored"
    return f"its last tick, {at:%Y-%m-%d %H:%M:%SZ}, failed: {error}"


def _interleaved(beats: "Iterable[DaemonHeartbeat]") -> set[str]:
    """Returns daemons that sent heartbeats in turns; one that replaced another only follows it."""
    oldest = utc_now().timestamp() - _FRESH.total_seconds()
    moments: dict[str, list[float]] = defaultdict(list)
    for beat in beats:
        if beat.timestamp > oldest:
            moments[str(beat.daemon_id)].append(beat.timestamp)
    pairs = itertools.combinations(moments.items(), 2)
    return {
        id
        for (one, its), (other, theirs) in pairs
        if min(its) < max(theirs) and min(theirs) < max(its)
        for id in (one, other)
    }


def _noticed(instance: "DagsterInstance") -> set[str]:
    """Returns daemons that a dispatcher found running at the same time, as of its last tick."""
    from arctic_orchestration.dagster_internals import InstigatorType

    for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
        data: Any = state.instigator_data
        ticked = getattr(data, "last_tick_timestamp", None) or 0
        if state.name != "arctic_dispatcher" or not data or not data.cursor:
            continue
        if utc_now() - datetime.fromtimestamp(ticked, UTC) > _SILENT:
            continue
        if _failure(instance, state) is not None:
            # A failed tick stores its time, and leaves the cursor of an earlier one.
            continue
        # A person may have edited the cursor.
        with suppress(ValueError, TypeError, AttributeError):
            return set(json.loads(data.cursor).get("daemons", ()))
    return set()


def _place(state: Any) -> str:
    return str(state.origin.repository_origin.code_location_origin.location_name)


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=int(span.total_seconds()))
