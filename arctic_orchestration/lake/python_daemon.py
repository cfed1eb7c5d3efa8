"""Spark's Python workers, forked from a process that has imported what they need.

Spark starts one such process for a JVM, as its property ``spark.python.daemon.module`` says.
PySpark's own process forks workers that import this package and what it is built on one by one, and
all of PySpark from an archive without bytecode, so that it is compiled each time.

Forking is safe: what is imported starts no thread of Python's, and opens nothing. The native
threads of OpenBLAS and of Arrow's allocator survive a fork.
"""

import contextlib
import os
import site
import sys
from importlib.metadata import distributions
from pathlib import Path


def daemon_module(master: str) -> str | None:
    """Returns this module's name, if the Python workers of a master can import it for sure.

    They can where they run the Python of this process, and this package is installed in it.
    """
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if not master.startswith("local") or python != sys.executable:
        return None
    places = [*site.getsitepackages(), site.getusersitepackages()]
    found = any(True for _ in distributions(name="arctic-orchestration", path=places))
    return __name__ if found else None


def without_archive(path: list[str]) -> list[str]:
    """Returns the path without the archive of an installed PySpark, which is on it, too."""
    return [one for one in path if not _is_installed_archive(Path(one))]


def _is_installed_archive(place: Path) -> bool:
    if place.name != "pyspark.zip" or len(place.parents) < 4:
        return False
    package = place.parents[2]
    return package.name == "pyspark" and (package / "__init__.py").exists()


def _serve() -> None:
    sys.path[:] = without_archive(sys.path)
    from pyspark import daemon

    # What cannot be imported fails in the worker that needs it.
    with contextlib.suppress(ImportError):
        import arctic_orchestration.lake.arrow_rows  # noqa: F401
    daemon.manager()


if __name__ == "__main__":
    _serve()
