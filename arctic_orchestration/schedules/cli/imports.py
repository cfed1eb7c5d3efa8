"""``arctic schedules import``: files of other schedulers, as a file of schedules.

Exit codes: 0 each object has a schedule in the output; 1 for some it is not possible, as the report
says; 2 the input was refused, and nothing was written.
"""

from typing import Annotated

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.display import Rows, colored, counted, print_json
from arctic_orchestration.console.files import OutputOption, name_of, text_of, write_output
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import naming
from arctic_orchestration.schedules.imports.draft import Options, Outcome
from arctic_orchestration.schedules.imports.importer import Import, Source, import_schedules
from arctic_orchestration.zones import known_zone


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What the other scheduler has; - is stdin.")
    ],
    source: Annotated[Source, typer.Option("--from", help="The other scheduler.")],
    output: OutputOption = None,
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="The other scheduler's zone, if FILE has none."),
    ] = None,
    user_column: Annotated[
        bool, typer.Option("--user-column", help="A crontab with users, as /etc/crontab.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Convert schedules of another scheduler to YAML for apply.

    The report says of each object whether its schedule is exact, approximate or not possible, and
    why. Exit code 1 if one is not possible. Nothing is changed.
    """
    if timezone is not None:
        with naming("--timezone", timezone):
            known_zone(timezone)
    options = Options(now=utc_now(), timezone=timezone, user_column=user_column)
    done = import_schedules(source, text_of(file), name=name_of(file), options=options)
    if output is not None:
        write_output(output, done.to_yaml())
    if as_json:
        print_json(done.to_json())
    else:
        if output is None:
            typer.echo(done.to_yaml(), nl=False)
        _report(done)
    if len(done.forms) < len(done.drafts):
        raise typer.Exit(1)


def _report(done: Import) -> None:
    outcomes = [draft.outcome for draft in done.drafts]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in Outcome)
    title = f"{counted(len(outcomes), 'object')}: {counts}"
    shown = Rows(title, "outcome", "object", "schedule", _WHAT, text=_WHAT)
    for draft in done.drafts:
        lines = [*draft.reasons, *(f"({note})" for note in draft.notes)]
        if draft.left_out:
            lines.append(f"(left out: {', '.join(draft.left_out)})")
        shown.add(
            colored(draft.outcome),
            escape(draft.source),
            escape(draft.name or ""),
            "\n".join(escape(line) for line in lines),
        )
    shown.print(stderr=True)


_WHAT = "what differs, and notes"
