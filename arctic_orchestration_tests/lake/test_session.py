"""The configuration of Spark, and the Dagster resource that gives the session to a run."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

from arctic_orchestration.errors import ConfigurationError, LakeError
from arctic_orchestration.lake import append, ensure_table, open_catalog, spark_properties
from arctic_orchestration.lake.spark_resource import pyspark_resource
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.sessions import FAST
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


def test_properties_are_added_to_those_of_the_lake(tmp_path: Path) -> None:
    """The master comes from the settings, the rest from the lake, then what was requested."""
    found = spark_properties(settings_for(tmp_path), {"spark.executor.memory": "3g"})
    assert found["spark.master"] == "local[2]"
    assert found["spark.executor.memory"] == "3g"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"


def test_a_property_against_the_lake_is_refused(tmp_path: Path) -> None:
    """It names the property, its value and the one that is needed."""
    with pytest.raises(ConfigurationError) as refusal:
        spark_properties(settings_for(tmp_path), {"spark.sql.session.timeZone": "Europe/Berlin"})
    assert "timeZone is 'Europe/Berlin', expected 'UTC'" in str(refusal.value)


def test_a_driver_for_a_cluster_elsewhere_is_not_bound_to_loopback(tmp_path: Path) -> None:
    """Workers on other machines must reach it; those on this machine need not."""
    away = settings_for(tmp_path, ARCTIC_SPARK_MASTER="spark://spark.example:7077")
    assert "spark.driver.bindAddress" not in spark_properties(away)
    here = settings_for(tmp_path, ARCTIC_SPARK_MASTER="spark://127.0.0.1:7077")
    assert spark_properties(here)["spark.driver.host"] == "127.0.0.1"
    by_property = spark_properties(settings_for(tmp_path), {"spark.master": "k8s://lake.example"})
    assert "spark.driver.host" not in by_property


def test_an_asset_appends_with_the_resource(
    classic_spark: SparkSession, settings: Settings, catalog: Catalog
) -> None:
    """A run materializes an asset; the session that was there before goes on after the run."""
    table = ensure_table(catalog, "lake.asset", Schema(NestedField(1, "id", LongType())))

    @dg.asset
    def flights(pyspark: LazyPySparkResource) -> None:
        append(pyspark.spark_session, pyspark.spark_session.range(3), table)

    resource = pyspark_resource(settings, FAST)
    assert dg.materialize([flights], resources={"pyspark": resource}).success
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert classic_spark.range(4).count() == 4


@pytest.mark.timeout(120)
def test_a_session_that_the_resource_started_ends_with_the_run(tmp_path: Path) -> None:
    """In a process of its own: no Spark before the run, a session in it, none afterwards."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import dagster as dg\n"
        "from dagster_pyspark import LazyPySparkResource\n"
        "from pyspark import SparkContext\n"
        "from arctic_orchestration.lake.spark_resource import pyspark_resource\n"
        "from arctic_orchestration_tests.lake.conftest import settings_for\n"
        "from arctic_orchestration_tests.lake.sessions import FAST\n"
        "@dg.asset\n"
        "def counted(pyspark: LazyPySparkResource) -> None:\n"
        "    assert SparkContext._active_spark_context is None\n"
        "    assert pyspark.spark_session.range(7).count() == 7\n"
        "resource = pyspark_resource(settings_for(Path(sys.argv[1])), FAST)\n"
        "assert dg.materialize([counted], resources={'pyspark': resource}).success\n"
        "assert SparkContext._active_spark_context is None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr


def test_a_catalog_that_pyiceberg_is_configured_with_is_used(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment names another catalog: nothing is made in the lake's directory."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/theirs.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", str(tmp_path / "theirs"))
    catalog = open_catalog(settings)
    table = ensure_table(catalog, "a.t", Schema(NestedField(1, "id", LongType())))
    assert table.location().startswith(str(tmp_path / "theirs"))
    assert not settings.lake.exists()


def test_a_lake_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A file stands where the directory would be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match="ARCTIC_LAKE: .*file/lake cannot be made"):
        open_catalog(settings_for(tmp_path / "file" / "lake"))
