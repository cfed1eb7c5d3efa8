"""The checks of the run coordinator and its daemon, in ``arctic doctor``."""

from datetime import datetime
from typing import TYPE_CHECKING, cast

from arctic_orchestration.cli.doctor.state_checks import Use, uses
from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.dagster_errors import dagster_message
from arctic_orchestration.console.findings import Finding, bad, good, warning
from arctic_orchestration.console.state import read_state
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.run_queue import pauses, waits
from arctic_orchestration.run_queue.dagster.open_queue import Ruled, daemon_trouble
from arctic_orchestration.run_queue.pauses import Paused
from arctic_orchestration.run_queue.rules import KINDS, Rules, RunFacts
from arctic_orchestration.run_queue.tags import PREFIX, QUEUE
from arctic_orchestration.run_queue.unmatched_rules import shadowed, unmatched
from arctic_orchestration.run_queue.waits import LastPass
from arctic_orchestration.schedules.inventory import inventories
from arctic_orchestration.waits import command

if TYPE_CHECKING:
    from dagster import DagsterInstance

_CHECK = "run coordinator"


def run_coordinator(instance: "DagsterInstance") -> list[Finding]:
    """Checks the run coordinator's class; if ours, its rules, last pass, closed gates and pauses.

    Must be the first that uses the instance's run coordinator: on a second access Dagster returns
    one that refused its configuration.
    """
    try:
        coordinator = instance.run_coordinator
    except Exception as error:
        text = str(error) if isinstance(error, ArcticError) else dagster_message(error)
        return [bad(_CHECK, text, "fix run_coordinator in dagster.yaml as reported")]
    name = type(coordinator).__name__
    rules = getattr(coordinator, "rules", None)
    if not isinstance(rules, Rules):
        found = f"{name}, which has no rules: windows, groups and queues are ArcticRunCoordinator's"
        return [good(_CHECK, found)]
    if rules.are_none:
        return [good(_CHECK, f"{name} without rules: runs start as with Dagster's own class")]
    last, paused = _noted(rules)
    now = utc_now()
    found = f"{name}: {_counted(rules)}"
    trouble = daemon_trouble(cast(Ruled, coordinator), last, now)
    if trouble is not None:
        what, advice = trouble
        return [
            bad(_CHECK, f"{found}; {what}", advice),
            *_held(rules, paused, now),
        ]
    if last is not None:
        found += f"; last pass {format_moment(last.at)}"
    return [
        good(_CHECK, found),
        *_held(rules, paused, now),
        *_without_runs(rules, instance),
    ]


def run_launcher(instance: "DagsterInstance") -> list[Finding]:
    """Checks whether runs of schedules claim their job when they begin; fails if it is refused."""
    check = "run launcher"
    try:
        launcher = type(instance.run_launcher)
    except Exception as error:
        text = str(error) if isinstance(error, ArcticError) else dagster_message(error)
        return [bad(check, text, "fix run_launcher in dagster.yaml as reported")]
    if any(base.__name__ == "ArcticRunLauncher" for base in launcher.__mro__):
        return [good(check, launcher.__name__)]
    if Use.SCHEDULES not in uses():
        return []
    return [
        warning(
            check,
            f"{launcher.__name__}: a slow run that was given up may begin after all, beside "
            "the job's next attempt",
            "in dagster.yaml, unless runs start in containers: run_launcher: "
            "{module: arctic_orchestration.run_launcher, class: ArcticRunLauncher}",
        )
    ]


def has_rules(instance: "DagsterInstance") -> bool:
    """Returns whether the run coordinator is ours and has rules."""
    try:
        rules = getattr(instance.run_coordinator, "rules", None)
    except Exception:
        return False
    return isinstance(rules, Rules) and not rules.are_none


def _noted(rules: Rules) -> tuple[LastPass | None, Paused]:
    with read_state() as state:
        if state is None:
            return None, pauses.in_force(rules, [])
        return waits.last_pass(*state), pauses.in_force(rules, pauses.manual_pauses(*state))


def _held(rules: Rules, paused: Paused, now: datetime) -> list[Finding]:
    """Finds what holds runs now: closed windows are normal, a pause may be forgotten."""
    closed = [
        f"{name} until {format_moment(window.opens_at(now))}"
        for name, window in rules.windows.items()
        if not window.is_open(now)
    ]
    findings = []
    if rules.windows:
        found = f"closed: {', '.join(closed)}" if closed else f"all {len(rules.windows)} are open"
        findings.append(good("windows", found))
    if paused:
        found = "; ".join(pause.text for pause in paused.values())
        commands = [
            command("queues", "resume", name, options=("--group",) if kind == "group" else ())
            for kind, name in paused
        ]
        advice = f"if it was forgotten: {', '.join(commands)}"
        findings.append(warning("paused", found, advice))
    return findings


def _without_runs(rules: Rules, instance: "DagsterInstance") -> list[Finding]:
    """Finds rules that select no run; one that a run has been under is no typo."""
    hidden = [
        (
            f"queue {name}: all runs that it matches are in queue {first}, which comes first",
            f"give {name} a higher level than {first} has",
        )
        for name, first in shadowed(rules)
    ]
    known = _known_runs()
    names = list(unmatched(rules, known)) if known else []
    keys = {(kind, name): f"{PREFIX}{kind[:-1]}.{name}" for kind, name in names}
    tags = dict(instance.get_run_tags(tag_keys=[QUEUE, *keys.values()])) if names else {}
    unused = [
        (
            f"{kind[:-1]} {name}: matches no job and no asset that code locations with schedules "
            "have, and no run was under it",
            "check its match in dagster.yaml, unless it is for a code location without schedules",
        )
        for kind, name in names
        if not (name in tags.get(QUEUE, ()) if kind == "queues" else keys[kind, name] in tags)
    ]
    return [warning("rules", found, advice) for found, advice in (*hidden, *unused)]


def _known_runs() -> list[RunFacts]:
    """Returns a run of each job and of all assets, of the code locations that store theirs."""
    with read_state() as state:
        found = inventories(*state).values() if state is not None else ()
    runs = [
        RunFacts(job=job, assets=inventory.job_assets.get(job, ()))
        for inventory in found
        for job in inventory.jobs
    ]
    return runs + [
        RunFacts(job="__ASSET_JOB", assets=tuple(inventory.assets)) for inventory in found
    ]


def _counted(rules: Rules) -> str:
    counts = {kind: len(rules.named(kind)) for kind in KINDS}
    parts = [
        f"{count} {kind[:-1] if count == 1 else kind}" for kind, count in counts.items() if count
    ]
    return ", ".join(parts) or f"levels age by one in {rules.seconds_per_level}s"
