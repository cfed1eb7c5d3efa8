"""Scopes: what a caller may do.

A scope is written ``room:verb``, such as ``schedules:write``; ``write`` includes ``read``, and
``*`` is every room. Limits follow an ``@``, separated by commas:
``jobs:write@location=lake,schedule=raw_*``. A limit is a glob. What has no such property lies
outside of a limited scope: one with ``asset=raw/*`` admits arrivals at these assets, and no
schedule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

from arctic_orchestration.errors import InvalidDefinition, InvalidInput

ROOMS: Final = (
    "schedules",
    "jobs",
    "locations",
    "waiting",
    "events",
    "runs",
    "queues",
    "consumers",
    "freshness",
    "compaction",
    "workers",
    "audit",
    "metrics",
)
VERBS: Final = ("read", "write")
LIMITS: Final = ("location", "schedule", "asset", "queue")
_EXPECTED = (
    "room:verb, or room:verb@limit=glob,..., with a room of "
    f"{', '.join(('*', *ROOMS))}; a verb of {', '.join(VERBS)}; a limit of {', '.join(LIMITS)}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """One permission."""

    room: str
    verb: str
    #: globs by the name of a property
    limits: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, *, field: str = "scope") -> "Scope":
        """Parses the written form.

        Errors:
            InvalidInput: an unknown room, verb or limit, or another form.
        """
        what, has_limits, rest = text.partition("@")
        room, _, verb = what.partition(":")
        limits: dict[str, str] = {}
        for part in rest.split(",") if has_limits else ():
            name, _, glob = part.partition("=")
            if name not in LIMITS or not glob or name in limits or not glob.isprintable():
                raise InvalidInput(field, text, _EXPECTED)
            limits[name] = glob
        if room not in ("*", *ROOMS) or verb not in VERBS:
            raise InvalidInput(field, text, _EXPECTED)
        return cls(room=room, verb=verb, limits=limits)

    def __str__(self) -> str:
        limits = ",".join(f"{name}={glob}" for name, glob in self.limits.items())
        return f"{self.room}:{self.verb}" + (f"@{limits}" if limits else "")

    def without(self, limit: str) -> "Scope":
        """Returns the scope without one of its limits."""
        return replace(self, limits={n: glob for n, glob in self.limits.items() if n != limit})

    def has(self, room: str, verb: str) -> bool:
        """Returns whether it admits a verb in a room, for some object at least."""
        return self.room in ("*", room) and self.verb in ("write", verb)

    def reaches(self, room: str, verb: str, location: str) -> bool:
        """Returns whether it admits a verb on some object of a location."""
        return self.has(room, verb) and fnmatchcase(location, self.limits.get("location", "*"))

    def admits(self, room: str, verb: str, properties: Mapping[str, str]) -> bool:
        """Returns whether it admits a verb on an object with these properties."""
        return self.has(room, verb) and all(
            name in properties and fnmatchcase(properties[name], glob)
            for name, glob in self.limits.items()
        )


#: All rights.
EVERYTHING: Final = (Scope(room="*", verb="write"),)
READING: Final = (Scope(room="*", verb="read"),)


def parse_scopes(texts: Sequence[str], *, field: str = "--scope") -> tuple[Scope, ...]:
    """Parses written scopes, each once.

    Errors:
        InvalidDefinition: there is none, or some are invalid; all of these are named.
    """
    scopes: dict[str, Scope] = {}
    problems = [] if texts else [InvalidInput(field, None, f"at least one scope: {_EXPECTED}")]
    for text in texts:
        try:
            scopes[text] = Scope.parse(text, field=field)
        except InvalidInput as error:
            problems.append(error)
    if problems:
        raise InvalidDefinition(problems)
    return tuple(scopes.values())
