"""The rules of the run queue in ``dagster.yaml``.

::

    run_coordinator:
      module: arctic_orchestration.coordinator
      class: ArcticRunCoordinator
      config:
        max_concurrent_runs: 20            # and everything else that the stock class takes
        groups:                            # a limit on active runs
          warehouse: {limit: 3, match: [{job: "load_*"}, {asset: "marts/*"}]}
          refunds: {limit_per_program: 1, match: {tags: {team: finance}}}
        windows:                           # runs start only while it is open
          nightly: {start: "22:00", end: "06:00", timezone: Europe/Berlin, match: {job: bill}}
        rates:                             # a limit on starts in any span of that length
          api: {limit: 10, per: 1m, match: {tags: {source: crm}}}
        intervals:                         # a pause between the runs of one program
          calm: {duration: 10m, match: {job: rollup}}
        queues:                            # a run is in the matching queue of the highest level
          urgent: {level: 2, share: 4, match: {tags: {tier: "1"}}}
          backfills: {share: 1, match: {tags: {dagster/backfill: "*"}}}
        seconds_per_level: 600

A rule applies to the runs that ``match`` describes (one item of a list is enough), and to runs that
name it in a tag: see :mod:`~arctic_orchestration.run_queue.tags`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.quantities import PositiveDuration, format_duration
from arctic_orchestration.schedules.constraints.window import DAYS, Window, ever_open
from arctic_orchestration.specification import Specification

#: the queue of runs that no other queue takes
DEFAULT_QUEUE = "default"
#: the default wait after which a run counts as one of the next level
SECONDS_PER_LEVEL = 600
#: the maximum age of runs that are read
LONGEST_SPAN = timedelta(days=30)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_NAME_EXPECTED = "a name of 1 to 40 of A-Z a-z 0-9 _ -, beginning with a letter or digit"
#: Keeps an aged priority a number that every database and JSON reader can represent.
HIGHEST_LEVEL = 1_000_000

#: Tags that rules set; a rule that matched them would depend on its own effect.
_WRITTEN = re.compile(
    r"dagster/priority$|arctic/(queue|level|wait|problem)$|[.]dagster/arctic_"
    r"|arctic/(group|program|window|interval|rate)([.]|$)"
)

#: of Dagster's names of jobs, as patterns
_JOB_PATTERN = re.compile(r"[A-Za-z0-9_*?\[\]!-]+")

_STATUSES = ("success", "failure", "canceled")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """The inputs of rules: one run, as submitted or as read while active."""

    job: str
    location: str | None = None
    #: the assets that it makes, as ``a/b``; empty for a run of a job of ops
    assets: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    #: the tags of its assets, one mapping for each asset
    asset_tags: tuple[Mapping[str, str], ...] = ()


def _listed(value: object) -> object:
    return (value,) if isinstance(value, (str, Mapping, Specification)) else value


def _short(value: timedelta) -> timedelta:
    if value > LONGEST_SPAN:
        raise ValueError(f"a duration of at most {format_duration(LONGEST_SPAN)}")
    return value


_Span = Annotated[PositiveDuration, AfterValidator(_short)]


class Match(Specification):
    """Selects runs: those that meet all of its conditions.

    Patterns are those of file names (``*``, ``?``, ``[abc]``), and are case-sensitive. ``asset``
    matches if any asset that the run makes does; a tag with the pattern ``*`` must exist.
    """

    job: str | None = Field(default=None, min_length=1)
    location: str | None = Field(default=None, min_length=1)
    asset: str | None = Field(default=None, min_length=1)
    tags: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("job")
    @classmethod
    def _a_name(cls, value: str | None) -> str | None:
        if value is not None and not _JOB_PATTERN.fullmatch(value):
            raise ValueError("a job's name (A-Z a-z 0-9 _), in which * ? [abc] are patterns")
        return value

    @field_validator("tags")
    @classmethod
    def _tags_of_others(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for key in value:
            if _WRITTEN.match(key):
                raise ValueError(f"tags that runs come with, but not {key}: it follows from rules")
        return value

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if self.job is None and self.location is None and self.asset is None and not self.tags:
            raise ValueError('job, location, asset or tags; all runs are {job: "*"}')
        return self

    def takes(self, run: RunFacts) -> bool:
        """Returns whether the run meets all conditions."""
        if self.job is not None and not _fits(self.job, run.job):
            return False
        if self.location is not None and not _fits(self.location, run.location or ""):
            return False
        if self.asset is not None and not any(_fits(self.asset, asset) for asset in run.assets):
            return False
        return all(
            key in run.tags and _fits(pattern, run.tags[key]) for key, pattern in self.tags.items()
        )


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(translate(text))


def _fits(pattern: str, text: str) -> bool:
    return _pattern(pattern).match(text) is not None


Matches = Annotated[
    tuple[Match, ...],
    BeforeValidator(_listed, json_schema_input_type=Match | tuple[Match, ...]),
]


class Rule(Specification):
    """The base of all rules."""

    match: Matches = ()

    def takes(self, run: RunFacts) -> bool:
        """Returns whether one of its matches selects the run."""
        return any(match.takes(run) for match in self.match)

    @property
    def text(self) -> str:
        """A short text of the rule for people."""
        raise NotImplementedError


class Group(Rule):
    """At most ``limit`` active runs, or a limit for each program, or both.

    The program of a run is its job or, for a run of assets, these assets.
    """

    limit: int | None = Field(default=None, ge=0, strict=True)
    limit_per_program: int | None = Field(default=None, ge=0, strict=True)

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.limit is None and self.limit_per_program is None:
            raise ValueError("limit, limit_per_program or both")
        return self

    @property
    def text(self) -> str:
        limits = []
        if self.limit is not None:
            limits.append(f"at most {self.limit} at once")
        if self.limit_per_program is not None:
            limits.append(f"at most {self.limit_per_program} of a program")
        return ", ".join(limits)


class TimeWindow(Window):
    """Runs start only while it is open; active runs go on when it closes."""

    match: Matches = ()

    @model_validator(mode="before")
    @classmethod
    def _only_fields_of_a_window(cls, form: Any) -> Any:
        if isinstance(form, Mapping):
            for name in ("otherwise", "kind"):
                if name in form:
                    raise ValueError(f"start, end, timezone, days and match, but not {name}")
        return form

    def takes(self, run: RunFacts) -> bool:
        """Returns whether one of its matches selects the run."""
        return any(match.takes(run) for match in self.match)

    @property
    def text(self) -> str:
        """A short text of the rule for people."""
        days = "" if self.days == DAYS else f" {','.join(self.days)}"
        return f"{self.start}-{self.end} {self.timezone}{days}"


class Rate(Rule):
    """At most ``limit`` starts in any span ``(t - per, t]``."""

    limit: int = Field(ge=1, strict=True)
    per: _Span

    @property
    def text(self) -> str:
        return f"at most {self.limit} starts in {format_duration(self.per)}"


class Interval(Rule):
    """A run starts when no run of its program is active and ``duration`` has passed since the last.

    The last run is the last that ended in one of ``statuses``.
    """

    duration: _Span
    statuses: Annotated[tuple[Literal["success", "failure", "canceled"], ...],
                        BeforeValidator(_listed)] = ("success",)  # fmt: skip

    @field_validator("statuses")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("at least one status")
        return tuple(status for status in _STATUSES if status in value)

    @property
    def text(self) -> str:
        return f"{format_duration(self.duration)} between runs"


class Queue(Rule):
    """Runs that get a share of the slots of ``max_concurrent_runs``, and begin at a level.

    A run that several queues match is in the one with the highest level; of equal ones, in the
    first by name.

    If several queues have runs that could start, slots go to them in proportion to their shares; an
    unused share is lent.
    """

    level: int = Field(default=0, ge=-HIGHEST_LEVEL, le=HIGHEST_LEVEL, strict=True)
    share: float = Field(default=1.0, gt=0, le=1_000_000, allow_inf_nan=False)
    paused: bool = Field(default=False, strict=True)

    @field_validator("share", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("a number more than 0")
        return value

    @property
    def text(self) -> str:
        return f"level {self.level}, share {self.share:g}"


#: the kinds of rules by their configuration keys
KINDS: Mapping[str, type[Rule] | type[TimeWindow]] = {
    "groups": Group,
    "windows": TimeWindow,
    "rates": Rate,
    "intervals": Interval,
    "queues": Queue,
}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All rules of one run coordinator."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    windows: Mapping[str, TimeWindow] = field(default_factory=dict)
    rates: Mapping[str, Rate] = field(default_factory=dict)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    seconds_per_level: int = SECONDS_PER_LEVEL
    #: whether levels age: with queues, or if ``seconds_per_level`` is configured
    ages: bool = False

    @classmethod
    def parse(cls, config: Mapping[str, Any], *, field: str = "run_coordinator.config") -> Self:
        """Parses the rules in the configuration of the run coordinator.

        Errors:
            InvalidDefinition: names every field by its path in ``dagster.yaml``, its value and
                what was expected.
        """
        problems: list[InvalidInput] = []
        kinds: dict[str, dict[str, Any]] = {}
        for kind, model in KINDS.items():
            kinds[kind] = _rules(config.get(kind), model, f"{field}.{kind}", problems)
        seconds = config.get("seconds_per_level")
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int)
                                    or not 1 <= seconds <= 86_400):  # fmt: skip
            problems.append(
                InvalidInput(f"{field}.seconds_per_level", seconds, "a whole number, 1 to 86400")
            )
        if problems:
            raise InvalidDefinition(problems)
        queues = kinds.pop("queues")
        if queues:
            queues.setdefault(DEFAULT_QUEUE, Queue())
            # Not the order of the file: Dagster sorts mappings by key.
            queues = dict(sorted(queues.items(), key=lambda item: (-item[1].level, item[0])))
        return cls(
            **kinds,
            queues=queues,
            seconds_per_level=seconds or SECONDS_PER_LEVEL,
            ages=bool(queues) or seconds is not None,
        )

    @cached_property
    def are_none(self) -> bool:
        """Whether there is no rule at all: everything is as with Dagster's own class."""
        return not (self.ages or any(self.named(kind) for kind in KINDS))

    def ever_open(self, names: Iterable[str]) -> bool:
        """Returns whether all windows of these names are ever open at the same time."""
        key = frozenset(names)
        if key not in self._open_together:
            self._open_together[key] = ever_open([self.windows[name] for name in key])
        return self._open_together[key]

    @cached_property
    def _open_together(self) -> dict[frozenset[str], bool]:
        return {}

    def named(self, kind: str) -> Mapping[str, Any]:
        """Returns the rules of a kind by their names; the kind as it is configured: ``groups``."""
        rules: Mapping[str, Any] = getattr(self, kind)
        return rules


def _rules(given: object, model: Any, path: str, problems: list[InvalidInput]) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        problems.append(InvalidInput(path, given, "a mapping from names to rules"))
        return {}
    found = {}
    for name, form in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(InvalidInput(path, name, _NAME_EXPECTED))
            continue
        try:
            found[name] = model.parse({} if form is None else form, field=f"{path}.{name}")
        except InvalidDefinition as error:
            problems.extend(error.problems)
    return found


def known_names(names: Iterable[str]) -> str:
    """Names for a message, at most eight."""
    ordered: Sequence[str] = sorted(names)
    return ", ".join(ordered[:8]) + (", ..." if len(ordered) > 8 else "") or "none"
