"""Tokens of the REST API: ``arctic_<id>_<secret>``.

Only a SHA-256 of the token is stored. The id finds its row, and the hashes are compared in constant
time. A secret has 256 random bits, so a plain hash suffices: there is no dictionary to try.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa

from arctic_orchestration.documents import At, Document
from arctic_orchestration.errors import InvalidInput, NotFound, TransitionRefused, naming
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.quantities import iso, parse_duration
from arctic_orchestration.service.scopes import Scope
from arctic_orchestration.state import audit, dialect
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.service_tables import tokens

#: how old the noted moment of the last use may become
USE_NOTED_EVERY = timedelta(minutes=5)
_TOKEN = re.compile(r"arctic_([0-9a-z]{26})_[0-9A-Za-z_-]{43}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}")
_NAMES = "1 to 63 of A-Z a-z 0-9 _ . @ -, not beginning with . @ -"


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """A stored token, without its secret."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    #: with an error of :data:`USE_NOTED_EVERY`
    used_at: datetime | None

    def status(self, now: datetime) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


class TokenDocument(Document):
    """A token, without its secret."""

    name: str
    status: Literal["active", "expired", "revoked"]
    scopes: list[str]
    created_at: At
    created_by: str
    expires_at: At | None
    revoked_at: At | None
    #: with an error of five minutes
    used_at: At | None


def document_of(token: Token, now: datetime) -> TokenDocument:
    """Returns a token without its secret."""
    return TokenDocument.from_record(token, status=token.status(now))


def parse_lifetime(text: str | None, *, field: str) -> timedelta | None:
    """Parses how long a token is valid; None: it does not expire.

    Errors:
        InvalidInput: no duration, or none that is longer than 0s.
    """
    if text is None:
        return None
    with naming(field, text):
        lifetime = parse_duration(text)
        if not lifetime:
            raise ValueError("a duration longer than 0s, such as 90d")
    return lifetime


def create(
    tx: sa.Connection,
    actor: Actor,
    name: str,
    scopes: Sequence[Scope],
    lifetime: timedelta | None = None,
    *,
    field: str = "NAME",
) -> str:
    """Creates a token for the actor's cluster; returns it: it cannot be read again.

    ``field`` names the name in messages.

    Errors:
        InvalidInput: the name has other characters.
        TransitionRefused: a token of the cluster has the name, revoked ones included: the audit log
            must not take two for one.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(field, name, _NAMES)
    _lock(tx, actor.cluster)
    has_name = (tokens.c.cluster == actor.cluster) & (tokens.c.name == name)
    if tx.execute(sa.select(tokens.c.id).where(has_name)).first() is not None:
        raise TransitionRefused(f"There is or was a token {name}; choose another name")
    now = database_time(tx)
    id = new_id(now)
    text = f"arctic_{id}_{secrets.token_urlsafe(32)}"
    expires_at = now + lifetime if lifetime is not None else None
    written = [str(scope) for scope in scopes]
    values = {"id": id, "cluster": actor.cluster, "name": name, "digest": _digest(text)}
    row = sa.insert(tokens).values(scopes=json.dumps(written), created_at=now, **values)
    tx.execute(row.values(created_by=actor.name, expires_at=expires_at))
    after = {"scopes": written, "expires_at": iso(expires_at)}
    audit.record(tx, actor, "tokens", "create", name, after=after)
    return text


def revoke(tx: sa.Connection, actor: Actor, name: str) -> None:
    """Revokes a token; requests that begin from now on are refused.

    Errors:
        NotFound: the actor's cluster has no token of the name.
        TransitionRefused: it is revoked already.
    """
    _lock(tx, actor.cluster)
    token = by_name(tx, actor.cluster, name)
    if token.revoked_at is not None:
        raise TransitionRefused(f"Token {name} was revoked at {iso(token.revoked_at)}")
    now = database_time(tx)
    tx.execute(sa.update(tokens).where(tokens.c.id == token.id).values(revoked_at=now))
    audit.record(tx, actor, "tokens", "revoke", name, before={"scopes": list(token.scopes)})


def _lock(tx: sa.Connection, cluster: str) -> None:
    """Lets changes of tokens of a cluster take turns."""
    dialect.lock(tx, f"tokens {cluster}")


def every(tx: sa.Connection, cluster: str) -> list[Token]:
    """Returns the tokens of a cluster by name, revoked ones included."""
    query = sa.select(tokens).where(tokens.c.cluster == cluster).order_by(tokens.c.name)
    return [_token(row) for row in tx.execute(query).mappings()]


def by_name(tx: sa.Connection, cluster: str, name: str) -> Token:
    """Returns a token of a cluster, which may be revoked.

    Errors:
        NotFound: there is none of the name.
    """
    for token in every(tx, cluster):
        if token.name == name:
            return token
    raise NotFound(f"cluster {cluster} has no token {name} (see: arctic tokens list)")


# Built once: each request without a token asks this.
_ANY = sa.select(tokens.c.id).where(tokens.c.cluster == sa.bindparam("of")).limit(1)


def exist(tx: sa.Connection, cluster: str) -> bool:
    """Returns whether the cluster has, or ever had, a token."""
    return tx.execute(_ANY, {"of": cluster}).first() is not None


def find(tx: sa.Connection, cluster: str, text: str, now: datetime) -> Token | None:
    """Returns the active token with this text, or None."""
    parts = _TOKEN.fullmatch(text)
    # The comparison takes the same time if there is no such row.
    row = None
    if parts is not None:
        this = (tokens.c.id == parts[1]) & (tokens.c.cluster == cluster)
        row = tx.execute(sa.select(tokens).where(this)).mappings().one_or_none()
    same = hmac.compare_digest(_digest(text), row["digest"] if row is not None else "0" * 64)
    if row is None or not same:
        return None
    token = _token(row)
    return token if token.status(now) == "active" else None


def note_use(tx: sa.Connection, token: Token, now: datetime) -> None:
    """Writes when a token was used."""
    tx.execute(sa.update(tokens).where(tokens.c.id == token.id).values(used_at=now))


def is_use_noted(token: Token, now: datetime) -> bool:
    """Returns whether the noted use of a token is recent enough."""
    return token.used_at is not None and now - token.used_at < USE_NOTED_EVERY


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _token(row: Any) -> Token:
    values = {name: row[name] for name in Token.__slots__}
    return Token(**{**values, "scopes": tuple(json.loads(row["scopes"]))})
