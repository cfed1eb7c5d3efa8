"""Iceberg's own REST catalog, with its tables in an object store, as a user configures it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from arctic_orchestration_tests.iceberg_rest import ABSENT, iceberg_rest, is_absent
from arctic_orchestration_tests.object_store import BUCKET, REGION, ObjectStore, object_store


def behind(store: ObjectStore, directory: Path) -> dict[str, str]:
    """The properties of the catalog that Iceberg's server serves."""
    return store.properties | {
        "uri": f"jdbc:sqlite:{directory}/iceberg.db",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.path-style-access": "true",
        "client.region": REGION,
    }


@contextmanager
def served_catalog(directory: Path) -> Iterator[dict[str, str]]:
    """Yields the environment in which the catalog ``lake`` is that one; else a skip."""
    if is_absent():
        pytest.skip(ABSENT)
    with (
        object_store() as store,
        iceberg_rest() as jvm,
        jvm.server(behind(store, directory)) as address,
    ):
        lake = {"type": "rest", "uri": address, **store.properties}
        home = directory / "pyiceberg"
        home.mkdir()
        (home / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"lake": lake}}))
        yield {"PYICEBERG_HOME": str(home)}
