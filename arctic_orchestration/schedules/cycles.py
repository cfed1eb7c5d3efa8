"""Finds schedules that trigger themselves or each other endlessly.

A run that succeeds writes events: its start, its success, and the arrivals and checks of the assets
it makes. A schedule is *sustained* by runs whose events alone satisfy its trigger. Schedules that
sustain each other never stop, and without a constraint that spaces their runs out nothing else
runs. Failures are different: repeating a run until it succeeds may be intended, and goes on forever
if it never does. An event that adds to a trigger without satisfying it sustains nothing.

Only schedules and runs of one code location are compared.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import ANY_LOCATION, EventKey, RunStatus
from arctic_orchestration.schedules.constraints import Delay, MinimumInterval, Rate, Window
from arctic_orchestration.schedules.triggers import (
    AllOf,
    AnyOf,
    Check,
    Data,
    Partitions,
    Quiet,
    Run,
    Trigger,
)

if TYPE_CHECKING:
    from arctic_orchestration.schedules.schedule import Schedule

#: the assets that each job makes, by job name
JobAssets = Mapping[str, Collection[str]]

_SUCCEEDS = (RunStatus.STARTED, RunStatus.SUCCESS)
_FAILS = (RunStatus.FAILURE, RunStatus.CANCELED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cycle:
    """Schedules whose runs trigger each other in a ring."""

    names: tuple[str, ...]
    #: whether no constraint spaces the runs out
    endless: bool

    def __str__(self) -> str:
        path = " → ".join((*self.names, self.names[0]))
        who = "the schedule's own runs set it off"
        if len(self.names) > 1:
            who = f"runs of these schedules set each other off, {path}"
        pause = "no constraint keeps" if self.endless else "only its constraints keep"
        return (
            f"Schedule({self.names[0]}).trigger: {who}. It never stops; {pause} time between two "
            "runs"
        )


def cycles(
    schedules: Sequence["Schedule"],
    location: str = "",
    job_assets: JobAssets | None = None,
    *,
    through: Collection[str] = (),
) -> list[Cycle]:
    """Returns the shortest cycles of a location's schedules, one for each schedule in a cycle.

    Costs one pass over the schedules and the events of their runs.

    Args:
        schedules: all of the location, with assets by name.
        location: its name; empty: unknown.
        job_assets: what the jobs make; missing jobs make nothing.
        through: the names that cycles begin with where they can.
    """
    known = job_assets or {}
    unspaced = [schedule for schedule in schedules if not _is_spaced_out(schedule)]
    found: list[Cycle] = []
    for among, endless in ((unspaced, True), (schedules, False)):
        seen = {name for cycle in found for name in cycle.names}
        following = _following(among, location, known)
        for name in sorted(following, key=lambda name: (name not in through, name)):
            if name not in seen and (names := _shortest(name, following)):
                seen.update(names)
                found.append(Cycle(names=names, endless=endless))
    return found


def problems(
    schedules: Sequence["Schedule"],
    location: str = "",
    job_assets: JobAssets | None = None,
    *,
    through: Collection[str] | None = None,
) -> Iterator[InvalidInput]:
    """Returns each endless cycle as a problem of its first schedule; ``through``: one of these."""
    by_name = {schedule.name: schedule for schedule in schedules}
    for cycle in cycles(schedules, location, job_assets, through=through or ()):
        if cycle.endless and (through is None or set(through) & set(cycle.names)):
            yield _problem(by_name[cycle.names[0]], cycle.names, "")


def own_problem(schedule: "Schedule", path: str) -> InvalidInput | None:
    """Returns the problem of a schedule that triggers itself, judged from it alone."""
    if is_sustained(schedule) and not _is_spaced_out(schedule):
        return _problem(schedule, (schedule.name,), path)
    return None


def is_sustained(schedule: "Schedule") -> bool:
    """Returns whether a successful run of the schedule satisfies its trigger again."""
    return bool(_sustaining(schedule.trigger, "", _made_by(schedule, "", {})))


def repeats_failures(schedule: "Schedule") -> bool:
    """Returns whether a failed run of the schedule satisfies its trigger again."""
    target = schedule.target
    fails = _of_runs(target.job, target.assets, "", _FAILS)
    succeeds = _of_runs(target.job, target.assets, "", _SUCCEEDS)
    return any(
        not fails.isdisjoint(leaf.keys("")) and succeeds.isdisjoint(leaf.keys(""))
        if isinstance(leaf, Run)
        else isinstance(leaf, Check) and leaf.status == "failed" and leaf.asset in target.assets
        for leaf in schedule.trigger.leaves
    )


def run_keys(
    job: str | None, assets: Collection[str], location: str, job_assets: JobAssets
) -> set[EventKey]:
    """Returns the keys of the events that a run of a job, or of assets, writes when it succeeds."""
    made = assets if job is None else job_assets.get(job, ())
    of_assets = {key(asset) for asset in made for key in (EventKey.of_partition, EventKey.of_check)}
    return of_assets | _of_runs(job, assets, location, _SUCCEEDS)


def _of_runs(
    job: str | None, assets: Collection[str], location: str, statuses: Sequence[RunStatus]
) -> set[EventKey]:
    places = (location, ANY_LOCATION)
    if job is not None:
        return {EventKey.of_job_run(at, job, status) for at in places for status in statuses}
    return {
        EventKey.of_asset_run(at, asset, status)
        for at in places
        for asset in assets
        for status in statuses
    }


def _made_by(schedule: "Schedule", location: str, job_assets: JobAssets) -> set[EventKey]:
    target = schedule.target
    return run_keys(target.job, target.assets, location, job_assets)


def _sustaining(trigger: Trigger, location: str, made: Collection[EventKey]) -> set[EventKey]:
    """Returns the keys whose events satisfy the trigger; empty if none do."""
    if isinstance(trigger, (AnyOf, AllOf)):
        parts = [_sustaining(child, location, made) for child in trigger.of]
        # With a wait, one of the events is enough.
        if isinstance(trigger, AllOf) and trigger.wait is None and not all(parts):
            return set()
        return set().union(*parts)
    if isinstance(trigger, Partitions):
        # The run may make none of the partitions that the trigger waits for, or no new version.
        source, is_any = trigger.source, trigger.where is None and not trigger.metadata
        moves_on = source.only_changed or source.ignores_late or source.mapping is not None
        satisfied = trigger.count == 1 and is_any and not moves_on
    elif isinstance(trigger, Run):
        # With assets of a job, the job of the schedule may be another one.
        by_job = trigger.job is not None and bool(trigger.assets)
        satisfied = trigger.count == 1 and not trigger.tags and not by_job
    elif isinstance(trigger, Check):
        # A run of an asset evaluates its checks.
        satisfied = trigger.count == 1 and trigger.status == "passed"
    else:
        satisfied = isinstance(trigger, (Data, Quiet))
    keys = trigger.leaves[0].keys(location) if satisfied else ()
    return {key for key in keys if key in made}


def _following(
    schedules: Sequence["Schedule"], location: str, job_assets: JobAssets
) -> dict[str, list[str]]:
    """For each schedule that others sustain, the schedules that its runs sustain."""
    made = {schedule.name: _made_by(schedule, location, job_assets) for schedule in schedules}
    triggers = {schedule.name: schedule.trigger for schedule in schedules}
    makers = Counter(key for keys in made.values() for key in keys)
    heard = {name: _sustaining(one, location, makers) for name, one in triggers.items()}
    listeners = defaultdict(list)
    for name, keys in heard.items():
        for key in keys:
            listeners[key].append(name)
    gone = [name for name, keys in heard.items() if not keys]
    while gone:
        name = gone.pop()
        del heard[name]
        for key in made[name]:
            makers[key] -= 1
            if makers[key]:
                continue
            del makers[key]
            for other in filter(heard.get, listeners[key]):
                heard[other] = _sustaining(triggers[other], location, makers)
                if not heard[other]:
                    gone.append(other)
    listeners.clear()
    for name, keys in heard.items():
        for key in keys:
            listeners[key].append(name)
    return {
        name: sorted({other for key in made[name] & listeners.keys() for other in listeners[key]})
        for name in heard
    }


def _shortest(name: str, following: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Returns the shortest path from a schedule back to itself; empty if there is none."""
    ways: dict[str, tuple[str, ...]] = {name: (name,)}
    waiting = [name]
    for at in waiting:
        for after in following[at]:
            if after == name:
                return ways[at]
            if after not in ways:
                ways[after] = (*ways[at], after)
                waiting.append(after)
    return ()


def _is_spaced_out(schedule: "Schedule") -> bool:
    """Returns whether a constraint enforces time between two runs."""
    return any(
        isinstance(constraint, (Rate, Window))
        or (isinstance(constraint, (Delay, MinimumInterval)) and bool(constraint.duration))
        for constraint in schedule.constraints
    )


def _problem(schedule: "Schedule", names: Sequence[str], path: str) -> InvalidInput:
    unsatisfied, runs = "its own runs do not satisfy", "it runs"
    if len(names) > 1:
        unsatisfied = f"does not close the cycle {' → '.join((*names, names[0]))}"
        runs = "they run"
    return InvalidInput(
        f"{path or f'Schedule({schedule.name})'}.trigger",
        schedule.trigger.to_form(),
        f"a trigger that {unsatisfied}, or a constraint that spaces the runs out "
        f"(minimum_interval, rate, delay, window): {runs} again and again without an end",
    )
