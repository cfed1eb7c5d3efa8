"""What the environment configures."""

from pathlib import Path

import pytest

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.settings import Settings


def test_everything_lies_in_dagster_home_unless_it_says_otherwise(tmp_path: Path) -> None:
    """The state beside Dagster's storage, and the lake beside both."""
    settings = Settings.from_environment({"DAGSTER_HOME": str(tmp_path)})
    assert settings == Settings(
        database_url=f"sqlite:///{tmp_path}/arctic.db",
        cluster="default",
        catalog="lake",
        lake=tmp_path / "lake",
        spark_master="local[*]",
    )


def test_each_variable_is_read() -> None:
    """An empty one is as none."""
    environment = {
        "ARCTIC_DATABASE_URL": "postgresql://host/db",
        "ARCTIC_CLUSTER": "north-1",
        "ARCTIC_CATALOG": "ice",
        "ARCTIC_LAKE": "/lakes/a",
        "ARCTIC_SPARK_MASTER": "spark://host:7077",
        "ARCTIC_METRICS_PORT": "9464",
        "ARCTIC_NOTIFICATIONS": "/etc/arctic/notifications.yaml",
    }
    assert Settings.from_environment(environment) == Settings(
        database_url="postgresql://host/db",
        cluster="north-1",
        catalog="ice",
        lake=Path("/lakes/a"),
        spark_master="spark://host:7077",
        metrics_port=9464,
        notifications=Path("/etc/arctic/notifications.yaml"),
    )
    assert Settings.from_environment({**environment, "ARCTIC_CATALOG": ""}).catalog == "lake"


@pytest.mark.parametrize("name", ["a b", "a/b", "ä", "x" * 64, "a\n"])
def test_a_cluster_has_a_name_that_fits_everywhere(name: str) -> None:
    """Names stand in resources and tags."""
    with pytest.raises(InvalidInput) as refusal:
        Settings.from_environment({"ARCTIC_CLUSTER": name})
    assert (refusal.value.field, refusal.value.value) == ("ARCTIC_CLUSTER", name)
    assert refusal.value.expected == "1 to 63 of the characters A-Z a-z 0-9 _ . -"


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "80 ", "08", "9" * 30])
def test_metrics_need_a_port_that_exists(port: str) -> None:
    """65,535 is the last one; an empty text is none at all."""
    with pytest.raises(InvalidInput) as refusal:
        Settings.from_environment({"ARCTIC_METRICS_PORT": port})
    assert (refusal.value.field, refusal.value.value) == ("ARCTIC_METRICS_PORT", port)
    assert refusal.value.expected == "a port from 1 to 65535"
    assert Settings.from_environment({"ARCTIC_METRICS_PORT": "65535"}).metrics_port == 65_535
    assert Settings.from_environment({"ARCTIC_METRICS_PORT": ""}).metrics_port is None


def test_a_dagster_home_that_is_not_there_is_said_and_not_made(tmp_path: Path) -> None:
    """A typo would give a database, and an instance, of its own."""
    for missing in (tmp_path / "hmoe", tmp_path / "file"):
        if missing.name == "file":
            missing.write_text("")
        with pytest.raises(InvalidInput) as refused:
            Settings.from_environment({"DAGSTER_HOME": str(missing)})
        assert (refused.value.field, refused.value.value) == ("DAGSTER_HOME", str(missing))
    assert not (tmp_path / "hmoe").exists()
