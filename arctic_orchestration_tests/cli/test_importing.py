"""``arctic schedules import``: files of other schedulers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.schedules import inventory
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.imports.importer import Source
from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.schedules.imports.reading import SAMPLES
from arctic_orchestration_tests.schedules.simulated import MakeWorld, at

Command = Callable[..., Outcome]


def run(arctic: Command, source: Source, *more: str) -> Outcome:
    return arctic("schedules", "import", "--from", source, str(SAMPLES[source]), *more)


@pytest.mark.parametrize("source", Source)
def test_apply_takes_what_import_writes(
    world: MakeWorld, arctic: Command, tmp_path: Path, source: Source
) -> None:
    """All of it, in a code location that has the jobs."""
    file = tmp_path / "schedules.yaml"
    assert run(arctic, source, "-o", str(file)).code == 1
    schedules = read_schedules(file.read_text(), name="x")
    made = world([])
    jobs = {schedule.target.job or "" for schedule in schedules}
    code = Inventory(jobs=frozenset(jobs), assets={}, executable=frozenset())
    with made.database.begin() as tx:
        inventory.store(tx, locations.locked(tx, "default", "here"), code, at(1))
    result = arctic("schedules", "apply", str(file), "--dry-run", "--json")
    assert result.code == 0, result.err
    created = json.loads(result.out)["difference"]["created"]
    assert {schedule["name"] for schedule in created} == {schedule.name for schedule in schedules}
    assert len(created) >= 4


def test_the_output_is_yaml_and_the_report_is_beside_it(arctic: Command) -> None:
    """A line for each object; a pipe gets the schedules alone."""
    result = run(arctic, Source.CDAP)
    assert result.code == 1
    assert [schedule.name for schedule in read_schedules(result.out, name="x")] == [
        "DailySchedule",
        "flights_to_lake",
        "after_both",
        "newer",
    ]
    lines = result.err.splitlines()
    assert lines[0] == "7 objects: 0 exact, 4 approximate, 3 not possible"
    assert any(
        line.startswith("not possible  midnight_window ")
        and "constraints[0].endTime: got '24:00'" in line
        for line in lines
    )


def test_programs_get_one_document(arctic: Command) -> None:
    """With both; the schedules in it are a file for apply, too."""
    document = json.loads(run(arctic, Source.CDAP, "--json", "--timezone", "UTC").out)
    assert [line["outcome"] for line in document["report"]] == [
        "exact",
        "exact",
        "approximate",
        "not possible",
        "not possible",
        "not possible",
        "approximate",
    ]
    assert document["report"][0]["name"] == document["schedules"][0]["name"] == "DailySchedule"
    assert document["report"][5] == {
        "source": "future",
        "name": None,
        "outcome": "not possible",
        "reasons": [
            "trigger.type: got 'MOON', expected TIME or PARTITION or STREAM_SIZE or "
            "PROGRAM_STATUS or AND or OR"
        ],
        "notes": [],
        "left_out": ["program.programType"],
    }


@pytest.mark.parametrize("command", ["1e5", "-.5", "a\x85b"])
def test_all_are_possible_is_exit_code_0(
    arctic: Command, piped: Callable[[str], None], command: str
) -> None:
    """The file is from standard input, and begins as files of Windows do."""
    piped(f"\ufeffCRON_TZ=UTC\n5 4 * * * {command}\n")
    result = arctic("schedules", "import", "--from", "crontab", "-")
    assert result.code == 0
    (schedule,) = read_schedules(result.out, name="x")
    # As text, which YAML would read as a number, or as the end of a line.
    assert schedule.properties == {"command": command}


def dag(dag_id: str, asset: str = "a") -> dict[str, Any]:
    expression = {"any": [{"asset": {"name": asset}}]}
    schedule = {"timetable_summary": "Asset", "asset_expression": expression}
    return {"dag_id": dag_id, "is_paused": False, **schedule}


@pytest.mark.parametrize(
    ("dags", "messages"),
    [
        (
            [dag("a b"), dag("a:b")],
            [
                "name: got 'a:b', expected another name: 'a b' becomes a_b, too",
                "job: got 'a:b', expected another name: 'a b' becomes the job a_b, too",
            ],
        ),
        (
            [dag("twice"), dag("twice")],
            ["name: got 'twice', expected another name: 'twice' becomes twice, too"],
        ),
        (
            [dag("a.b"), dag("a-b")],
            ["job: got 'a-b', expected another name: 'a.b' becomes the job a_b, too"],
        ),
        (
            [dag("x", "s3://lake/a.b"), dag("y", "gs://lake/a-b")],
            [
                "asset: got 'gs://lake/a-b', expected another name: 's3://lake/a.b' becomes the "
                "asset lake/a_b, too"
            ],
        ),
    ],
)
def test_names_that_become_one_are_refused(
    arctic: Command,
    piped: Callable[[str], None],
    tmp_path: Path,
    dags: list[object],
    messages: list[str],
) -> None:
    """Each by its name there; nothing is written."""
    piped(json.dumps(dags))
    file = tmp_path / "x.yaml"
    result = arctic("schedules", "import", "--from", "airflow", "-", "-o", str(file))
    assert (result.code, result.out) == (2, "")
    assert sorted(result.err.removeprefix("error: ").splitlines()) == sorted(messages)
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["--from", "cdap", "-"], "{", "stdin:2:1: got '', expected YAML"),
        (["--from", "cdap", "-"], "[]", "stdin: got [], expected an object of the API"),
        (["--from", "cdap", "-"], '"x"', "stdin: got 'x', expected an object of the API"),
        (
            ["--from", "cdap", "-", "--timezone", "Mars"],
            "{}",
            "--timezone: got 'Mars', expected a time zone of the IANA database",
        ),
        (["--from", "cdap", "/no/such"], "", "FILE: got '/no/such', expected a file"),
        (["--from", "oozie", "-"], "", "Invalid value for '--from'"),
        (["--from", "crontab", "-", "-o", "/no/such"], "", "--output: got '/no/such', expected"),
    ],
)
def test_input_that_cannot_be_read_is_refused(
    arctic: Command, piped: Callable[[str], None], arguments: list[str], text: str, message: str
) -> None:
    piped(text)
    result = arctic("schedules", "import", *arguments)
    assert result.code == 2
    assert message in result.err


def test_an_object_of_any_form_is_named(arctic: Command, piped: Callable[[str], None]) -> None:
    """None of them stops those beside it."""
    trigger = {"type": "PROGRAM_STATUS", "programId": {"program": "p"}, "programStatuses": [[]]}
    odd = {"name": "z", "program": {"programName": "p"}, "trigger": trigger}
    forms = [None, 1, {}, {"name": "x", "program": []}, {"name": "y", "program": {}}, odd]
    piped(json.dumps(forms))
    result = arctic("schedules", "import", "--from", "cdap", "-", "--json")
    assert result.code == 1
    assert [line["reasons"] for line in json.loads(result.out)["report"]] == [
        ["object: got None, expected a mapping"],
        ["object: got 1, expected a mapping"],
        ["program: is missing"],
        ["program: got [], expected a mapping"],
        ["program.programName: is missing"],
        ["trigger.programStatuses: got [], expected COMPLETED or FAILED or KILLED"],
    ]
