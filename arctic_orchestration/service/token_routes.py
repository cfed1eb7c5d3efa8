"""``/tokens``: who may call this API, and for what.

Only for callers with ``*:write`` without limits. That includes every scope, so a token
never may do more than its creator.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from arctic_orchestration.documents import Document
from arctic_orchestration.service import parameters, tokens
from arctic_orchestration.service.access import Administrator
from arctic_orchestration.service.bodies import JsonObject, body_schema
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.scopes import parse_scopes
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.service.tokens import Token, TokenDocument, document_of
from arctic_orchestration.specification import Specification
from arctic_orchestration.state.dialect import database_time

router = APIRouter(tags=["tokens"])
TokenName = Annotated[str, Path(description="The token's name.")]
_MOST_SCOPES = 100


class NewToken(TokenDocument):
    """A token that was created."""

    #: shown this once
    token: str


class TokenList(Document):
    """The tokens of the cluster by name, also revoked ones."""

    tokens: list[TokenDocument]


class TokenForm(Specification):
    """A token to create."""

    name: str = Field(examples=["ci"])
    scopes: list[str] = Field(
        max_length=_MOST_SCOPES, examples=[["schedules:write@location=lake", "jobs:read"]]
    )
    #: a duration; null: never
    expires: str | None = Field(None, examples=["90d"])


_FORM = body_schema(TokenForm.model_json_schema())


@router.get("/tokens")
def list_tokens(service: ServiceOfApp, caller: Administrator) -> TokenList:
    """List tokens, with their scopes and last use."""
    caller.check()
    with service.database.read() as tx:
        now = database_time(tx)
        found = tokens.every(tx, caller.actor.cluster)
    return TokenList(tokens=[document_of(token, now) for token in found])


@router.get("/tokens/{token}", responses={200: HAS_ETAG})
def show_token(
    service: ServiceOfApp, caller: Administrator, token: TokenName, response: Response
) -> TokenDocument:
    """Show a token."""
    caller.check()
    with service.database.read() as tx:
        now = database_time(tx)
        found = tokens.by_name(tx, caller.actor.cluster, token)
    response.headers["ETag"] = _etag(found)
    return document_of(found, now)


@router.post("/tokens", status_code=201, openapi_extra=_FORM, responses={201: HAS_ETAG})
def create_token(
    service: ServiceOfApp, caller: Administrator, body: JsonObject, response: Response
) -> NewToken:
    """Create a token; only this answer has it. The first one closes an open loopback."""
    caller.check()
    form = TokenForm.parse(body)
    scopes = parse_scopes(form.scopes, field="scopes")
    lifetime = tokens.parse_lifetime(form.expires, field="expires")
    with service.database.begin() as tx:
        text = tokens.create(tx, caller.actor, form.name, scopes, lifetime, field="name")
        made = tokens.by_name(tx, caller.actor.cluster, form.name)
        now = database_time(tx)
    response.headers["ETag"] = _etag(made)
    return NewToken.from_record(document_of(made, now), token=text)


@router.post("/tokens/{token}/revoke", responses={200: HAS_ETAG})
def revoke_token(
    service: ServiceOfApp,
    caller: Administrator,
    token: TokenName,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> TokenDocument:
    """Revoke a token; requests that begin from now on are refused."""
    caller.check()
    with service.database.begin() as tx:
        before = tokens.by_name(tx, caller.actor.cluster, token)
        parameters.check_etag(if_match, _etag(before))
        tokens.revoke(tx, caller.actor, token)
        after = tokens.by_name(tx, caller.actor.cluster, token)
        now = database_time(tx)
    response.headers["ETag"] = _etag(after)
    return document_of(after, now)


def _etag(token: Token) -> str:
    """Returns the ETag of a token, which can only be revoked."""
    return parameters.etag(token.id, token.revoked_at)
