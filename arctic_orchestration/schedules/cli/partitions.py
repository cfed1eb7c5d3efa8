"""``arctic partitions``: reports partitions that came from outside of Dagster."""

import json
from typing import Annotated, Any

import typer

from arctic_orchestration.console.dagster_instance import opened_instance
from arctic_orchestration.console.display import print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.escaping import (
    ASSET_KEY,
    DEEPEST,
    LONGEST_KEY,
    is_asset_key,
    is_storable,
    is_too_deep,
    reserved_key,
    storable,
)
from arctic_orchestration.schedules.cli.partition_check import check_names

app = typer.Typer(no_args_is_help=True)


@app.callback()
def partitions() -> None:
    """Announce partitions of assets."""


@app.command()
def add(
    asset: Annotated[str, typer.Argument(metavar="ASSET", help="The asset's key, as raw/flights.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The partition key.")],
    path: Annotated[str | None, typer.Option(help="Where the partition's data is.")] = None,
    size: Annotated[
        str | None, typer.Option("--bytes", metavar="N", help="How many bytes arrived.")
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="N", help="How many rows arrived.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(help="More metadata, key=value; repeatable.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Announce it, though no code location has it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Announce that a partition of ASSET has arrived.

    The announcement is a materialization in Dagster's own event log: every schedule that waits
    for the asset sees it, and so does Dagster's UI.
    """
    # Dagster takes seconds to import.
    from arctic_orchestration.event_log.announcement import LARGEST, Arrival

    described: dict[str, Any] = {}
    if path is not None:
        _check_text("--path", path)
    for name, value in (("bytes", size), ("rows", rows)):
        if value is not None:
            known = value.isascii() and value.isdecimal() and len(value) <= len(str(LARGEST))
            if not known or int(value) > LARGEST:
                expected = f"a whole number from 0 to {LARGEST}"
                raise InvalidInput(f"--{name}", value, expected)
            described[name] = int(value)
    for entry in metadata or ():
        name, separator, text = entry.partition("=")
        if not separator or not name:
            raise InvalidInput("--metadata", entry, "key=value")
        _check_text("--metadata", entry)
        if name in ("path", "bytes", "rows"):
            raise InvalidInput("--metadata", entry, f"another key: use --{name}")
        described[name] = _value(name, text)
    if not is_asset_key(asset):
        raise InvalidInput("ASSET", asset, ASSET_KEY)
    if not key:
        raise InvalidInput("KEY", key, "a partition key")
    for field, text in (("ASSET", asset), ("KEY", key)):
        _check_text(field, text)
        if len(text) > LONGEST_KEY:
            raise InvalidInput(field, text, f"text of at most {LONGEST_KEY} characters")
    unchecked = None if force else check_names(asset, key)
    arrival = Arrival(asset=asset, partition=key, path=path, metadata=described)
    with opened_instance() as instance:
        instance.report_runless_asset_event(arrival.materialization())
    if as_json:
        print_json({"asset": asset, "partition": key})
        return
    Console().print(f"announced {escape(asset)} {escape(key)}", highlight=False)
    if unchecked is not None:
        Console(stderr=True).print(f"[dim]not checked: {escape(unchecked)}[/]", highlight=False)


def _check_text(field: str, text: str) -> None:
    """Refuses texts that databases and serializers cannot store.

    The shell passes a file name that is not UTF-8 as halves of surrogate pairs.
    """
    if not is_storable(text):
        raise InvalidInput(field, text, "text in UTF-8 without NUL")


def _value(name: str, text: str) -> Any:
    """Parses numbers, true, false and JSON; anything else is text."""
    nested = f"JSON nested at most {DEEPEST} deep"
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise InvalidInput(f"--metadata {name}", text, nested) from None
    except ValueError:
        return text
    if is_too_deep(value):
        raise InvalidInput(f"--metadata {name}", text, nested)
    if storable(value) != value:
        expected = "text without NUL and halves of surrogate pairs, and finite numbers"
        raise InvalidInput(f"--metadata {name}", text, expected)
    if reserved_key(value) is not None:
        expected = f"keys that Dagster does not use itself, unlike {reserved_key(value)}"
        raise InvalidInput(f"--metadata {name}", text, expected)
    return value


def _no_number(name: str) -> None:
    """Refuses NaN and Infinity, which JSON lacks and the storage of metadata refuses."""
    raise ValueError(name)
