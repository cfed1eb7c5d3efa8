"""Tables on S3, by pyiceberg's configuration alone: made, filled, read, merged, committed, cleaned."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from arctic_orchestration.lake import append, ensure_table, open_catalog, read
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.random_tables import SCHEMA
from arctic_orchestration_tests.object_store import BUCKET, ObjectStore, object_store


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as server:
        yield server


@pytest.fixture
def on_s3(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The catalog ``lake`` of pyiceberg's configuration, with its tables in the store."""
    properties = store.properties | {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}/{tmp_path.name}",
    }
    for key, value in properties.items():
        name = key.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    return settings_for(tmp_path / "lake")


@pytest.fixture
def catalog(on_s3: Settings) -> Catalog:
    return open_catalog(on_s3)


def test_rows_are_appended_and_read(spark: SparkSession, catalog: Catalog) -> None:
    table = ensure_table(catalog, "lake.some", SCHEMA)
    rows = spark.range(0, 100).selectExpr("id as row", "cast(id % 3 as int) as key")
    done = append(spark, rows, table)
    assert done.rows == 100
    assert table.location().startswith(f"s3://{BUCKET}/")
    assert sorted(row.row for row in read(spark, table).collect()) == list(range(100))
