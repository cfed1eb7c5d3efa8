"""``arctic tasks schema``: the JSON Schema of batch files."""

import json

from arctic_orchestration.console.files import OutputOption, write_output
from arctic_orchestration.freshness.batch_file import batch_schema


def schema(output: OutputOption = None) -> None:
    """Write the JSON Schema of batch files."""
    write_output(output, json.dumps(batch_schema(), indent=2, ensure_ascii=False) + "\n")
