"""The notification channels: the YAML file that ``ARCTIC_NOTIFICATIONS`` names.

::

    channels:
    - url: mailto://robot:${MAIL_PASSWORD}@example.org?to=ops@example.org   # a URL of apprise
      events: [job_timed_out, run_failed]     # default: all
      tags: {team: ops}                       # tags the schedule must have; none: any schedule
      limit: {count: 10, per: 1h}             # messages in any span of that length
    - url: json://hooks.example.org/arctic
"""

import hashlib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, field_validator

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.notifications.outbox import LONGEST_LIMIT, Notice, StoredNotice
from arctic_orchestration.quantities import Duration, format_duration
from arctic_orchestration.specification import Specification
from arctic_orchestration.yaml_file import load

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")


class Limit(Specification):
    """At most ``count`` messages in any span of the length ``per``."""

    count: int = Field(default=10, strict=True, ge=1, le=10_000)
    per: Duration = timedelta(hours=1)

    @field_validator("per")
    @classmethod
    def _some_time(cls, value: timedelta) -> timedelta:
        if not value:
            raise ValueError("a duration above zero")
        if value > LONGEST_LIMIT:
            # Notices that wait longer would be dropped.
            raise ValueError(f"a duration of at most {format_duration(LONGEST_LIMIT)}")
        return value


class Channel(Specification):
    """One way to notify people."""

    #: as written, with the names of environment variables in place of secrets
    url: str = Field(repr=False)
    events: tuple[Notice, ...] = tuple(Notice)
    tags: Mapping[str, str] = Field(default_factory=dict)
    limit: Limit = Limit()
    _address: str = PrivateAttr(default="")
    #: among the channels of one URL
    _number: int = PrivateAttr(default=1)

    @field_validator("events", mode="before")
    @classmethod
    def _known_events(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or not value:
            raise ValueError(f"a list of {', '.join(Notice)}")
        for event in value:
            if not isinstance(event, str) or event not in set(Notice):
                raise ValueError(f"a list of {', '.join(Notice)}")
        return value

    @property
    def name(self) -> str:
        """Its name in the database and in logs, which does not reveal its secrets.

        Only of its URL: if the rest is edited, what it was sent is known.
        """
        digest = hashlib.sha256(self.url.encode()).hexdigest()
        number = f"-{self._number}" if self._number > 1 else ""
        return f"{scheme(self.url)}-{digest[:12]}{number}"

    @property
    def address(self) -> str:
        """The URL with its variables replaced."""
        return self._address or self.url

    def wants(self, notice: StoredNotice) -> bool:
        """Returns whether the channel sends the notice."""
        return notice.event in self.events and all(
            notice.tags.get(key) == value for key, value in self.tags.items()
        )

    def addressed(self, environment: Mapping[str, str]) -> "Channel":
        """Returns this channel with the variables of its URL replaced.

        Errors:
            InvalidInput: a variable is not set.
        """
        for name in _VARIABLE.findall(self.url):
            if name not in environment:
                raise InvalidInput("url", f"${{{name}}}", "an environment variable that is set")
        found = self.model_copy()
        found._address = _VARIABLE.sub(lambda match: environment[match[1]], self.url)
        return found


class Channels(Specification):
    """The whole file."""

    channels: tuple[Channel, ...]


def read_channels(path: Path, environment: Mapping[str, str] | None = None) -> tuple[Channel, ...]:
    """Reads the file, and validates each URL with apprise.

    Errors:
        InvalidInput: there is no such file, or it is no YAML.
        InvalidDefinition: names each field, without the secrets of URLs.
    """
    channels, problems = valid_channels(path, environment)
    if problems:
        raise InvalidDefinition(problems)
    return channels


def valid_channels(
    path: Path, environment: Mapping[str, str] | None = None
) -> tuple[tuple[Channel, ...], list[InvalidInput]]:
    """Returns the valid channels of the file, and the problems of the others.

    Errors:
        InvalidInput: there is no such file, or it is no YAML.
        InvalidDefinition: it is no list of channels.
    """
    environment = os.environ if environment is None else environment
    found: list[Channel] = []
    problems: list[InvalidInput] = []
    for index, form in enumerate(_forms(path)):
        field = f"channels[{index}]"
        try:
            channel = _channel(form, field, environment)
            same = [one for one in found if one.url == channel.url]
            if any((one.events, one.tags) == (channel.events, channel.tags) for one in same):
                shown = f"{scheme(channel.url)}://…"
                raise InvalidInput(f"{field}.url", shown, "a channel that is not listed twice")
            channel._number += len(same)
            found.append(channel)
        except InvalidDefinition as error:
            problems += map(_without_secrets, error.problems)
        except InvalidInput as error:
            problems.append(error)
    return tuple(found), problems


def _forms(path: Path) -> list[object]:
    """Returns the form of each channel; the rest of the file is valid.

    Errors:
        InvalidInput: there is no such file, or it is no YAML.
        InvalidDefinition: it is no list of channels.
    """
    form = _form(path)
    found = form.get("channels")
    forms = found if isinstance(found, list) else []
    try:
        Channels.parse({**form, "channels": []} if forms else form)
    except InvalidDefinition as error:
        raise InvalidDefinition([_without_secrets(one) for one in error.problems]) from None
    return forms


def _channel(form: object, field: str, environment: Mapping[str, str]) -> Channel:
    import apprise

    channel = Channel.parse(form, field=field)
    try:
        channel = channel.addressed(environment)
    except InvalidInput as error:
        raise InvalidInput(f"{field}.url", error.value, error.expected) from None
    if apprise.Apprise.instantiate(channel.address) is None:
        shown = f"{scheme(channel.url)}://…"
        raise InvalidInput(f"{field}.url", shown, "a URL that apprise knows")
    return channel


def _form(path: Path) -> Mapping[str, object]:
    """Returns the content of the file; errors leave out the reader's quotes, which may be secrets.

    Errors:
        InvalidInput: there is no such file, it is no YAML, or aliases make it too large.
    """
    try:
        form = load(path.read_text(encoding="utf-8"), name="file")
        if isinstance(form, Mapping):
            return form
        problem = "it is no mapping with the field channels"
    except InvalidInput as error:
        line = re.match(r"file:([0-9]+)", error.field)
        large = error.expected if error.expected.startswith("at most") else "it is no YAML"
        problem = f"{large} (line {line[1]})" if line else large
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        problem = "it is no text in UTF-8"
    raise InvalidInput("ARCTIC_NOTIFICATIONS", str(path), f"a readable YAML file; {problem}")


def scheme(url: str) -> str:
    """Returns the part of a URL before ``://``."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else "?"


def _without_secrets(problem: InvalidInput) -> InvalidInput:
    value = problem.value
    if isinstance(value, (Mapping, list, tuple)):
        value = f"a {type(value).__name__}"
    elif isinstance(value, str) and (problem.field.endswith("url") or "://" in value):
        value = f"{scheme(value)}://…"
    return InvalidInput(problem.field, value, problem.expected)
