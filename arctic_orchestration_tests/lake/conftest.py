"""A lake of its own for each test."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.lake import open_catalog
from arctic_orchestration.settings import Settings


def settings_for(lake: Path, **environment: str) -> Settings:
    """Settings with the embedded catalog in a directory, and Spark on two threads."""
    return Settings.from_environment(
        {"ARCTIC_LAKE": str(lake), "ARCTIC_SPARK_MASTER": "local[2]", **environment}
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path / "lake")


@pytest.fixture
def catalog(settings: Settings) -> Catalog:
    return open_catalog(settings)
