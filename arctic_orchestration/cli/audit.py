"""``arctic audit``: the changes that people made, with commands or over REST."""

from typing import Annotated

import typer

from arctic_orchestration.console.display import Rows, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption, opened_state
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.state.audit import AuditDocument, AuditRecord, records


def audit(
    feature: Annotated[
        str | None, typer.Option(help="Only of this command: consumers, compaction, queues.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Only of what has this name, such as a consumer or table.")
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only by this user.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="At most so many, the newest.")
    ] = 50,
    as_json: JsonOption = False,
) -> None:
    """List changes made by people, with their authors.

    All clusters of the state database; for 400 days. With --json also the states before and after
    a change, and the address and id of a request.
    """
    with opened_state() as (_, database), database.read() as tx:
        made = records(tx, feature=feature, subject=subject, actor=actor, limit=limit)
    if as_json:
        print_json({"records": AuditDocument.from_records(made)})
        return
    shown = Rows(
        counted(len(made), "change"),
        *("at", "who", "cluster", "command", "subject", "details"),
        text="details",
    )
    for record in made:
        shown.add(
            moment(record.at),
            escape(record.actor.name or "unknown"),
            escape(record.actor.cluster),
            f"{record.feature} {record.action}",
            escape(record.subject),
            escape(_text(record)),
        )
    shown.print(empty="no such changes")


def _text(record: AuditRecord) -> str:
    # A level may be 0, which equals False.
    given = {
        name: value
        for name, value in record.details.items()
        if value is not False and value not in (None, "")
    }
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items())
