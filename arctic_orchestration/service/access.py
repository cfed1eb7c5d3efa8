"""Who a request comes from, and what that caller may do.

A caller is known, in this order, by

1. ``Authorization: Bearer``: a token of :mod:`~.tokens`;
2. ``Remote-User`` and ``Remote-Groups`` of a trusted proxy (``ARCTIC_TRUSTED_PROXIES``), with the
   scopes of ``ARCTIC_GROUP_SCOPES``;
3. the loopback address, if the service listens to loopback alone, no token was ever created, no
   proxy is trusted, and ``--require-token`` is not given: then every user of the machine has all
   rights. A request that was forwarded is refused: its sender may be anywhere.

The first token closes loopback: from then on, callers have names.
"""

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import BackgroundTasks, Depends, Request

from arctic_orchestration.errors import InvalidInput, RequestRefused
from arctic_orchestration.service import tokens
from arctic_orchestration.service.parameters import refuse_surplus
from arctic_orchestration.service.scopes import EVERYTHING, READING, Scope, parse_scopes
from arctic_orchestration.service.tokens import Token
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.dialect import database_time

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: the group of every user of a proxy
EVERYBODY = "*"
_LONGEST_ADDRESS = 100
#: as Remote-Groups can name it
_GROUP = re.compile(r"[^\s,]+")
#: headers that proxies add; a request with one may come from anywhere
_FORWARDED = (
    "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
    "x-forwarded-server", "x-real-ip", "true-client-ip", "cf-connecting-ip", "remote-user",
    "remote-groups",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRules:
    """What the operator of a service has decided.

    Attributes:
        loopback: whether the service listens to loopback alone.
        require_token: whether loopback needs a token, too.
        proxies: the addresses of proxies whose ``Remote-User`` is trusted.
        groups: the scopes of each group of a proxy's users.
    """

    loopback: bool = True
    require_token: bool = False
    proxies: tuple[Network, ...] = ()
    groups: Mapping[str, tuple[Scope, ...]] = field(default_factory=lambda: {EVERYBODY: READING})

    @classmethod
    def from_environment(
        cls,
        *,
        loopback: bool,
        require_token: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> "AccessRules":
        """Reads ``ARCTIC_TRUSTED_PROXIES`` and ``ARCTIC_GROUP_SCOPES``.

        Errors:
            InvalidInput: no network, or no ``group=scope scope; group=scope`` with each group once.
        """
        env = os.environ if environment is None else environment
        proxies = []
        for text in env.get("ARCTIC_TRUSTED_PROXIES", "").replace(",", " ").split():
            try:
                proxies.append(ipaddress.ip_network(text))
            except ValueError:
                expected = "addresses or networks, such as 10.0.0.5, 10.1.0.0/16"
                raise InvalidInput("ARCTIC_TRUSTED_PROXIES", text, expected) from None
        groups = {}
        for part in filter(str.strip, env.get("ARCTIC_GROUP_SCOPES", "").split(";")):
            name, _, scopes = (text.strip() for text in part.partition("="))
            if name in groups or not _GROUP.fullmatch(name) or not scopes:
                expected = "each group once, its name without spaces, with scopes: ops=*:write"
                raise InvalidInput("ARCTIC_GROUP_SCOPES", name, expected)
            groups[name] = parse_scopes(scopes.split(), field="ARCTIC_GROUP_SCOPES")
        return cls(
            loopback=loopback,
            require_token=require_token,
            proxies=tuple(proxies),
            groups=groups or {EVERYBODY: READING},
        )

    def trusts(self, address: str) -> bool:
        """Returns whether an address is that of a trusted proxy."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self.proxies)


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The sender of a request, with the scope that its route needs."""

    actor: Actor
    scopes: tuple[Scope, ...]
    room: str
    verb: str

    def admits(self, **properties: str) -> bool:
        """Returns whether the caller may do it to an object with these properties."""
        return any(scope.admits(self.room, self.verb, properties) for scope in self.scopes)

    def globs(self, limit: str, **properties: str) -> tuple[str, ...] | None:
        """Returns the globs of a limit that admit objects with these other properties.

        None: objects without that property are admitted, too. So a query reads no more than it has
        to; :meth:`admits` decides.
        """
        if self.admits(**properties):
            return None
        return tuple(
            scope.limits[limit]
            for scope in self.scopes
            if limit in scope.limits
            and scope.without(limit).admits(self.room, self.verb, properties)
        )

    def check_some(self, *names: str) -> None:
        """Refuses a caller whose scopes all have limits that objects with these properties lack.

        For objects that are read before their properties are known.

        Errors:
            RequestRefused: 403.
        """
        mine = [scope for scope in self.scopes if scope.has(self.room, self.verb)]
        if not any(scope.limits.keys() <= set(names) for scope in mine):
            raise RequestRefused(
                403,
                f"{self.actor.name} has no scope {self.room}:{self.verb} that is limited by "
                f"{' or '.join(names)} at most",
            )

    def check(self, **properties: str) -> None:
        """Refuses what the caller may not do; called before it is known whether the object exists.

        Errors:
            RequestRefused: 403; names the missing scope.
        """
        if not self.admits(**properties):
            what = ", ".join(f"{name} {value}" for name, value in properties.items())
            raise RequestRefused(
                403, f"{self.actor.name} has no scope {self.room}:{self.verb} for {what}"
            )


def caller_of(
    rules: AccessRules, tx: sa.Connection, request: Request, cluster: str
) -> tuple[Actor, tuple[Scope, ...], Token | None]:
    """Returns who a request comes from, with all scopes.

    Errors:
        RequestRefused: 401; its credentials are unknown, or missing.
    """
    address = request.client.host if request.client else ""
    origin = {"cluster": cluster, "address": address, "request_id": request.state.request_id}
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    # A proxy may pass on what its users sign in with.
    if scheme and (scheme.lower() == "bearer" or not rules.trusts(address)):
        token = None
        if scheme.lower() == "bearer":
            # By the clock that gave it its end.
            token = tokens.find(tx, cluster, text.strip(), database_time(tx))
        if token is None:
            raise _unknown("the token is unknown, expired or revoked")
        scopes = tuple(_readable(token.scopes))
        return Actor(name=token.name, **origin), scopes, token
    user = _text(request, "remote-user")
    if user and rules.trusts(address):
        if any(len(request.headers.getlist(name)) > 1 for name in ("remote-user", "remote-groups")):
            raise _unknown("the proxy passed on a Remote-User or Remote-Groups of its client")
        # The last entry is the proxy's own; the others are what the client claims.
        client = ",".join(request.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
        origin["address"] = client[:_LONGEST_ADDRESS] or address
        groups = _text(request, "remote-groups").replace(",", " ").split()
        return Actor(name=user, **origin), _of_groups(rules, groups), None
    closed = not rules.loopback or rules.require_token or rules.proxies
    # Proxies that add no header often speak HTTP/1.0 to what is behind them.
    forwarded = request.scope["http_version"] == "1.0" or any(
        name in request.headers for name in _FORWARDED
    )
    if closed or forwarded or tokens.exist(tx, cluster):
        raise _unknown("a token is needed: Authorization: Bearer (see: arctic tokens create)")
    return Actor(name="loopback", **origin), EVERYTHING, None


def _text(request: Request, header: str) -> str:
    """Returns the text of a header; proxies write names in UTF-8, and headers are Latin-1."""
    raw = request.headers.get(header, "")
    try:
        return raw.encode("latin-1").decode()
    except UnicodeDecodeError:
        return raw


def _readable(written: Sequence[str]) -> Iterator[Scope]:
    """Yields the scopes that this version of the package knows."""
    for text in written:
        with suppress(InvalidInput):
            yield Scope.parse(text)


def _of_groups(rules: AccessRules, groups: Sequence[str]) -> tuple[Scope, ...]:
    names = dict.fromkeys((EVERYBODY, *groups))
    return tuple(scope for name in names for scope in rules.groups.get(name, ()))


def _unknown(why: str) -> RequestRefused:
    return RequestRefused(401, why, headers={"WWW-Authenticate": "Bearer"})


class Needs:
    """The dependency of a route that declares its scope, and gives it the caller."""

    def __init__(self, room: str, verb: str) -> None:
        self.scope = Scope.parse(f"{room}:{verb}")

    def __call__(self, request: Request, background: BackgroundTasks) -> Caller:
        service: Any = request.app.state.service
        actor, scopes = service.identify(request, background)
        refuse_surplus(request)
        room, verb = self.scope.room, self.scope.verb
        if not any(scope.has(room, verb) for scope in scopes):
            raise RequestRefused(403, f"{actor.name} has no scope {self.scope}")
        caller = Caller(actor=actor, scopes=scopes, room=room, verb=verb)
        request.state.is_limited = not caller.admits()
        return caller


class AnyCaller:
    """The dependency of a route for every known caller, whatever the scopes."""

    def __call__(self, request: Request, background: BackgroundTasks) -> None:
        request.app.state.service.identify(request, background)


class Open:
    """The dependency of a route that declares that it needs no scope."""

    async def __call__(self) -> None:
        return None


def needs(room: str, verb: str) -> Any:
    """Returns the annotation of a route's caller: ``caller: Annotated[Caller, needs(...)]``."""
    return Depends(Needs(room, verb))


SchedulesReader = Annotated[Caller, needs("schedules", "read")]
SchedulesWriter = Annotated[Caller, needs("schedules", "write")]
JobsReader = Annotated[Caller, needs("jobs", "read")]
JobsWriter = Annotated[Caller, needs("jobs", "write")]
LocationsReader = Annotated[Caller, needs("locations", "read")]
WaitingReader = Annotated[Caller, needs("waiting", "read")]
CompactionReader = Annotated[Caller, needs("compaction", "read")]
CompactionWriter = Annotated[Caller, needs("compaction", "write")]
ConsumersReader = Annotated[Caller, needs("consumers", "read")]
ConsumersWriter = Annotated[Caller, needs("consumers", "write")]
QueuesReader = Annotated[Caller, needs("queues", "read")]
QueuesWriter = Annotated[Caller, needs("queues", "write")]
RunsReader = Annotated[Caller, needs("runs", "read")]
RunsWriter = Annotated[Caller, needs("runs", "write")]
FreshnessReader = Annotated[Caller, needs("freshness", "read")]
FreshnessWriter = Annotated[Caller, needs("freshness", "write")]
EventsReader = Annotated[Caller, needs("events", "read")]
EventsWriter = Annotated[Caller, needs("events", "write")]
#: of every room; the route refuses limits
Administrator = Annotated[Caller, needs("*", "write")]
WorkersReader = Annotated[Caller, needs("workers", "read")]
WorkersWriter = Annotated[Caller, needs("workers", "write")]
AuditReader = Annotated[Caller, needs("audit", "read")]
