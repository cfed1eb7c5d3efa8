"""``arctic doctor``: checks the environment, and gives a remedy for each finding."""

import os
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.table import Table

from arctic_orchestration.cli.doctor import (
    daemon_checks,
    feed_checks,
    freshness_checks,
    machine_checks,
    run_queue_checks,
    state_checks,
    store_checks,
    version_checks,
)
from arctic_orchestration.cli.doctor.state_checks import Use
from arctic_orchestration.console.dagster_errors import dagster_message
from arctic_orchestration.console.display import print_json
from arctic_orchestration.console.findings import BAD, COLORS, Finding, bad, good, warning
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import (
    ArcticError,
    ConfigurationError,
    JavaNotFound,
    MissingExtra,
    SchemaTooNew,
    described,
)
from arctic_orchestration.quantities import counted
from arctic_orchestration.settings import Settings, without_parameters
from arctic_orchestration.state.database import SCHEMA_REVISION, Database


def doctor(as_json: JsonOption = False) -> None:
    """Check the environment; exit code 1 if anything fails."""
    if as_json:
        findings = examine()
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        findings = _shown()
    if any(finding.status == BAD for finding in findings):
        raise typer.Exit(1)


def _shown() -> list[Finding]:
    console = Console()
    table = Table(title="arctic doctor", title_justify="left", expand=True)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold", ratio=3)
    table.add_column("what to do", overflow="fold", ratio=2)
    with console.status("checking"):
        findings = examine()
    for finding in findings:
        color = COLORS[finding.status]
        status = f"[{color}]{finding.status}[/]"
        found, advice = (escape(text, lines=True) for text in (finding.found, finding.advice))
        table.add_row(escape(finding.check), status, found, advice)
    console.print(table)
    return findings


def examine() -> list[Finding]:
    """Runs all checks; a check that fails with an error is a finding, too."""
    first: dict[str, str] = {}
    return [
        finding
        if finding.status != BAD or first.setdefault(finding.found, finding.check) == finding.check
        else bad(finding.check, f"not checked: {first[finding.found]} failed", "see there")
        for finding in _findings()
    ]


def _findings() -> list[Finding]:
    findings = _guarded("versions", version_checks.versions)
    try:
        Settings.from_environment()
    except ArcticError as error:
        # Every check that reads them would report the same.
        refused = bad("settings", str(error), "correct it: most of the rest is checked after that")
        return [*findings, *_guarded("environment", machine_checks.environment), refused]
    findings += _guarded("java", _java)
    findings += _guarded("state database", _state_database)
    findings += _guarded("permissions", state_checks.permissions)
    findings += _guarded("locations", state_checks.locations)
    findings += _guarded("environment", machine_checks.environment)
    findings += _guarded("clock", machine_checks.clock)
    findings += _guarded("disk", machine_checks.disk)
    findings += _guarded("postgres scheme", _postgres_scheme)
    findings += _guarded("notifications", _notifications)
    findings += _guarded("object store", store_checks.object_store)
    findings += _guarded("compaction", _compaction)
    findings += _guarded("unreadable events", feed_checks.unreadable)
    findings += _guarded("tasks", freshness_checks.tasks_and_consumers)
    try:
        from dagster import DagsterInstance

        instance = DagsterInstance.get()
    except Exception as error:
        advice = "set DAGSTER_HOME to the folder that holds dagster.yaml, and fix that file"
        if "DAGSTER_HOME" not in os.environ:
            findings += daemon_checks.of_dagster("dagster instance", dagster_message(error), advice)
        else:
            found = dagster_message(error)
            findings.append(bad("dagster instance", found, advice))
        return findings
    with instance:
        # Must be the first check that uses the run coordinator.
        findings += _guarded("run coordinator", lambda: run_queue_checks.run_coordinator(instance))
        findings += _guarded("run launcher", lambda: run_queue_checks.run_launcher(instance))
        findings += _guarded("feed", lambda: feed_checks.mode(instance))
        findings += _guarded("feed", lambda: feed_checks.positions(instance))
        findings += _guarded("daemon", lambda: daemon_checks.daemon(instance))
        findings += _guarded("dispatcher", lambda: daemon_checks.sensors(instance))
        findings += _guarded("adopted", lambda: daemon_checks.adopted(instance))
        findings += _guarded("run monitoring", lambda: daemon_checks.run_monitoring(instance))
    return findings


def _guarded(check: str, examined: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return examined()
    except ModuleNotFoundError as error:
        missing = MissingExtra.of(error)
        text = str(missing or error)
        if missing is not None and Use.COMPACTION not in state_checks.uses():
            # Only compaction, and the lake beside it, need packages beyond a plain installation.
            return [good(check, f"not in use, and {text}")]
        return [bad(check, text, "install it")]
    except Exception as error:
        return [bad(check, described(error), "see the message")]


def _compaction() -> list[Finding]:
    from arctic_orchestration.cli.doctor import compaction_checks

    return compaction_checks.compaction()


def _java() -> list[Finding]:
    from arctic_orchestration.lake.java import find_java, require_user_name

    remote = Settings.from_environment().spark_remote
    if remote is not None:
        found = f"not needed: Spark is on the Connect server {without_parameters(remote)}"
        return [good("java", found)]
    if find_spec("pyspark") is None:
        return [good("java", "not needed: pyspark is not installed")]
    try:
        java = find_java()
        require_user_name()
    except JavaNotFound as error:
        advice = "install Java 17, set JAVA_HOME, or: pip install 'arctic-orchestration[jdk]'"
        return [bad("java", str(error), advice)]
    except ConfigurationError as error:
        return [bad("java", str(error), "add the line")]
    return [good("java", f"Java {java.version} in {java.home}, found by {java.source}")]


def _state_database() -> list[Finding]:
    settings = Settings.from_environment()
    database = Database(settings.database_url)
    shown = database.shown
    file = database.engine.url.database
    is_sqlite = database.engine.url.get_backend_name() == "sqlite"
    # A check must not create a database.
    revision = None if is_sqlite and not Path(file or "").exists() else database.revision()
    newer = ""
    try:
        database.refuse_newer(revision)
    except SchemaTooNew as error:
        newer = f"{shown}: {error}"
    database.close()
    found = f"{shown}, cluster {settings.cluster}, revision {revision or 'none'}"
    if revision == SCHEMA_REVISION:
        return [good("state database", found)]
    if newer:
        advice = "install the version that is named, or restore a backup from before the upgrade"
        return [bad("state database", newer, advice)]
    if is_sqlite:
        return [warning("state database", found, "nothing: it is migrated on first use")]
    return [bad("state database", found, "arctic db upgrade")]


def _postgres_scheme() -> list[Finding]:
    import yaml

    path = Path(os.environ.get("DAGSTER_HOME", ".")) / "dagster.yaml"
    if not path.exists():
        return []
    configured = yaml.safe_load(path.read_text()) or {}
    postgres = (configured.get("storage") or {}).get("postgres")
    if postgres is None:
        return []
    url, parts = postgres.get("postgres_url"), postgres.get("postgres_db") or {}
    scheme = str(url).partition("://")[0] if url else parts.get("scheme", "postgresql")
    if scheme == "postgresql+psycopg2" or isinstance(url, dict):
        return [good("postgres scheme", str(scheme))]
    return [
        bad(
            "postgres scheme",
            f"{path}: {scheme}, which SQLAlchemy 2.1 reads as psycopg 3",
            "storage.postgres.postgres_db.scheme: postgresql+psycopg2",
        )
    ]


def _notifications() -> list[Finding]:
    from arctic_orchestration.notifications.channels import read_channels

    path = Settings.from_environment().notifications
    if path is None:
        return []
    try:
        channels = read_channels(path)
    except ArcticError as error:
        return [bad("notifications", str(error), "fix the file that ARCTIC_NOTIFICATIONS names")]
    found = f"{counted(len(channels), 'channel')} in {path}"
    if state_checks.sends_notices():
        return [good("notifications", found)]
    return [
        warning(
            "notifications",
            f"{found}; no code location of the cluster ticks, and so none sends them",
            "the dispatcher of Arctic(...) sends notices, those of consumers too: start the "
            "daemon, or give a code location Arctic(schedules=[])",
        )
    ]
