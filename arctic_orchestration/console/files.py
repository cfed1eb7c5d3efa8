"""Files that commands read and write."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from arctic_orchestration.errors import InvalidInput

#: where a command writes
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The file to write; without it, the terminal."),
]


def text_of(file: str) -> str:
    """Returns the text of a file; ``-`` is standard input.

    Errors:
        InvalidInput: it cannot be read, or is no UTF-8 text.
    """
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput("FILE", file, f"a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidInput("FILE", file, "a file of UTF-8 text") from error


def name_of(file: str) -> str:
    """Returns the name of a file in messages."""
    return "stdin" if file == "-" else file


def write_output(output: Path | None, text: str) -> None:
    """Writes the file that ``--output`` names, or to the terminal.

    Errors:
        InvalidInput: it cannot be written.
    """
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        expected = f"a file that can be written ({error.strerror})"
        raise InvalidInput("--output", str(output), expected) from error
