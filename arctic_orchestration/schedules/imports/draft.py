"""One foreign object on its way to a schedule: its form, and what people should know about it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar, overload

from arctic_orchestration.errors import InvalidDefinition, InvalidInput, shown
from arctic_orchestration.quantities import format_duration
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.zones import known_zone

_T = TypeVar("_T")
#: A wait that the other scheduler does not end: longer than any real one.
NO_TIMEOUT = "3650d"
#: The tag by which Dagster's run monitoring ends a run that takes too long.
MAX_RUNTIME = "dagster/max_runtime"
#: seconds
_LONGEST_RUNTIME = 10**11
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class Outcome(StrEnum):
    """How well a schedule says what the foreign object said."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    NOT_POSSIBLE = "not possible"


class NotPossible(Exception):
    """No schedule can say this; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person knows and a file does not say."""

    now: datetime
    #: the zone of the machine that ran the other scheduler; None: not known
    timezone: str | None = None
    #: whether lines of a crontab name a user, as /etc/crontab
    user_column: bool = False


@dataclass(kw_only=True)
class Draft:
    """The schedule of one foreign object, as far as it is known.

    ``reasons`` say what differs or why it is not possible; ``notes`` say what became of parts that
    change nothing about when the schedule runs; ``left_out`` are fields that no
    schedule has.
    """

    source: str
    names: "Names"
    options: Options
    form: dict[str, Any] | None = None
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        if self.form is None:
            return Outcome.NOT_POSSIBLE
        return Outcome.APPROXIMATE if self.reasons else Outcome.EXACT

    @property
    def name(self) -> str | None:
        """The name of the schedule; None: there is none."""
        return None if self.form is None else self.form["name"]

    def differs(self, reason: str) -> None:
        """Makes the outcome approximate, for this reason."""
        if reason not in self.reasons:
            self.reasons.append(reason)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def refuse(self, reason: str) -> None:
        """Makes the outcome not possible, for this reason before all others."""
        self.form = None
        self.reasons.insert(0, reason)

    def zone(self, place: str) -> str:
        """Returns the zone of a file that names none."""
        if self.options.timezone is not None:
            return self.options.timezone
        self.differs(f"timezone: the file does not have {place}: UTC is assumed (--timezone)")
        return "UTC"

    def finish(self, *, coalesce: bool = True, **form: Any) -> None:
        """Sets the form, without empty fields; one that is refused makes it not possible."""
        self.form = {name: value for name, value in form.items() if value not in ({}, [], "")}
        if not coalesce:
            self.form["coalesce"] = False
        try:
            stored = Schedule.parse(self.form).to_form()
        except InvalidDefinition as error:
            self.refuse("; ".join(str(problem) for problem in error.problems))
        else:
            # Code may have kinds of text and of mappings that no file and no Python can show.
            free = self.form.keys() & {"run_config", "tags"}
            self.form |= {name: stored[name] for name in free}

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "name": self.name,
            "outcome": self.outcome.value,
            "reasons": self.reasons,
            "notes": self.notes,
            "left_out": self.left_out,
        }


def max_runtime(draft: Draft, field: str, seconds: Any) -> str:
    """Returns the limit of a run's time as the value of its tag; empty: it is not understood."""
    known = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not known or not 1 <= seconds <= _LONGEST_RUNTIME:
        draft.differs(f"not understood: {field}: {shown(seconds)}")
        return ""
    draft.note(f"{field}: tag {MAX_RUNTIME}, which Dagster's run monitoring enforces")
    return str(int(seconds))


class Names:
    """Maps foreign names to names of schedules, jobs and assets; finds two that become one."""

    def __init__(self) -> None:
        self._origins: dict[tuple[str, str], str] = {}
        self._problems: list[InvalidInput] = []

    def schedule(self, original: str, draft: Draft) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", original)
        name = (name if re.match("[A-Za-z_]", name) else f"_{name}")[:100]
        return self._mapped("name", original, name, draft)

    def job(self, original: str, draft: Draft) -> str:
        """Dagster allows letters, digits and underscores in the name of a job."""
        return self._mapped("job", original, _word(original) or "_", draft)

    def asset(self, original: str, draft: Draft) -> str:
        parts = [_word(part) for part in _SCHEME.sub("", original).split("/") if part]
        if not parts:
            raise NotPossible(f"asset {shown(original)}: no name is left of it")
        return self._mapped("asset", original, "/".join(parts), draft)

    def refuse_collisions(self, drafts: Iterable[Draft]) -> None:
        """Refuses foreign names that became one.

        Errors:
            InvalidDefinition: names both, and what they became.
        """
        owners: dict[str, Draft] = {}
        problems = list(self._problems)
        for draft in drafts:
            name = draft.name
            if name is not None and (first := owners.setdefault(name, draft)) is not draft:
                expected = f"another name: {shown(first.source)} becomes {name}, too"
                problems.append(InvalidInput("name", draft.source, expected))
        if problems:
            raise InvalidDefinition(problems)

    def _mapped(self, what: str, original: str, name: str, draft: Draft) -> str:
        if name != original:
            draft.note(f"{what}: {original} → {name}")
        first = self._origins.setdefault((what, name), original)
        if first != original and what != "name":
            expected = f"another name: {shown(first)} becomes the {what} {name}, too"
            self._problems.append(InvalidInput(what, original, expected))
        return name


class Fields:
    """A mapping of a foreign file that is read field by field; names the fields that are left."""

    def __init__(self, value: object, draft: Draft, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise NotPossible(f"{path or 'object'}: got {shown(value)}, expected a mapping")
        self._left = {str(name): item for name, item in value.items()}
        self.draft = draft
        self.path = path

    @overload
    def take(self, name: str, kind: type[_T]) -> _T | None: ...
    @overload
    def take(self, name: str, kind: type[_T], default: _T) -> _T: ...
    def take(self, name: str, kind: type[_T], default: _T | None = None) -> _T | None:
        """Returns a field; null and absent are the default."""
        value = self._left.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            what = _KINDS.get(kind, kind.__name__)
            raise NotPossible(f"{self.at(name)}: got {shown(value)}, expected {what}")
        return value

    def need(self, name: str, kind: type[_T]) -> _T:
        value = self.take(name, kind)
        if value is None:
            raise NotPossible(f"{self.at(name)}: is missing")
        return value

    def inner(self, name: str) -> "Fields | None":
        """Returns the fields of a mapping in this one; None: there is none."""
        value = self._left.pop(name, None)
        return None if value is None else Fields(value, self.draft, self.at(name))

    def need_inner(self, name: str) -> "Fields":
        inner = self.inner(name)
        if inner is None:
            raise NotPossible(f"{self.at(name)}: is missing")
        return inner

    def each(self, name: str) -> "list[Fields]":
        """Returns the fields of each mapping in a list; empty: there is none."""
        listed = enumerate(self.take(name, list, []))
        return [Fields(value, self.draft, f"{self.at(name)}[{place}]") for place, value in listed]

    def word(self, name: str, words: Mapping[str, _T], default: _T | None = None) -> _T:
        """Returns what a word stands for."""
        text = self.take(name, str)
        if text is None and default is not None:
            return default
        if text not in words:
            expected = " or ".join(words)
            raise NotPossible(f"{self.at(name)}: got {shown(text)}, expected {expected}")
        return words[text or ""]

    def leave(self, names: Sequence[str]) -> None:
        """Leaves out those fields with a value that are no part of a schedule."""
        for name in names:
            if self._left.pop(name, None) not in (None, "", [], {}, False):
                self.draft.left_out.append(self.at(name))

    def close(self) -> None:
        """Names the fields that were not read."""
        for name, value in self._left.items():
            self.draft.differs(f"not understood: {self.at(name)}: {shown(value)}")

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


_KINDS: dict[type, str] = {str: "text", int: "a whole number", bool: "true or false"}
_KINDS |= {list: "a list", dict: "a mapping"}


def checked_zone(name: str, place: str) -> str:
    """Returns the name of a time zone that is known."""
    try:
        return known_zone(name)
    except ValueError as error:
        raise NotPossible(f"{place}: got {shown(name)}, expected {error}") from None


def milliseconds(value: int) -> str:
    """Returns a number of milliseconds as a duration."""
    try:
        return format_duration(timedelta(milliseconds=value))
    except OverflowError:
        raise NotPossible(f"{value} ms: expected a duration of at most 100 years") from None


def seconds(value: int) -> str:
    """Returns a number of seconds as a duration."""
    return milliseconds(value * 1000)


def continuous(draft: Draft, who: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the trigger and constraint of a job that always has one run."""
    draft.differs(
        f"continuous: {who} starts the next run when one has ended; here that is so, but never "
        "sooner than 1m after its launch, and a failure makes no longer pause"
    )
    return {"elapsed": {"duration": "1m"}}, {"concurrency": {"limit": 1}}


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", text)
