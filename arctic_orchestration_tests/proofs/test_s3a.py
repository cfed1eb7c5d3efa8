"""Spark with ``hadoop-aws``, as users add it, reads and writes S3 itself.

The jar and Amazon's SDK are 674 MB of Maven Central: only with ``ARCTIC_PROOF=full``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

#: of the Hadoop in PySpark's jars
_JARS = Path(pyspark.__file__).parent / "jars"
_LIFE = "arctic_orchestration_tests.lake.s3a_life"


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_spark_reads_and_writes_s3_itself_with_the_jar(tmp_path: Path) -> None:
    """With the catalog's properties alone; a warehouse with a blank and a percent sign."""
    if os.environ.get("ARCTIC_PROOF") != "full":
        pytest.skip("hadoop-aws is 674 MB of Maven Central: run with ARCTIC_PROOF=full")
    (client,) = _JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    package = f"org.apache.hadoop:hadoop-aws:{version}"
    done = subprocess.run(
        [sys.executable, "-m", _LIFE, str(tmp_path), package],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unresolved dependency" in done.stdout + done.stderr:
        pytest.skip(f"{package} cannot be had from Maven Central here")
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["by_s3a"]
    assert (report["copied"], report["same"]) == ("append", True)
    first = {file * 1000 + row for file in range(3) for row in range(10)}
    assert set(report["read"]) == first | set(range(5000, 5010))
    assert report["because"].endswith("decoded by Spark: it was requested")
    # The first row of each file, and two by their values.
    assert (report["deleted"], report["left"]) == (report["files"] + 2, 40 - report["files"] - 2)
