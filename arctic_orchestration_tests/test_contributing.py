"""What CONTRIBUTING.md says of adding a trigger and a constraint, done in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent
#: A step with its snippet: "1. `the/file.py`:" or "2. In `file.py`, import it …:"
_STEP = re.compile(
    r"^\d\. [^`]*`(?P<path>[\w/.]+\.py)`.*?\n(?P<code>   ```python\n.*?   ```)",
    re.MULTILINE | re.DOTALL,
)

USES = """
import json
from jsonschema import Draft202012Validator
import arctic_orchestration
from arctic_orchestration import Schedule, on, only
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.json_schema import schedules_schema

assert arctic_orchestration.__file__.startswith({copy!r}), arctic_orchestration.__file__
schedule = Schedule(
    name="s",
    target="job",
    trigger=on.arrivals("raw/orders", count=10) | on.cron("0 4 * * *"),
    constraints=[only.daily(3)],
)
form = schedule.to_form()
assert form["trigger"] == {{
    "any_of": [
        {{"arrivals": {{"asset": "raw/orders", "count": 10}}}},
        {{"cron": {{"expression": "0 4 * * *"}}}},
    ]
}}
assert form["constraints"] == [{{"daily": {{"limit": 3}}}}]
assert Schedule.parse(json.loads(json.dumps(form))) == schedule

schema = schedules_schema()
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
assert not list(validator.iter_errors({{"schedules": [form]}}))
for write, field in (
    (lambda: on.arrivals("raw/orders", count=-1), "arrivals.count"),
    (lambda: only.daily(-1), "daily.limit"),
):
    try:
        write()
    except InvalidDefinition as error:
        assert str(error) == f"{{field}}: got -1, expected at least 1"
    else:
        raise AssertionError(field)
form["constraints"][0]["daily"]["limit"] = -1
assert list(validator.iter_errors({{"schedules": [form]}}))
print("done")
"""


def steps(section: str) -> list[tuple[str, str]]:
    """The file and the snippet of each step of a section that has one."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    body = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = []
    for step in _STEP.finditer(body):
        code = dedent(step["code"]).removeprefix("```python\n").removesuffix("```")
        found.append((step["path"], code))
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which both examples were followed; tests stand beside it."""
    made = tmp_path_factory.mktemp("copy")
    package = made / "arctic_orchestration"
    shutil.copytree(ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    for section, room in (("Adding a trigger", "triggers"), ("Adding a constraint", "constraints")):
        rule, registry, function, test = steps(section)
        (made / rule[0]).write_text(rule[1])
        (name,) = re.findall(r"^class (\w+)", rule[1], re.MULTILINE)
        module = rule[0].removesuffix(".py").replace("/", ".")
        imported = f"from {module} import {name}\n"
        begin = registry[1].partition("\n")[0]
        path = package / registry[0]
        text = path.read_text()
        old = re.search(re.escape(begin) + r".*?^\)\n", text, re.MULTILINE | re.DOTALL)
        assert old is not None, begin
        # The snippet shows the registry as it is, with one more line.
        assert old[0].replace(")\n", f"    | {name}\n)\n") == registry[1]
        path.write_text(_with_import(text.replace(old[0], registry[1]), imported))
        path = package / function[0]
        path.write_text(_with_import(path.read_text(), imported) + "\n\n" + function[1])
        assert registry[0] == f"schedules/{room}/__init__.py"
        (made / Path(test[0]).name).write_text(test[1])
    return made


def _with_import(text: str, line: str) -> str:
    """The text with an import before its first one of the package."""
    return text.replace("from arctic_orchestration.", f"{line}from arctic_orchestration.", 1)


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, with the copy in the place of the package."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_examples_work_in_python_as_data_and_in_the_schema(copy: Path) -> None:
    """They combine with others, are read back, are offered by editors and refuse by name."""
    done = run(copy, "-c", USES.format(copy=str(copy)))
    assert done.stdout.strip() == "done", done.stderr


def test_the_tests_of_the_examples_pass(copy: Path) -> None:
    """One for the trigger, one for the constraint."""
    done = run(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), str(copy)
    )
    assert done.stdout.strip().splitlines()[-1].startswith("2 passed"), done.stdout + done.stderr


def test_the_examples_are_written_as_the_package_is(copy: Path) -> None:
    """In its format, and as strictly typed; each line fits."""
    files = [
        "arctic_orchestration/schedules/triggers/arrivals.py",
        "arctic_orchestration/schedules/constraints/daily.py",
    ]
    paths = [str(copy / file) for file in files]
    for check in (["check"], ["format", "--check"]):
        done = run(copy, "-m", "ruff", *check, "--config", str(ROOT / "pyproject.toml"), *paths)
        assert done.returncode == 0, done.stdout + done.stderr


def test_make_proof_runs_what_has_two_sizes() -> None:
    """It selects tests by their mark: a file that requests the size has marked tests."""
    files = (ROOT / "arctic_orchestration_tests").rglob("test_*.py")
    sized = {
        file.name: text
        for file in files
        if "environ.get(" + '"ARCTIC_PROOF")' in (text := file.read_text())
    }
    assert len(sized) > 10
    assert [name for name, text in sized.items() if "mark.proof" not in text] == []


def test_the_map_of_changes_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.split("## Where do I change what")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    paths = [path for row in rows for path in re.findall(r"`([\w/.]+/[\w.]*)`", row)]
    assert len(rows) >= 20
    missing = [path for path in paths if not (ROOT / "arctic_orchestration" / path).exists()]
    assert not missing
