"""Catalogs by configuration: SQL on Postgres, and Glue as moto has it, with tables on S3."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import InternalError

from arctic_orchestration.lake import open_catalog
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration.lake.s3_retries import PatientRetries
from arctic_orchestration.lake.table_listing import list_tables
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.stored_tables import data_files, rewritten
from arctic_orchestration_tests.object_store import (
    BUCKET,
    KEY,
    REGION,
    SECRET,
    ObjectStore,
    object_store,
)
from arctic_orchestration_tests.postgres import PostgresServer


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as server:
        yield server


def opened(properties: dict[str, str], tmp_path: Path) -> Catalog:
    """The catalog ``lake`` of variables as users set them."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in properties.items():
            name = key.upper().replace(".", "__").replace("-", "_")
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
        return open_catalog(settings_for(tmp_path / "lake"))


def is_compacted(catalog: Catalog) -> None:
    """Two writers' files become one, once."""
    table = table_of(catalog, files=3)
    before = rows_of(table)
    assert list_tables(catalog) == ["lake.words"]
    one = rewritten(catalog, "lake.words")
    # Another writer is first.
    other = load_table(catalog, "lake.words")
    other.append(other.scan().to_arrow()[:1])
    assert replace_files(table, [one]).committed == ("one",)
    assert len(rows_of(table)) == len(before) + 1
    assert data_files(table) == 2
    again = replace_files(load_table(catalog, "lake.words"), [one])
    assert (again.committed, list(again.already)) == ((), ["one"])


def test_sql_on_postgres(
    store: ObjectStore, postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    properties = {
        "type": "sql",
        "uri": postgres_server.url(postgres_database),
        "warehouse": f"s3://{BUCKET}/postgres",
    }
    is_compacted(opened(store.properties | properties, tmp_path))


def test_sql_on_a_postgres_that_only_reads_for_a_while(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    """As after a failover; the session that was refused is not used again."""
    catalog = opened(
        {
            "type": "sql",
            "uri": postgres_server.url(postgres_database),
            "warehouse": f"file://{tmp_path}/warehouse",
        },
        tmp_path,
    )
    assert isinstance(catalog, SqlCatalog)
    with closing(postgres_server.connect(postgres_database)) as other, other.cursor() as cursor:
        other.autocommit = True
        mode = f"alter database {postgres_database} set default_transaction_read_only"
        cursor.execute(f"{mode} = on")
        catalog.engine.dispose()
        with pytest.raises(InternalError):
            catalog.create_namespace("lake")
        cursor.execute(f"{mode} = off")
    catalog.create_namespace("lake")
    assert catalog.list_namespaces() == [("lake",)]


def test_glue(store: ObjectStore, tmp_path: Path) -> None:
    properties = {
        "type": "glue",
        "warehouse": f"s3://{BUCKET}/glue",
        "glue.endpoint": store.endpoint,
        "glue.region": REGION,
        "glue.access-key-id": KEY,
        "glue.secret-access-key": SECRET,
    }
    is_compacted(opened(store.properties | properties, tmp_path))


def test_requests_to_s3_are_repeated_unless_another_strategy_is_set(tmp_path: Path) -> None:
    """pyarrow's own strategy gives up after three attempts, within a second."""
    name = "s3.retry-strategy-impl"
    plain = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://lake"}
    ours = f"{PatientRetries.__module__}.{PatientRetries.__name__}"
    assert opened(plain, tmp_path).properties[name] == ours
    own = "pyarrow.fs.AwsStandardS3RetryStrategy"
    assert opened({**plain, name: own}, tmp_path).properties[name] == own
