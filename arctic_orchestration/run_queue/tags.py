"""The tags that apply rules to runs, for people and for Dagster's daemon.

Tags that a person may set on a job, an asset, a run, or the schedule that requests it:

=============================  ================================================================
``arctic/queue: urgent``       the queue it waits in
``arctic/level: "2"``          its level; without it the queue's, else ``dagster/priority``
``arctic/group: a, b``         groups it belongs to; ``window``, ``rate``, ``interval`` likewise
``arctic/group.a: anything``   the same for one group; tags of several assets add up
=============================  ================================================================

Tags of a submitted run, each only if a rule needs it:

================================  =============================================================
``arctic/queue``                  its queue
``arctic/level``                  its level, a whole number
``.dagster/arctic_queued_at``     when it was submitted
``dagster/priority``              the number by which Dagster's daemon sorts: level and age
``arctic/group.NAME``             the rule of the group, in words
``arctic/program.NAME``           its program, if the group limits each program
``arctic/window.NAME``            the rule of the window, in words
``arctic/interval.NAME``          its program, whose runs the interval spaces out
``arctic/rate.NAME``              ``waiting``, or ``granted`` once the rate lets it start
``arctic/problem``                the problem of tags that cannot be followed, if any
``arctic/wait``                   what it waits for, or waited for last: Dagster's UI hides the
                                  events of a queued run, and shows its tags
================================  =============================================================
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from arctic_orchestration.event_log.escaping import escaped
from arctic_orchestration.run_queue import aging
from arctic_orchestration.run_queue.rules import (
    DEFAULT_QUEUE,
    HIGHEST_LEVEL,
    KINDS,
    Rules,
    RunFacts,
    known_names,
)

PREFIX = "arctic/"
QUEUE = "arctic/queue"
LEVEL = "arctic/level"
QUEUED_AT = ".dagster/arctic_queued_at"
WAIT = "arctic/wait"
PROBLEM = "arctic/problem"
#: the level that a run was submitted with, once a person has changed it
FIRST_LEVEL = ".dagster/arctic_first_level"
#: Dagster's tag by which its daemon sorts, the highest first
PRIORITY = "dagster/priority"

#: Dagster's tag on a run that repeats another one, with all of its tags
_PARENT = "dagster/parent_run_id"
_NOTHING = "nothing"
_NAMES = re.compile(r"[\s,;]+")
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}")
#: the characters of a sentence or a program in a tag: Postgres refuses values above 2704 bytes,
#: which it indexes
_LONGEST = 600
#: the number of assets that the name of a program lists
_NAMED_ASSETS = 3


class Kind(StrEnum):
    """The kinds of rules of which several may apply to a run, as written in tags."""

    GROUP = "group"
    WINDOW = "window"
    RATE = "rate"
    INTERVAL = "interval"

    @property
    def configured_as(self) -> str:
        """The key of its rules in the configuration."""
        return f"{self.value}s"

    def key(self, name: str) -> str:
        """Returns the tag of the runs to which a rule applies."""
        return f"{PREFIX}{self.value}.{name}"


class Turn(StrEnum):
    """The values of the tag of a rate."""

    WAITING = "waiting"
    GRANTED = "granted"


def program_key(group: str) -> str:
    """Returns the tag with the program of a run, for a group that limits each program."""
    return f"{PREFIX}program.{group}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The rules that apply to a run."""

    queue: str | None
    level: int
    groups: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    intervals: tuple[str, ...] = ()
    #: tags that cannot be followed, and windows that never open together, as sentences
    problems: tuple[str, ...] = ()


def program_of(run: RunFacts) -> str:
    """Returns the program of a run, by which limits for each program distinguish runs.

    Its job with its code location or, for a run of assets, these assets.
    """
    what = run.job
    if run.assets and run.job.startswith("__"):
        # Dagster's own job for assets does not distinguish programs.
        named = sorted(map(escaped, run.assets))
        what = ", ".join(named[:_NAMED_ASSETS])
        if len(named) > _NAMED_ASSETS:
            # Two sets of assets with the same beginning are two programs.
            all_of_them = hashlib.sha256("\n".join(named).encode()).hexdigest()
            what += f" and {len(named) - _NAMED_ASSETS} more ({all_of_them[:6]})"
    program = f"{run.location}: {what}" if run.location else what
    if len(program) <= _LONGEST:
        return program
    return f"{program[: _LONGEST - 9]} ({hashlib.sha256(program.encode()).hexdigest()[:6]})"


def standing_of(run: RunFacts, rules: Rules) -> Standing:
    """Returns the rules for a run, by its tags, those of its assets, and the rules' matches."""
    problems = list(_misspelled(run))
    named = {kind: _named(run, rules, kind, problems) for kind in Kind}
    queue = _queue(run, rules, problems)
    windows = named[Kind.WINDOW]
    if not rules.ever_open(windows):
        problems.append(
            f"windows {', '.join(windows)}: never open at the same time, so the run never starts"
        )
    return Standing(
        queue=queue,
        level=_level(run, rules, queue, problems),
        groups=named[Kind.GROUP],
        windows=windows,
        rates=named[Kind.RATE],
        intervals=named[Kind.INTERVAL],
        problems=tuple(dict.fromkeys(problems)),
    )


def tags_for(run: RunFacts, standing: Standing, rules: Rules, now: datetime) -> dict[str, str]:
    """Returns the tags to submit a run with; tags that it has with the same value are left out."""
    tags: dict[str, str] = {}
    program = program_of(run)
    for name in standing.groups:
        group = rules.groups[name]
        tags[Kind.GROUP.key(name)] = group.text
        if group.limit_per_program is not None:
            tags[program_key(name)] = program
    for name in standing.windows:
        tags[Kind.WINDOW.key(name)] = rules.windows[name].text
    for name in standing.intervals:
        tags[Kind.INTERVAL.key(name)] = program
    for name in standing.rates:
        tags[Kind.RATE.key(name)] = Turn.WAITING.value
    # A run that is submitted again has fewer problems: its invalid tags were replaced.
    if standing.problems and (PROBLEM not in run.tags or _PARENT in run.tags):
        tags[PROBLEM] = shortened("; ".join(standing.problems))
    if _PARENT in run.tags:
        # Belongs to the run that this one repeats.
        tags.update(
            {key: _NOTHING for key in (PROBLEM, WAIT) if key in run.tags and key not in tags}
        )
    if standing.queue is not None:
        tags[QUEUE] = standing.queue
    if not rules.ages and QUEUED_AT in run.tags:
        # A retry of a run with an aged priority, which would now be behind everything.
        tags[PRIORITY] = str(parse_level(run.tags.get(LEVEL, "")) or 0)
    elif rules.ages:
        tags.update(level_tags(standing.level, now, rules.seconds_per_level))
    return {key: value for key, value in tags.items() if run.tags.get(key) != value}


def shortened(text: str) -> str:
    """Returns the text as the value of a tag, without the end of one that is too long."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def level_tags(level: int, queued_at: datetime, seconds_per_level: int) -> dict[str, str]:
    """Returns the tags by which a run is sorted."""
    return {
        LEVEL: str(level),
        QUEUED_AT: f"{queued_at:%Y-%m-%dT%H:%M:%SZ}",
        PRIORITY: str(aging.priority(level, queued_at, seconds_per_level)),
    }


def problem_of(tags: Mapping[str, str]) -> str | None:
    """Returns the problem of a run's tags that cannot be followed, or None."""
    problem = tags.get(PROBLEM)
    return None if problem == _NOTHING else problem


def queued_at_of(tags: Mapping[str, str]) -> datetime | None:
    """Returns when a run was submitted according to its tags; None: they do not say."""
    try:
        at = datetime.fromisoformat(tags[QUEUED_AT])
        # A moment at the end of the calendar may be none in UTC.
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (KeyError, ValueError, OverflowError):
        return None


def _misspelled(run: RunFacts) -> Iterator[str]:
    """Yields the problems of tags that are named as the keys of dagster.yaml are."""
    for tags in (run.tags, *run.asset_tags):
        for tag in tags:
            key, dot, name = tag.partition(".")
            if key.startswith(PREFIX) and key.removeprefix(PREFIX) in KINDS:
                yield f"{tag}: got such a tag, expected {key[:-1]}{dot}{name}"


def _named(run: RunFacts, rules: Rules, kind: Kind, problems: list[str]) -> tuple[str, ...]:
    configured = rules.named(kind.configured_as)
    found = {name: None for name, rule in configured.items() if rule.takes(run)}
    key = f"{PREFIX}{kind.value}"
    for tags in (run.tags, *run.asset_tags):
        for tag, value in tags.items():
            if tag == key:
                names: Sequence[str] = [name for name in _NAMES.split(value) if name]
                unknown = [name for name in names if name not in configured]
                problems.extend(
                    f"{tag}: got {name!r}, expected one of the {kind.configured_as} of "
                    f"dagster.yaml: {known_names(configured)}"
                    for name in unknown
                )
            elif tag.startswith(f"{key}."):
                # Unknown names are groups that only schedules have, or of deleted rules.
                names = [tag.removeprefix(f"{key}.")]
            else:
                continue
            found.update((name, None) for name in names if name in configured)
    return tuple(sorted(found))


def _queue(run: RunFacts, rules: Rules, problems: list[str]) -> str | None:
    if not rules.queues:
        return None
    for tags in (run.tags, *run.asset_tags):
        value = tags.get(QUEUE)
        if value is None:
            continue
        if value in rules.queues:
            return value
        problems.append(
            f"{QUEUE}: got {value!r}, expected one of the queues of dagster.yaml: "
            f"{known_names(rules.queues)}"
        )
    for name, queue in rules.queues.items():
        if queue.takes(run):
            return name
    return DEFAULT_QUEUE


def _level(run: RunFacts, rules: Rules, queue: str | None, problems: list[str]) -> int:
    # A level that a person gave to one run does not apply to its repetitions.
    for tag in (FIRST_LEVEL, LEVEL, PRIORITY):
        for tags in (run.tags, *run.asset_tags):
            value = tags.get(tag)
            if value is None or (tag == PRIORITY and QUEUED_AT in tags):
                continue
            level = parse_level(value)
            if level is not None:
                return level
            if tag == LEVEL:
                problems.append(f"{LEVEL}: got {value!r}, expected {LEVEL_EXPECTED}")
    return rules.queues[queue].level if queue is not None else 0


LEVEL_EXPECTED = f"a whole number from -{HIGHEST_LEVEL} to {HIGHEST_LEVEL}"


def parse_level(text: str) -> int | None:
    """Parses a level; None: it is no whole number, or too far from 0."""
    if not _WHOLE.fullmatch(text.strip()) or abs(int(text)) > HIGHEST_LEVEL:
        return None
    return int(text)
