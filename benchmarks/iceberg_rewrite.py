"""Iceberg's own ``rewrite_data_files``, in one warm session of a process of its own.

Iceberg has no runtime for the PySpark of ``.venv``, so the peer runs in the environment that
``sh tools/ensure_iceberg_spark`` makes. This module is both sides: :class:`IcebergPeer` starts the
process, and :func:`main` is its program, which answers each line of JSON with another. The
session has as many cores and as much memory as ours.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import psutil

from benchmarks.compaction_files import SCHEMA, ZSTD_LEVEL
from benchmarks.compaction_ways import TARGET, Work

DRIVER_MEMORY = "2g"
_ROOT = Path(__file__).parents[1]
_PYTHON = _ROOT / "build" / "iceberg-spark" / "bin" / "python"
_LAST_WORDS = 300


class IcebergUnavailable(Exception):
    """The environment or Iceberg's runtime is missing; the message says which."""


class IcebergPeer:
    """The process with Iceberg's session. As a context manager, it is ended with the block.

    Args:
        home: with the catalog, which :func:`~arctic_orchestration.lake.open_catalog` opens, too.
        more: further properties of Spark.

    Errors:
        IcebergUnavailable: the session cannot be started.
    """

    def __init__(self, home: Path, more: Mapping[str, str] | None = None) -> None:
        if not _PYTHON.exists():
            raise IcebergUnavailable("no environment; sh tools/ensure_iceberg_spark makes one")
        home.mkdir(parents=True, exist_ok=True)
        self._log = home / "stderr.log"
        properties = json.dumps(dict(more or {}))
        command = [str(_PYTHON), "-m", "benchmarks.iceberg_rewrite", str(home), properties]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.version = str(self._answer()["version"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    @property
    def processes(self) -> list[psutil.Process]:
        """Python and the JVM."""
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def rewriting(self, directory: Path, paths: Sequence[Path]) -> Work:
        """``rewrite_data_files`` of a new Iceberg table of the same files."""
        files = directory / "files"
        files.mkdir(parents=True)
        for path in paths:
            os.link(path, files / path.name)
        name = self._ask("create", str(directory))

        def work() -> list[str]:
            self._ask("rewrite", name)
            return list(self._ask("files", name))

        return work

    def rewrite(self, name: str) -> None:
        """``rewrite_data_files`` of all files of a table of the catalog."""
        self._ask("rewrite", name)

    def _ask(self, command: str, argument: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, argument]) + "\n")
        self._process.stdin.flush()
        return self._answer()["answer"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Spark's dependency resolution also prints to stdout.
            if line.startswith('{"'):
                answer: dict[str, Any] = json.loads(line)
                return answer
        self._process.wait()
        words = " ".join(self._log.read_text().split())
        raise IcebergUnavailable(f"its process ended: … {words[-_LAST_WORDS:]}")


def main() -> None:
    # Only here: this needs the other PySpark.
    from arctic_orchestration_tests.lake.iceberg_spark import PACKAGES, Lake

    os.environ["PYSPARK_PYTHON"] = sys.executable
    lake = Lake(
        Path(sys.argv[1]),
        {
            "spark.driver.memory": DRIVER_MEMORY,
            # Not the tests' options, which make a JVM start fast and work slowly.
            "spark.driver.extraJavaOptions": "-XX:+UseG1GC",
            **json.loads(sys.argv[2]),
        },
    )
    tables = 0
    print(json.dumps({"version": f"{PACKAGES[0]} on Spark {lake.spark.version}"}), flush=True)
    for line in sys.stdin:
        command, argument = json.loads(line)
        answer: Any = None
        if command == "create":
            tables += 1
            answer = f"db.flights_{tables}"
            _create(lake, answer, argument)
        elif command == "rewrite":
            options = f"'rewrite-all', 'true', 'target-file-size-bytes', '{TARGET}'"
            lake.sql(
                f"call lake.system.rewrite_data_files(table => '{argument}', "
                f"options => map({options}))"
            )
        else:
            found = lake.spark.sql(f"select file_path from lake.{argument}.files").collect()
            answer = [unquote(urlsplit(row.file_path).path) for row in found]
        print(json.dumps({"answer": answer}), flush=True)
    lake.spark.stop()


def _create(lake: Any, name: str, directory: str) -> None:
    kinds = {"timestamp": "timestamp_ntz", "long": "bigint"}
    columns = ", ".join(
        f"{field.name} {kinds.get(str(field.field_type), field.field_type)}"
        for field in SCHEMA.fields
    )
    lake.sql(
        f"create table lake.{name} ({columns}) using iceberg location '{directory}/table' "
        "tblproperties ('write.parquet.compression-codec' = 'zstd', "
        f"'write.parquet.compression-level' = '{ZSTD_LEVEL}')",
        f"call lake.system.add_files(table => '{name}', "
        f"source_table => '`parquet`.`{directory}/files`')",
    )


if __name__ == "__main__":
    main()
