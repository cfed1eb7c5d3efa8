"""``arctic tokens``: who may call the REST API, and for what."""

from typing import Annotated

import typer

from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import Rows, console, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption, opened_state
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.service import tokens
from arctic_orchestration.service.scopes import parse_scopes
from arctic_orchestration.state.dialect import database_time

app = typer.Typer(no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")]


@app.command()
def create(
    name: NameArgument,
    scope: Annotated[
        list[str],
        typer.Option(
            help="ROOM:VERB, such as schedules:write or *:read; limited as in "
            "jobs:write@location=lake,schedule=raw_*. Repeatable."
        ),
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="After this, such as 90d.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it, once.

    Only its hash is stored.
    """
    scopes = parse_scopes(scope)
    lifetime = tokens.parse_lifetime(expires, field="--expires")
    with opened_state() as (settings, database), database.begin() as tx:
        text = tokens.create(tx, actor(settings.cluster), name, scopes, lifetime)
    if as_json:
        print_json({"name": name, "token": text})
    else:
        console().print(text, markup=False, soft_wrap=True)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List tokens, with their scopes and last use."""
    with opened_state() as (settings, database), database.read() as tx:
        now = database_time(tx)
        stored = tokens.every(tx, settings.cluster)
    if as_json:
        print_json({"tokens": [tokens.document_of(token, now) for token in stored]})
        return
    shown = Rows(
        f"{counted(len(stored), 'token')} of cluster {escape(settings.cluster)}",
        *("token", "status", "scopes", "made by", "made", "expires", "last use"),
        text="scopes",
    )
    for token in stored:
        shown.add(
            escape(token.name),
            token.status(now),
            escape(" ".join(token.scopes)),
            escape(token.created_by),
            moment(token.created_at),
            moment(token.expires_at),
            moment(token.used_at),
        )
    shown.print()


@app.command()
def revoke(name: NameArgument, as_json: JsonOption = False) -> None:
    """Revoke a token, at once."""
    with opened_state() as (settings, database), database.begin() as tx:
        tokens.revoke(tx, actor(settings.cluster), name)
    if as_json:
        print_json({"revoked": name})
    else:
        console().print(f"revoked {escape(name)}")
