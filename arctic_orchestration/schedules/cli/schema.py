"""``arctic schema``: the JSON Schema of files of schedules, for editors and other programs."""

import json

from arctic_orchestration.console.files import OutputOption, write_output
from arctic_orchestration.schedules.json_schema import schedules_schema


def schema(output: OutputOption = None) -> None:
    """Write the JSON Schema of files of schedules.

    An editor with the YAML language server completes and checks a file that begins with

    # yaml-language-server: $schema=arctic.schema.json
    """
    write_output(output, json.dumps(schedules_schema(), indent=2, ensure_ascii=False) + "\n")
