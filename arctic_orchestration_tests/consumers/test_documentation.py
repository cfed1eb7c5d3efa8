"""``docs/consumers.md`` says what there is."""

import inspect
import re
from pathlib import Path

from typer.main import get_command

from arctic_orchestration import ConsumedPartition, PartitionConsumer
from arctic_orchestration.consumers.cli.consumers import app

TEXT = (Path(__file__).parents[2] / "docs" / "consumers.md").read_text()


def rows(heading: str) -> list[str]:
    """The names in the first column of the first table below a heading or a text."""
    table = TEXT[TEXT.index(heading) :].split("|---", 1)[1].split("\n\n", 1)[0]
    found = []
    for line in table.splitlines()[1:]:
        found += re.findall(r"`(\w+)`", line.split("|")[1])
    return found


def test_every_argument_is_described() -> None:
    """But for the two by which tests and programs name an instance and a database."""
    arguments = set(inspect.signature(PartitionConsumer).parameters)
    assert set(rows("## Arguments")) == arguments - {"instance", "settings"}


def test_what_a_partition_has_is_described() -> None:
    """Field by field."""
    fields = set(ConsumedPartition.__dataclass_fields__)
    assert set(rows("`partitions` is a sequence of:")) == fields


def test_every_command_is_described() -> None:
    """And no other."""
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"^arctic consumers (\w+)", TEXT, re.MULTILINE)) == commands
