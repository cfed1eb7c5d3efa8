"""``arctic schema``."""

import json
from collections.abc import Callable
from pathlib import Path

from jsonschema import Draft202012Validator

from arctic_orchestration.schedules.json_schema import schedules_schema
from arctic_orchestration_tests.cli.conftest import Outcome

Arctic = Callable[..., Outcome]


def test_the_schema_goes_to_the_terminal_as_json_and_nothing_else(arctic: Arctic) -> None:
    """So that ``arctic schema | program`` works."""
    result = arctic("schema")
    assert (result.code, result.err) == (0, "")
    schema = json.loads(result.out)
    Draft202012Validator.check_schema(schema)
    assert schema == schedules_schema()
    assert result.out.endswith("}\n")


def test_the_schema_is_written_to_a_file(arctic: Arctic, tmp_path: Path) -> None:
    """For an editor; the same each time, so that it can be kept beside the schedules."""
    file = tmp_path / "arctic.schema.json"
    result = arctic("schema", "-o", str(file))
    assert (result.code, result.out, result.err) == (0, "", "")
    written = file.read_text(encoding="utf-8")
    assert json.loads(written) == schedules_schema()
    assert arctic("schema", "--output", str(file)).code == 0
    assert file.read_text(encoding="utf-8") == written == arctic("schema").out


def test_a_file_that_cannot_be_written_is_one_message(arctic: Arctic, tmp_path: Path) -> None:
    """Exit code 2, the path and the reason."""
    file = tmp_path / "missing" / "schema.json"
    result = arctic("schema", "-o", str(file))
    assert (result.code, result.out) == (2, "")
    assert result.err.strip() == (
        f"error: --output: got '{file}', expected a file that can be written "
        "(No such file or directory)"
    )
