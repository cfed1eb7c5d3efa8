"""What the environment configures."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.settings import VARIABLES, Settings, service_page
from arctic_orchestration.state.database import Database


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


@pytest.mark.parametrize("name", ["feature%2Fa", "50%", "a#b", "ä b"])
def test_dagster_home_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Branches of continuous integration are folders such as the first."""
    home = tmp_path / name
    home.mkdir()
    with closing(
        Database(Settings.from_environment({"DAGSTER_HOME": str(home)}).database_url)
    ) as state:
        state.upgrade()
    assert (home / "arctic.db").exists()


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


@pytest.mark.parametrize("name", ["ARCTIC_SERVICE_URL", "ARCTIC_DAGSTER_URL", "ARCTIC_SPARK_UI"])
@pytest.mark.parametrize("address", ["arctic.example:3001", "ftp://arctic.example", "http://", "x"])
def test_the_address_of_a_page_has_a_scheme(
    monkeypatch: pytest.MonkeyPatch, name: str, address: str
) -> None:
    """A code location is refused with it; a run that is requested all the same has no link."""
    with pytest.raises(InvalidInput, match=f"{name}.*expected an address such as http://host"):
        Settings.from_environment({name: address})
    Settings.from_environment({name: "https://arctic.example/prefix/"})
    monkeypatch.setenv("ARCTIC_SERVICE_URL", address)
    assert service_page("jobs", "1") is None


def test_a_missing_dagster_home_is_reported_and_not_created(tmp_path: Path) -> None:
    """A typo would give a database, and an instance, of its own."""
    for missing in (tmp_path / "hmoe", tmp_path / "file"):
        if missing.name == "file":
            missing.write_text("")
        with pytest.raises(InvalidInput) as refused:
            Settings.from_environment({"DAGSTER_HOME": str(missing)})
        assert (refused.value.field, refused.value.value) == ("DAGSTER_HOME", str(missing))
    assert not (tmp_path / "hmoe").exists()


@pytest.mark.parametrize(
    "remote",
    [
        "sc://spark.example",
        "sc://10.0.0.7:15002",
        "sc://[::1]:15002/",
        "sc://spark.example:443/;use_ssl=true;token=a%3D%3D",
    ],
)
def test_a_connect_server_takes_the_place_of_the_master(remote: str) -> None:
    """As PySpark reads the address; a token in it is not shown."""
    settings = Settings.from_environment({"ARCTIC_SPARK_REMOTE": remote})
    assert settings.spark_remote == remote
    assert "token" not in repr(settings)


@pytest.mark.parametrize(
    "remote",
    [
        "spark://host:7077",
        "sc://",
        "sc://host:0",
        "sc://host:65536",
        "sc://host:http",
        "sc://host/path",
        "sc://host;token=a",
        "sc://host/;token",
        "sc://host/;token=a=b",
        "sc://a b",
        "sc://host\n",
    ],
)
def test_another_address_of_a_connect_server_is_refused(remote: str) -> None:
    """By its name; what may be a token is left out."""
    with pytest.raises(InvalidInput) as refusal:
        Settings.from_environment({"ARCTIC_SPARK_REMOTE": remote})
    assert refusal.value.field == "ARCTIC_SPARK_REMOTE"
    assert refusal.value.value == remote.partition(";")[0].removesuffix("/")
    assert refusal.value.expected.startswith("an address such as sc://host:15002")


def test_a_master_and_a_connect_server_exclude_each_other() -> None:
    """Which of them is meant, nobody can tell."""
    with pytest.raises(InvalidInput, match="unset one of the two") as refusal:
        Settings.from_environment(
            {"ARCTIC_SPARK_REMOTE": "sc://host/;token=a", "ARCTIC_SPARK_MASTER": "local[2]"}
        )
    assert (refusal.value.field, refusal.value.value) == ("ARCTIC_SPARK_REMOTE", "sc://host")


def test_the_documented_variables_are_those_that_are_known() -> None:
    """``arctic doctor`` knows by them which others are misspelled."""
    table = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
    assert set(re.findall(r"^\| `(ARCTIC_[A-Z_]+)`", table, re.MULTILINE)) == set(VARIABLES)
