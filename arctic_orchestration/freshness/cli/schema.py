"""``arctic tasks schema``: the JSON Schema of batch files."""

import json
from pathlib import Path
from typing import Annotated

import typer

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.freshness.batch_file import batch_schema


def schema(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; without it, the terminal."),
    ] = None,
) -> None:
    """Write the JSON Schema of batch files."""
    text = json.dumps(batch_schema(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        expected = f"a file that can be written ({error.strerror})"
        raise InvalidInput("--output", str(output), expected) from error
