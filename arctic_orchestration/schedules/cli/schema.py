"""``arctic schema``: the JSON Schema of files of schedules, for editors and other programs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from arctic_orchestration.schedules.cli.files import write_output
from arctic_orchestration.schedules.json_schema import schedules_schema


def schema(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; without it, the terminal."),
    ] = None,
) -> None:
    """Write the JSON Schema of files of schedules.

    An editor with the YAML language server completes and checks a file that begins with

    # yaml-language-server: $schema=arctic.schema.json
    """
    text = json.dumps(schedules_schema(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    write_output(output, text)
