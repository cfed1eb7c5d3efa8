"""``arctic doctor``: what it checks, what it finds, what it advises."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
import yaml
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
)
from dagster._daemon.types import DaemonHeartbeat

from arctic_orchestration.cli.doctor.command import examine
from arctic_orchestration.cli.doctor.machine_checks import environment
from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.findings import BAD, GOOD, WARNING
from arctic_orchestration.errors import ConfigurationError, JavaNotFound
from arctic_orchestration.lake import java
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import SCHEMA_REVISION, Database
from arctic_orchestration.state.tables import locations as location_rows
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.templates import give_zone


def found() -> dict[str, tuple[str, str, str]]:
    """Status, finding and advice by check."""
    return {f.check: (f.status, f.found, f.advice) for f in examine()}


def alive(
    instance: dg.DagsterInstance,
    *,
    ago: float = 0,
    status: InstigatorStatus = InstigatorStatus.DECLARED_IN_CODE,
) -> None:
    """The daemon beats and the dispatcher of location ``flights`` ticks, or did so long ago."""
    at = time.time() - ago
    instance.add_daemon_heartbeat(DaemonHeartbeat(at, "SENSOR", "daemon-1", []))
    location = GrpcServerCodeLocationOrigin(host="127.0.0.1", port=1, location_name="flights")
    origin = RemoteInstigatorOrigin(
        RemoteRepositoryOrigin(location, "__repository__"), "arctic_dispatcher"
    )
    data = SensorInstigatorData(last_tick_timestamp=at)
    instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status, data))


@pytest.fixture
def instance(
    instance: dg.DagsterInstance, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> dg.DagsterInstance:
    """An instance and a state database that is empty."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", empty_url)
    return instance


def test_all_is_well_where_all_is_well(
    backend: str, instance: dg.DagsterInstance, empty_url: str, arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every check is good, and the command ends with 0."""
    monkeypatch.setenv("PGTZ", "UTC")
    database = Database(empty_url)
    database.upgrade()
    database.close()
    alive(instance)
    assert found()["run monitoring"][0] == WARNING
    with (Path(instance.root_directory) / "dagster.yaml").open("a") as configuration:
        configuration.write("run_monitoring:\n  enabled: true\n")
    findings = found()
    assert {check: status for check, (status, _, _) in findings.items()} == {
        "versions": GOOD,
        "java": GOOD,
        "state database": GOOD,
        **(
            {"clock": GOOD, "postgres scheme": GOOD}
            if backend == "postgres"
            else {"permissions": GOOD}
        ),
        "disk": GOOD,
        "lake catalog": GOOD,
        "run coordinator": GOOD,
        "feed": GOOD,
        "daemon": GOOD,
        "dispatcher of flights": GOOD,
        "run monitoring": GOOD,
    }
    assert f"dagster {dg.__version__}" in findings["versions"][1]
    assert f"cluster default, revision {SCHEMA_REVISION}" in findings["state database"][1]
    assert findings["feed"][1].startswith("exact: ")
    document = json.loads(arctic("doctor", "--json").out)
    (daemon,) = [found for found in document["findings"] if found["check"] == "daemon"]
    assert (daemon["status"], daemon["advice"]) == ("ok", "")
    result = arctic("doctor")
    assert result.code == 0
    for check in findings:
        assert check in result.out


@pytest.mark.parametrize("zone", ["Europe/London", "Asia/Kolkata", "Etc/UTC"])
def test_a_time_zone_of_postgres_is_found(
    dagster_instance: Callable[[str], dg.DagsterInstance],
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    zone: str,
) -> None:
    """Dagster writes the times of runs in it and reads them as UTC, also if only in summer."""
    made = dagster_instance("postgres")
    monkeypatch.setenv("DAGSTER_HOME", made.root_directory)
    give_zone(made, postgres_server, zone)
    if zone == "Etc/UTC":
        assert "time zone" not in found()
    else:
        status, text, advice = found()["time zone"]
        assert (status, zone in text, "set timezone to 'UTC'" in advice) == (WARNING, True, True)


def test_a_variable_that_is_misspelled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would read it; those of a deployment, which only begin alike, are left alone."""
    monkeypatch.setenv("ARCTIC_DATBASE_URL", "postgresql://db/arctic")
    monkeypatch.setenv("ARCTIC_DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("ARCTIC_CLUSTER", "default")
    (one,) = environment()
    assert (one.status, one.found, one.advice) == (
        WARNING,
        "ARCTIC_DATBASE_URL is set, and nothing reads it",
        "if ARCTIC_DATABASE_URL is meant, rename it",
    )


def test_a_connect_server_needs_no_java_here(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is looked for; the server is named without its token."""
    monkeypatch.setenv("ARCTIC_SPARK_REMOTE", "sc://spark.example:443/;token=secret")
    monkeypatch.setenv("PATH", "")
    expected = "not needed: Spark is on the Connect server sc://spark.example:443"
    assert found()["java"][:2] == (GOOD, expected)


def test_a_user_without_a_name_cannot_start_spark(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a container that runs with a number."""

    def none() -> None:
        raise ConfigurationError("Add a line to /etc/passwd")

    monkeypatch.setattr(java, "require_user_name", none)
    assert found()["java"] == (BAD, "Add a line to /etc/passwd", "add the line")


def test_without_spark_no_java_is_needed(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a plain installation, which has schedules and no Spark."""

    def none() -> None:
        raise JavaNotFound("no Java")

    monkeypatch.setattr(java, "find_java", none)
    assert found()["java"][0] == BAD
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert found()["java"][:2] == (GOOD, "not needed: pyspark is not installed")


def test_a_daemon_that_never_ran_is_found(
    instance: dg.DagsterInstance, arctic: Callable[..., Outcome]
) -> None:
    """Neither heartbeat nor dispatcher: what to start and what to merge; exit code 1."""
    findings = found()
    start = "start it: dagster-daemon run, or dagster dev"
    assert findings["daemon"] == (BAD, "the sensor daemon was never seen", start)
    status, _, advice = findings["dispatcher"]
    assert (status, advice) == (
        BAD,
        "for schedules: merge arctic.definitions() into a code location of workspace.yaml",
    )
    result = arctic("doctor")
    assert result.code == 1
    assert "dagster-daemon run" in result.out


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_daemon_that_fell_silent_is_found(instance: dg.DagsterInstance) -> None:
    """An hour ago is too long for both."""
    alive(instance, ago=3600)
    findings = found()
    assert findings["daemon"][0] == BAD
    assert findings["daemon"][1].startswith("last heartbeat 2")
    assert findings["daemon"][2] == "start it: dagster-daemon run, or dagster dev"
    assert findings["dispatcher of flights"][0] == BAD
    assert findings["dispatcher of flights"][1].startswith("running, last tick 2")


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_dispatcher_that_was_stopped_is_found(instance: dg.DagsterInstance) -> None:
    """A person did, on the Automation page."""
    alive(instance, status=InstigatorStatus.STOPPED)
    status, what, advice = found()["dispatcher of flights"]
    assert (status, what) == (BAD, "stopped")
    assert "Automation page" in advice


def test_a_schema_that_is_missing_is_found(
    backend: str, instance: dg.DagsterInstance, empty_url: str
) -> None:
    """SQLite follows on first use, and is left alone; Postgres has its command."""
    status, what, advice = found()["state database"]
    assert "revision none" in what
    if backend == "sqlite":
        assert (status, advice) == (WARNING, "nothing: it is migrated on first use")
    else:
        assert (status, advice) == (BAD, "arctic db upgrade")
    database = Database(empty_url)
    assert database.revision() is None
    database.close()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_state_database_that_does_not_answer_is_found(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other checks go on, and the refusal is shown once; the password is not."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/db")
    findings = found()
    status, what, _ = findings["state database"]
    assert status == BAD
    assert "did not answer" in what
    assert "secret" not in what
    assert "daemon" in findings
    assert [check for check, (_, text, _) in findings.items() if "did not answer" in text] == [
        "state database"
    ]
    assert findings["tasks"] == (BAD, "not checked: state database failed", "see there")
    monkeypatch.delenv("DAGSTER_HOME")
    findings = found()
    assert (findings["state database"][0], findings["dagster instance"][0]) == (BAD, BAD)


@pytest.mark.parametrize(
    ("storage", "status"),
    [
        ({"postgres_db": {"scheme": "postgresql"}}, BAD),
        ({"postgres_db": {}}, BAD),
        ({"postgres_url": "postgresql://u:p@h/d"}, BAD),
        ({"postgres_url": "postgresql+psycopg2://u:p@h/d"}, GOOD),
        ({"postgres_db": {"scheme": "postgresql+psycopg2"}}, GOOD),
        ({"postgres_url": {"env": "PG_URL"}}, GOOD),
    ],
)
def test_a_scheme_that_means_another_driver_is_found(
    storage: dict[str, object], status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy 2.1 reads postgresql:// as psycopg 3, with which Dagster does not work."""
    from arctic_orchestration.cli.doctor.command import _postgres_scheme

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({"storage": {"postgres": storage}}))
    (finding,) = _postgres_scheme()
    assert finding.status == status
    assert "u:p" not in finding.found
    if status == BAD:
        assert "postgresql+psycopg2" in finding.advice


def test_an_instance_that_cannot_be_loaded_is_a_finding_too(
    postgres_server: PostgresServer,
    tmp_path: Path,
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With scheme postgresql the storage cannot even be opened; the table says why, exit code 1."""
    db = {"scheme": "postgresql", "username": "postgres", "password": "x", "hostname": "127.0.0.1",
          "port": postgres_server.port, "db_name": "postgres"}  # fmt: skip
    config = {"storage": {"postgres": {"postgres_db": db}}}
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.delenv("ARCTIC_DATABASE_URL", raising=False)
    result = arctic("doctor")
    assert result.code == 1
    assert "postgres scheme" in result.out
    assert "postgresql+psycopg2" in result.out
    assert "Traceback" not in result.out + result.err


def test_without_dagster_home_the_rest_is_still_checked(
    arctic: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The advice names the variable, and nothing is made in the directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.delenv("ARCTIC_DATABASE_URL", raising=False)
    result = arctic("doctor")
    assert result.code == 1
    assert "set DAGSTER_HOME to the folder that holds dagster.yaml" in result.out
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_is_refused_is_reported_once(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again by each check that reads the settings."""
    monkeypatch.setenv("ARCTIC_TIMEZONE", "Europe/Berlinn")
    refused = [f for f in examine() if "Berlinn" in f.found]
    assert [(f.status, f.check) for f in refused] == [(BAD, "settings")]


def test_a_file_of_channels_is_read(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right one is counted; of a wrong one the field is named."""
    assert "notifications" not in found()
    file = tmp_path / "channels.yaml"
    monkeypatch.setenv("ARCTIC_NOTIFICATIONS", str(file))
    file.write_text("channels:\n- url: json://127.0.0.1/\n")
    assert found()["notifications"][:2] == (GOOD, f"1 channel in {file}")
    database = Database(Settings.from_environment().database_url)
    database.upgrade()
    status, problem, advice = found()["notifications"]
    assert (status, problem) == (
        WARNING,
        f"1 channel in {file}; no code location of the cluster ticks, and so none sends them",
    )
    assert "Arctic(schedules=[])" in advice
    with database.begin() as tx:
        locations.locked(tx, "default", "here")
        tx.execute(sa.update(location_rows).values(ticked_at=utc_now()))
    database.close()
    assert found()["notifications"][:2] == (GOOD, f"1 channel in {file}")
    file.write_text("channels:\n- url: json://127.0.0.1/\n  events: [nothing]\n")
    status, problem, advice = found()["notifications"]
    assert (status, advice) == (BAD, "fix the file that ARCTIC_NOTIFICATIONS names")
    assert problem.startswith("channels[0].events: ")
    file.write_text("channels:\n- url: json://127.0.0.1/\n- url: json://${NOT_SET_ANYWHERE}/\n")
    status, problem, advice = found()["notifications"]
    assert (status, advice) == (BAD, "fix the file that ARCTIC_NOTIFICATIONS names")
    assert problem.startswith("channels[1].url: "), "although the other one sends"
